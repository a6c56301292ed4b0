"""``<python> <this folder> <adapter> <connection fd> <lifeline fd> [<shared fd>]``: loads the folder; serves.

``<python> <this folder> <adapter> --listen <host>:<port>`` waits for hosts on other machines (``guest_listener``). The
folder is loaded as the package ``rlinf_guest``.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def load_package(folder: Path, name: str = "rlinf_guest") -> None:
    """Import the package of a folder under a name, and nothing that lies beside it."""
    spec = importlib.util.spec_from_file_location(
        name, str(folder / "__init__.py"), submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    # Python put the folder there: its modules must not hide those of the simulator.
    sys.path.pop(0)
    load_package(Path(__file__).resolve().parent)
    if all(argument.isdecimal() for argument in sys.argv[2:]) and sys.argv[2:]:
        importlib.import_module("rlinf_guest.guest_server").main(sys.argv[1], *map(int, sys.argv[2:]))
    else:
        importlib.import_module("rlinf_guest.guest_listener").main(sys.argv[1:])
