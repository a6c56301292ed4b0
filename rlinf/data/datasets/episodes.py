"""Recorded episodes, the registry of formats they are read from, and the transitions that are learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice

import torch

from rlinf.config.registries import data_formats
from rlinf.config.schema.data import DataConfig
from rlinf.data.messages.embodied import Observation
from rlinf.data.replay.buffer import Transitions
from rlinf.errors import DatasetError

RETURN_RANGE = 1000.0
"""Range of returns to which ``data.normalize_returns`` scales, as the authors of implicit Q-learning do."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One recorded episode of ``L`` steps.

    Attributes:
        obs: Observations, ``L + 1`` rows: the last is the state in which the episode ended.
        actions: float32 [L, A] as the environment takes them, or int64 [L] if discrete.
        rewards: float32 [L].
        terminated: Whether it ended by the task's own rules; false where it was cut off.
    """

    obs: Observation
    actions: torch.Tensor
    rewards: torch.Tensor
    terminated: bool

    def __len__(self) -> int:
        return len(self.rewards)


register_data_format = data_formats.register
"""``register_data_format(name, reader, config=MyConfig)`` makes a format known from outside."""


def read_episodes(cfg: DataConfig) -> list[Episode]:
    """Read a dataset.

    Args:
        cfg: The ``data`` section.

    Returns:
        Its episodes, those without a step left out.

    Raises:
        DatasetError: There is none, it is damaged or empty, or holds numbers that are not finite.
        MissingPackageError: The format's reader needs a package that is not installed.
    """
    episodes = [e for e in islice(data_formats.get(cfg.format)(cfg), cfg.max_episodes) if len(e)]
    if not episodes:
        raise DatasetError(f"data.path: '{cfg.path}' holds no episodes. Give a dataset with at least one step.")
    for number, episode in enumerate(episodes):
        _check(episode, f"data.path: episode {number} of '{cfg.path}'")
    scale = _return_scale(episodes) if cfg.normalize_returns else 1.0
    if scale == 1.0 and cfg.reward_offset == 0.0:
        return episodes
    return [replace(episode, rewards=episode.rewards * scale + cfg.reward_offset) for episode in episodes]


def chunk_episodes(
    episodes: Iterable[Episode],
    *,
    chunk: int,
    gamma: float,
    reward_coef: float,
    report: Callable[[Observation, torch.Tensor], dict[str, torch.Tensor]],
    with_next: bool,
) -> Transitions:
    """Return every step of the episodes as the beginning of a chunk; chunks that reach beyond the end are short.

    Args:
        episodes: At least one.
        chunk: Actions per chunk (``C``).
        gamma: Discount per action.
        reward_coef: Factor on rewards.
        report: Maps observations and actions [N, C, A] to what the policy calls its inputs and ``action``.
        with_next: Whether transitions say what followed.
    """
    parts = []
    for episode in episodes:
        length = len(episode)
        starts = torch.arange(length)
        steps = starts.unsqueeze(1) + torch.arange(chunk)
        executed = steps < length
        actions = episode.actions[steps.clamp(max=length - 1)]
        actions[~executed] = 0
        powers = reward_coef * gamma ** torch.arange(chunk, dtype=torch.float64)
        rewards = episode.rewards[steps.clamp(max=length - 1)] * executed * powers
        ends = (starts + chunk).clamp(max=length)
        inputs = report(_rows(episode.obs, starts), actions)
        next_inputs = report(_rows(episode.obs, ends), actions) if with_next else {}
        next_inputs.pop("action", None)
        parts.append(
            Transitions(
                actions=inputs.pop("action").cpu(),
                inputs={name: tensor.cpu() for name, tensor in inputs.items()},
                rewards=rewards.sum(-1).float(),
                next_inputs={name: tensor.cpu() for name, tensor in next_inputs.items()},
                terminated=(ends == length) & episode.terminated,
                lengths=executed.sum(-1),
            )
        )
    return Transitions.concat(parts)


def _rows(obs: Observation, rows: torch.Tensor) -> Observation:
    return {
        key: value[rows] if isinstance(value, torch.Tensor) else [value[row] for row in rows.tolist()]
        for key, value in obs.items()
    }


def _return_scale(episodes: list[Episode]) -> float:
    """Return 1000 over the range of the episodes' returns; 1 where all are alike."""
    returns = [float(episode.rewards.double().sum()) for episode in episodes]
    spread = max(returns) - min(returns)
    return RETURN_RANGE / spread if spread > 0 else 1.0


def _check(episode: Episode, place: str) -> None:
    length = len(episode)
    if len(episode.actions) != length or any(len(value) != length + 1 for value in episode.obs.values()):
        rows = {key: len(value) for key, value in episode.obs.items()}
        raise DatasetError(
            f"{place} has {length} rewards, {len(episode.actions)} actions and observations {rows}; allowed: one "
            "action per reward and one observation more. Write the dataset anew."
        )
    tensors = {"actions": episode.actions, "rewards": episode.rewards, **episode.obs}
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and not torch.isfinite(tensor).all():
            raise DatasetError(f"{place} holds {name} that are NaN or infinite. Leave the episode out of the dataset.")
