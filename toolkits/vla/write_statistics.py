"""Write the statistics of a LeRobot data set into a policy's folder, in the form of its model.

Where the data set says how its images were rendered, the folder then says so too: another rendering is refused later.

    python toolkits/vla/write_statistics.py results/langpick/demonstrations --model results/langpick/openpi_base

Quantiles are exact, over all frames. Those of random tiny models (``tiny``) are replaced. With ``--delta-actions``,
statistics are those of actions relative to the state that their chunk begins in, over whole chunks.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file

from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.models.vla.relative_actions import to_relative
from rlinf.runners.rendering import RENDERING_FILE

_TINY = "tiny"
_LEROBOT = ("smolvla", "pi0", "pi05")
"""What LeRobot's configurations say of models that are here."""
_LEROBOT_FILES = {
    f"policy_{kind}_*normalizer_processor.safetensors": f"policy_{kind}_{step}_processor.safetensors"
    for kind, step in (("preprocessor", "step_5_normalizer"), ("postprocessor", "step_0_unnormalizer"))
}
"""Where LeRobot keeps statistics: patterns, and the name of a file that is new."""
_LEROBOT_COLUMNS = {"action": "action", "proprio": "observation.state"}
_GR00T_ENTRIES = {"action": "action", "proprio": "state"}
_EMBODIMENT = "new_embodiment"
Entries = Mapping[str, Mapping[str, list[float]]]
"""Statistics of ``action`` and ``proprio``, by their names."""


def statistics_of(values: npt.NDArray[np.float32]) -> dict[str, list[float]]:
    """Return the statistics of numbers [N, A] that published folders hold, entry by entry."""
    numbers = values.astype(np.float64)
    found = {
        "mean": numbers.mean(0),
        "std": numbers.std(0),
        "min": numbers.min(0),
        "max": numbers.max(0),
        "q01": np.quantile(numbers, 0.01, axis=0),
        "q99": np.quantile(numbers, 0.99, axis=0),
    }
    return {name: value.tolist() for name, value in found.items()}


def relative_actions(dataset: LeRobotDataset, runs: Sequence[int], horizon: int) -> npt.NDArray[np.float32]:
    """Return the actions of all chunks, as many as frames, relative to the states that they begin in.

    Args:
        dataset: Of whole episodes; behind their ends the last action goes on.
        runs: ``actor.model.delta_actions``.
        horizon: Actions of a chunk (``H``).

    Returns:
        float32 [frames * H, A].
    """
    ends = np.concatenate([np.full(record.length, record.end) for record in dataset.episodes])
    steps = np.minimum(np.arange(len(ends))[:, None] + np.arange(horizon), ends[:, None] - 1)
    actions = torch.from_numpy(dataset.column("action")[steps]).float()
    states = torch.from_numpy(dataset.column("observation.state")).float()
    return to_relative(actions, states, runs).flatten(0, 1).numpy()


def write_statistics(folder: Path, name: str, entries: Entries, *, embodiment: str = _EMBODIMENT) -> None:
    """Write statistics as the folder's model has them.

    Args:
        folder: Of a checkpoint.
        name: Of the data set, ``unnorm_key``, for models whose folders know data sets.
        entries: By ``action`` and ``proprio``.
        embodiment: ``embodiment_tag``, for GR00T, whose folders know robots.
    """
    file = folder / "config.json"
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if "norm_stats" in config:
        config["norm_stats"].pop(_TINY, None)
        file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        (folder / "dataset_statistics.json").write_text(json.dumps({name: entries}) + "\n", encoding="utf-8")
    elif "action_head_cfg" in config:
        _write_gr00t(folder / "experiment_cfg" / "metadata.json", embodiment, entries)
    elif config.get("type") in _LEROBOT:
        _write_lerobot(folder, entries)
    else:
        _write_openpi(folder, name, entries)


def _write_openpi(folder: Path, name: str, entries: Entries) -> None:
    shutil.rmtree(folder / "assets" / _TINY, ignore_errors=True)
    # Where published training has written those of this data set, they are read first.
    own = folder / name / "norm_stats.json"
    path = own if own.is_file() else folder / "assets" / name / "norm_stats.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"norm_stats": {"actions": entries["action"], "state": entries["proprio"]}}
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def _write_lerobot(folder: Path, entries: Entries) -> None:
    tensors = {
        f"{_LEROBOT_COLUMNS[entry]}.{name}": torch.tensor(numbers, dtype=torch.float32)
        for entry, found in entries.items()
        for name, numbers in found.items()
    }
    for pattern, new in _LEROBOT_FILES.items():
        path = next(iter(sorted(folder.glob(pattern))), folder / new)
        before = load_file(path) if path.is_file() else {}
        save_file(before | tensors, path)


def _write_gr00t(path: Path, embodiment: str, entries: Entries) -> None:
    """Write statistics of a robot, in the parts that it has already where they are of this length."""
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    robot = known.setdefault(embodiment, {"embodiment_tag": embodiment})
    before = robot.get("statistics", {})
    robot["statistics"] = {
        stored: _in_parts(before.get(stored, {}), entries[entry]) for entry, stored in _GR00T_ENTRIES.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def _in_parts(before: Mapping[str, Mapping[str, list[float]]], found: Mapping[str, list[float]]) -> dict[str, Any]:
    sizes = {part: len(next(iter(numbers.values()))) for part, numbers in before.items()}
    total = len(next(iter(found.values())))
    if sum(sizes.values()) != total:
        sizes = {"all": total}
    parts, begin = {}, 0
    for part, size in sizes.items():
        parts[part] = {name: numbers[begin : begin + size] for name, numbers in found.items()}
        begin += size
    return parts


def write_rendering(folder: Path, rendering: dict[str, Any] | None) -> None:
    """Write how images were rendered into a policy's folder; None removes what it said before."""
    path = folder / RENDERING_FILE
    path.unlink(missing_ok=True)
    if rendering is not None:
        path.write_text(json.dumps(rendering, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Write what the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--delta-actions", type=int, nargs="*", default=[], help="as actor.model.delta_actions")
    parser.add_argument("--horizon", type=int, default=50, help="with --delta-actions: actor.model.horizon")
    parser.add_argument("--embodiment-tag", default=_EMBODIMENT, help="of gr00t: actor.model.embodiment_tag")
    args = parser.parse_args()
    dataset = LeRobotDataset(args.dataset)
    runs = args.delta_actions
    actions = relative_actions(dataset, runs, args.horizon) if runs else dataset.column("action")
    entries = {"action": statistics_of(actions), "proprio": statistics_of(dataset.column("observation.state"))}
    write_statistics(args.model, args.dataset.name, entries, embodiment=args.embodiment_tag)
    write_rendering(args.model, dataset.info.rendering)
    print(f"wrote the statistics of {dataset.num_frames} frames into {args.model}")


if __name__ == "__main__":
    main()
