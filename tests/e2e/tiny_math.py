"""Questions of addition, and a tiny model that has not learned yet: what the runs of language models start from."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

REPO = Path(__file__).parents[2]


def make_questions(folder: Path) -> Path:
    """Write ``train.jsonl``, ``val.jsonl`` and the folder ``model``."""
    maker = load_example("make_tiny_model")
    maker.make_tiny_model(folder / "model", max_context_tokens=64, initializer_range=0.1)
    for name, numbers in (("train", range(10, 50)), ("val", range(50, 60))):
        rows = [{"question": f"{a}+{b}=", "answer": str(a + b)} for a in numbers for b in (1, 2)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def load_example(name: str) -> ModuleType:
    """Return a script of ``examples/reasoning`` as a module."""
    spec = importlib.util.spec_from_file_location(name, REPO / f"examples/reasoning/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
