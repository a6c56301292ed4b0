"""Scripts of ``examples/``, which is no package, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[3] / "examples"


def load_example(file: str) -> ModuleType:
    """Return a script as a module of its own name, where its dataclasses look for it.

    Args:
        file: Within ``examples/``.
    """
    path = EXAMPLES / file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
