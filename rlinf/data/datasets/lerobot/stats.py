"""Statistics of features, for each episode and over all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rlinf.data.datasets.lerobot.format import Columns, Feature

Stats = dict[str, npt.NDArray[np.float64]]
"""``min``, ``max``, ``mean``, ``std`` in the feature's shape (images: [3, 1, 1], in [0, 1]); ``count`` [1]."""

NAMES = ("min", "max", "mean", "std", "count")
MAX_IMAGES = 100
"""Images of an episode that enter its statistics, evenly spaced."""


def episode_stats(columns: Columns, features: dict[str, Feature]) -> dict[str, Stats]:
    """Return the statistics of one episode's columns, by feature."""
    return {name: _stats(columns[name], feature) for name, feature in features.items() if feature.dtype != "string"}


def join_stats(parts: Sequence[dict[str, Stats]]) -> dict[str, Stats]:
    """Return the statistics of several episodes together."""
    return {name: _join([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _stats(values: npt.NDArray[np.generic], feature: Feature) -> Stats:
    if feature.is_visual:
        chosen = np.linspace(0, len(values) - 1, min(len(values), MAX_IMAGES)).round().astype(int)
        # Channels first, as LeRobot has them.
        numbers = values[chosen].astype(np.float64).transpose(0, 3, 1, 2) / 255.0
        axes: tuple[int, ...] = (0, 2, 3)
        shape: tuple[int, ...] = (3, 1, 1)
    else:
        numbers, axes, shape = values.astype(np.float64).reshape(len(values), -1), (0,), feature.shape
    return {
        "min": numbers.min(axes).reshape(shape),
        "max": numbers.max(axes).reshape(shape),
        "mean": numbers.mean(axes).reshape(shape),
        "std": numbers.std(axes).reshape(shape),
        "count": np.array([len(numbers)], np.float64),
    }


def _join(parts: Sequence[Stats]) -> Stats:
    counts = np.stack([part["count"].reshape((1,) * part["mean"].ndim) for part in parts])
    total = counts.sum()
    means = np.stack([part["mean"] for part in parts])
    mean = (means * counts).sum(0) / total
    variance = ((np.stack([part["std"] for part in parts]) ** 2 + (means - mean) ** 2) * counts).sum(0) / total
    return {
        "min": np.stack([part["min"] for part in parts]).min(0),
        "max": np.stack([part["max"] for part in parts]).max(0),
        "mean": mean,
        "std": np.sqrt(variance),
        "count": np.array([total]),
    }
