"""How well two quantities agree in their order."""

from __future__ import annotations

import numpy as np

from rlinf.data.episode_table import FloatArray


def rank_correlation(first: FloatArray, second: FloatArray) -> float:
    """Return Spearman's correlation of two columns [n]: Pearson's of their ranks, of which equal values share the mean.

    0 where one of them is constant.
    """
    ranks = [_ranks(first), _ranks(second)]
    centred = [column - column.mean() for column in ranks]
    norms = [float(np.sqrt((column**2).sum())) for column in centred]
    return float((centred[0] * centred[1]).sum() / (norms[0] * norms[1])) if all(norms) else 0.0


def _ranks(values: FloatArray) -> FloatArray:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean: FloatArray = counts.cumsum() - (counts - 1) / 2.0
    return mean[places]
