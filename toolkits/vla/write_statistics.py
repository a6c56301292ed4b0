"""Write the statistics of a LeRobot data set into a policy's folder, in the form of its model.

Where the data set says how its images were rendered, the folder then says so too: another rendering is refused later.

    python toolkits/vla/write_statistics.py results/langpick/demonstrations --model results/langpick/openpi_base

Quantiles are exact, over all frames. Those of random tiny models (``tiny``) are replaced.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.runners.rendering import RENDERING_FILE

_TINY = "tiny"


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


def write_statistics(folder: Path, name: str, entries: dict[str, dict[str, list[float]]]) -> None:
    """Write statistics of ``action`` and ``proprio`` as the folder's model has them.

    Args:
        folder: Of a checkpoint.
        name: Of the data set: ``unnorm_key``.
        entries: By ``action`` and ``proprio``.
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if "norm_stats" not in config:
        shutil.rmtree(folder / "assets" / _TINY, ignore_errors=True)
        path = folder / "assets" / name / "norm_stats.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"norm_stats": {"actions": entries["action"], "state": entries["proprio"]}}
        path.write_text(json.dumps(content) + "\n", encoding="utf-8")
        return
    config["norm_stats"].pop(_TINY, None)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "dataset_statistics.json").write_text(json.dumps({name: entries}) + "\n", encoding="utf-8")


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
    args = parser.parse_args()
    dataset = LeRobotDataset(args.dataset)
    columns = {"action": "action", "proprio": "observation.state"}
    entries = {entry: statistics_of(dataset.column(column)) for entry, column in columns.items()}
    write_statistics(args.model, args.dataset.name, entries)
    write_rendering(args.model, dataset.info.rendering)
    print(f"wrote the statistics of {dataset.num_frames} frames into {args.model}")


if __name__ == "__main__":
    main()
