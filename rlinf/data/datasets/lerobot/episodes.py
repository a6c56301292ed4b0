"""``data.format: lerobot``: episodes of a LeRobot data set to learn from offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.data.datasets.episodes import Episode
from rlinf.data.datasets.lerobot.dataset import LeRobotDataset
from rlinf.data.datasets.lerobot.format import LeRobotEpisode
from rlinf.data.messages.embodied import Observation

_STATE = "observation.state"
_CAMERAS = "observation.images."


def read_lerobot(cfg: LeRobotDataConfig) -> Iterator[Episode]:
    """Yield the episodes of a data set in their order.

    The format has no state after the last action. Where that terminated (``next.terminated``), what follows does not
    matter and the action is kept; otherwise it is left out, and the last frame is the state in which the rest ends.

    Args:
        cfg: The ``data`` section.

    Raises:
        DatasetError: No such data set, or a damaged one.
        MissingPackageError: pyarrow is not installed.
    """
    dataset = LeRobotDataset(Path(cfg.path), cfg.columns)
    for number in range(dataset.num_episodes):
        yield to_episode(dataset.episode(number))


def to_episode(recorded: LeRobotEpisode) -> Episode:
    """Return an episode as learners take it: states and cameras under the names that environments give them."""
    columns = recorded.columns
    terminated = bool(columns["next.terminated"][-1]) if "next.terminated" in columns else False
    length = len(recorded) if terminated else len(recorded) - 1
    rows = list(range(length)) + [len(recorded) - 1]
    obs: Observation = {"task_descriptions": [recorded.task] * len(rows)}
    for name, values in columns.items():
        if name == _STATE:
            obs["states"] = torch.from_numpy(values[rows]).float()
        elif name.startswith(_CAMERAS):
            obs[f"{name.removeprefix(_CAMERAS)}_images"] = torch.from_numpy(values[rows])
        elif name.startswith("observation."):
            obs[name.removeprefix("observation.")] = torch.from_numpy(values[rows])
    actions = torch.from_numpy(columns["action"][:length].copy())
    rewards = columns["next.reward"][:length, 0].copy() if "next.reward" in columns else torch.zeros(length)
    return Episode(
        obs=obs,
        # Discrete actions are integers, one to a frame.
        actions=actions.float() if actions.is_floating_point() else actions[:, 0],
        rewards=torch.as_tensor(rewards, dtype=torch.float32),
        terminated=terminated,
    )
