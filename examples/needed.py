"""Ends a script that runs in a Python without the packages it needs, and says how to get them.

Scripts call it before they import anything that may be missing.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

# Target of requirements/install.sh and a package that it brings, by the folder of the script.
_TARGETS = {
    "agents": ("reason --extras agents", "transformers"),
    "reasoning": ("reason", "transformers"),
    "search": ("reason --extras agents", "bm25s"),
    "sft": ("reason", "transformers"),
}


def check_packages(script: str) -> None:
    """End the process with a message where packages are missing that a script needs; ``script`` is its file."""
    target, package = _TARGETS.get(Path(script).resolve().parent.name, ("embodied", "gymnasium"))
    missing = [name for name in ("rlinf", "torch", package) if find_spec(name) is None]
    if missing:
        sys.exit(
            f"Error: {sys.executable} lacks {', '.join(missing)}. Install them in the repository's folder, and use the "
            f"Python that has them:\n  bash requirements/install.sh {target}\n  source .venv/bin/activate"
        )
