"""D4RL's HDF5 layout (Fu et al., 2020): ``observations``, ``actions``, ``rewards``, ``terminals`` and ``timeouts``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlinf.config.schema.data import D4RLDataConfig
from rlinf.data.datasets.episodes import Episode
from rlinf.data.datasets.minari import as_actions, find_file, open_hdf5, require_h5py
from rlinf.errors import DatasetError

_LARGEST_GAP = 1e-6
"""Difference between what follows a step and the observation of the next one up to which they are the same."""


def read_d4rl(cfg: D4RLDataConfig) -> Iterator[Episode]:
    """Yield the episodes of a D4RL file in order.

    Episodes end at ``terminals`` and ``timeouts``; in a file without timeouts also where an observation is not what the
    step before led to. Where the file has no ``next_observations``, an episode ends in the observation of the step
    after it: a terminated episode needs none, one that was cut off loses its last step.

    Args:
        cfg: The ``data`` section.

    Raises:
        DatasetError: No such file, or one in another layout.
        MissingPackageError: h5py is not installed.
    """
    h5py = require_h5py("data.format=d4rl")
    path = find_file(cfg.path, Path("data.hdf5"))
    with open_hdf5(h5py, path) as file:
        missing = {"observations", "actions", "rewards", "terminals"} - set(file)
        if missing:
            raise DatasetError(
                f"data.path: '{path}' has no {', '.join(sorted(missing))}: this is not D4RL's layout. Choose another "
                "data.format."
            )
        names = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
        columns = {name: np.asarray(file[name][()]) for name in names if name in file}
    ends = columns["terminals"].astype(bool)
    if "timeouts" in columns:
        ends = ends | columns["timeouts"].astype(bool)
    elif "next_observations" in columns:
        # Without timeouts an episode was cut off where the next step does not go on from what this one led to.
        gaps = np.abs(columns["observations"][1:] - columns["next_observations"][:-1])
        ends[:-1] |= gaps.reshape(len(gaps), -1).max(axis=1) > _LARGEST_GAP
    # Steps behind the last end are an episode that the end of the file cut off.
    stops = [*(np.flatnonzero(ends) + 1).tolist(), len(ends)]
    for start, stop in zip([0, *stops], stops, strict=False):
        if stop > start:
            yield _episode(columns, start, stop)


def _episode(columns: dict[str, Any], start: int, stop: int) -> Episode:
    terminated = bool(columns["terminals"][stop - 1])
    states = columns["observations"][start:stop]
    if "next_observations" in columns:
        states = np.concatenate([states, columns["next_observations"][stop - 1 : stop]])
    elif terminated:
        # What follows a termination is never valued.
        states = np.concatenate([states, states[-1:]])
    else:
        stop -= 1
    return Episode(
        obs={"states": torch.as_tensor(states.reshape(len(states), -1), dtype=torch.float32)},
        actions=as_actions(columns["actions"][start:stop]),
        rewards=torch.as_tensor(columns["rewards"][start:stop], dtype=torch.float32),
        terminated=terminated,
    )
