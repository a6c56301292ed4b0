"""Run the published generator of CALVIN's chains, and print the hashes that our tests compare with.

``python toolkits/calvin/published_chains.py CALVIN_FOLDER`` takes minutes. It needs numpy and PyYAML, and of the folder
(mees/calvin) the modules of the evaluation alone: what they import besides is replaced by empty modules, and pyhash,
which no present compiler builds, by its own function of 32 bits (FNV-1, beginning at 0, over a text's UTF-16).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

_EVALUATION = Path("calvin_models/calvin_agent/evaluation")
_ANNOTATIONS = Path("calvin_models/conf/annotations/new_playtable_validation.yaml")


def digest(value: object) -> str:
    """Return the hash of a value of JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def fnv1(text: str) -> int:
    """Return what ``pyhash.fnv1_32()`` returns for a text."""
    value = 0
    for byte in text.encode("utf-16-le"):
        value = (value * 16777619) % 2**32 ^ byte
    return value


@contextlib.contextmanager
def temp_seed(seed: int) -> Iterator[None]:
    """Seed numpy's global generator and restore it behind."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


def load_generator(folder: Path) -> types.ModuleType:
    """Return the published module that samples chains."""
    names = ("calvin_agent", "calvin_agent.evaluation", "calvin_agent.evaluation.utils")
    sys.modules.update({name: types.ModuleType(name) for name in names})
    sys.modules[names[-1]].temp_seed = temp_seed  # type: ignore[attr-defined]
    module = sys.modules["published_chains"] = types.ModuleType("published_chains")
    exec((folder / _EVALUATION / "multistep_sequences.py").read_text(encoding="utf-8"), module.__dict__)
    return module


def load_start_state(folder: Path) -> Any:
    """Return the published function that gives the simulator's state of a start."""
    text = (folder / _EVALUATION / "utils.py").read_text(encoding="utf-8")
    begin = text.index("def get_env_state_for_initial_condition")
    names: dict[str, Any] = {"np": np, "pi": np.pi, "hasher": fnv1, "temp_seed": temp_seed}
    exec(text[begin:], names)
    return names["get_env_state_for_initial_condition"]


def tasks_of(module: Any, folder: Path) -> list[Any]:
    """Return sentences, categories and rules."""
    annotations = yaml.safe_load((folder / _ANNOTATIONS).read_text(encoding="utf-8"))
    sentences = {task: annotations[task][0] for task in module.tasks}
    rules = {
        task: [[dict(sorted(rule[part].items())) for part in ("condition", "effect")] for rule in found]
        for task, found in module.tasks.items()
    }
    return [sentences, {task: module.task_categories[task] for task in module.tasks}, rules]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    # Workers have to find the module, which is no file.
    multiprocessing.set_start_method("fork")
    module = load_generator(folder)
    print("tasks ", digest(tasks_of(module, folder)), flush=True)
    start_state = load_start_state(folder)
    conditions = starts_of(module)
    print("states", digest([[part.tolist() for part in start_state(symbols)] for symbols in conditions]), flush=True)
    print("chains", digest([[symbols, list(tasks)] for symbols, tasks in module.get_sequences(1000)]))


def starts_of(module: Any) -> list[dict[str, Any]]:
    """Return the published starts, in their order, which ``get_sequences`` keeps to itself."""
    found: list[dict[str, Any]] = []

    def note(arguments: tuple[dict[str, Any], int, int]) -> list[Any]:
        found.append(arguments[0])
        return [np.array(["open_drawer"])] * arguments[1]

    class Here:
        def __init__(self, **_: Any) -> None: ...
        def __enter__(self) -> Here:
            return self

        def __exit__(self, *_: object) -> None: ...
        def map(self, function: Any, items: Any) -> Any:
            return map(function, items)

    kept = module.ProcessPoolExecutor, module.get_sequences_for_state2
    module.ProcessPoolExecutor, module.get_sequences_for_state2 = Here, note
    module.get_sequences.__wrapped__(1000)
    module.ProcessPoolExecutor, module.get_sequences_for_state2 = kept
    return found


if __name__ == "__main__":
    main()
