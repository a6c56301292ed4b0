"""``<python> <this folder> <adapter> <connection fd> <lifeline fd>``: loads the folder as ``rlinf_guest``; serves."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def load_package(folder: Path) -> None:
    """Import the package of this folder as ``rlinf_guest``."""
    spec = importlib.util.spec_from_file_location(
        "rlinf_guest", str(folder / "__init__.py"), submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["rlinf_guest"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    # Python put the folder there: its modules must not hide those of the simulator.
    sys.path.pop(0)
    load_package(Path(__file__).resolve().parent)
    importlib.import_module("rlinf_guest.guest_server").main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
