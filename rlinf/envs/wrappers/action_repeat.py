"""The wrapper ``action_repeat``."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlinf.config.schema.env import ActionRepeatConfig
from rlinf.data.messages.embodied import ChunkStep
from rlinf.envs.wrappers.base import EnvWrapper


class ActionRepeat(EnvWrapper):
    """Executes every action several times in a row, and reports them as one: rewards are added up.

    ``max_episode_steps`` counts what the simulator executes; ``episode_len`` and ``max_steps_per_rollout_epoch`` count
    the policy's actions.
    """

    cfg: ActionRepeatConfig

    def actions(self, actions: torch.Tensor) -> torch.Tensor:
        """See ``EnvWrapper``."""
        return actions.repeat_interleave(self.cfg.num_repeats, dim=1)

    def step_result(self, step: ChunkStep) -> ChunkStep:
        """See ``EnvWrapper``."""
        rewards, terminations, truncations, executed = (
            values.reshape(len(values), -1, self.cfg.num_repeats)
            for values in (step.rewards, step.terminations, step.truncations, step.executed)
        )
        return replace(
            step,
            rewards=rewards.sum(-1),
            terminations=terminations.any(-1),
            truncations=truncations.any(-1),
            executed=executed[..., 0],
            episodes=tuple(self._shortened(episode) for episode in step.episodes),
        )

    def _shortened(self, episode: dict[str, float]) -> dict[str, float]:
        length = -(-episode["episode_len"] // self.cfg.num_repeats)
        return episode | {"episode_len": length, "reward": episode["return"] / max(length, 1.0)}
