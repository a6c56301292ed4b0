"""Data sets of episodes in the LeRobot format: written (v3.0), read (v3.0, v2.1) and checked.

Layout (v3.0; https://huggingface.co/docs/lerobot/lerobot-dataset-v3)::

    meta/info.json                            features, totals, fps, path templates
    meta/tasks.parquet, meta/stats.json       tasks in words; statistics of every feature
    meta/episodes/chunk-000/file-000.parquet  one row for each episode: where its frames are, and their statistics
    data/chunk-000/file-000.parquet           frames of many episodes; images as PNG
    videos/<key>/chunk-000/file-000.mp4       images of many episodes, where a feature is a video

Needs pyarrow (``pip install 'rlinf[data]'``), which is imported when first used. May import ``rlinf.errors``,
``rlinf.utils`` and ``rlinf.config`` only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.data.datasets.lerobot.check import check_dataset
    from rlinf.data.datasets.lerobot.dataset import LeRobotDataset
    from rlinf.data.datasets.lerobot.format import LeRobotEpisode
    from rlinf.data.datasets.lerobot.writer import LeRobotWriter, merge_datasets

_MODULES = {
    "LeRobotEpisode": "format",
    "LeRobotDataset": "dataset",
    "LeRobotWriter": "writer",
    "check_dataset": "check",
    "merge_datasets": "writer",
}

__all__ = [
    "LeRobotEpisode",
    "LeRobotDataset",
    "LeRobotWriter",
    "check_dataset",
    "merge_datasets",
]


def __getattr__(name: str) -> Any:
    """Import an exported name's module when the name is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
