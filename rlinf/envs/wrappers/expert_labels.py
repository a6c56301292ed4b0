"""A scripted expert that labels every action of a chunk, for DAgger; ``loss_type: embodied_dagger`` puts it there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlinf.config.schema.algorithm import DAggerLossConfig
from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.expert import ScriptedExpertConfig
from rlinf.data.messages.embodied import ChunkStep, Observation
from rlinf.envs.raw_chunk import put_rows
from rlinf.envs.scripted import draw, make_scripted_policy
from rlinf.envs.wrappers.base import EnvWrapper


class ExpertLabels(EnvWrapper):
    """Reports what the expert would do before every action, ``expert_action``, and lets it act in whole chunks.

    In a training step n it acts in a chunk with probability ``beta * beta_decay^(n - 1)``; chance depends on the
    observation, the step and the number of the chunk in it. Executed actions are reported as an operator's are.

    Args:
        cfg: Keys of the loss, whose expert is a scripted one.
        env: The environment's configuration.
        num_envs: ``B``.
    """

    cfg: DAggerLossConfig
    state_names = ("shown",)
    looks_at_every_action = True

    def __init__(self, cfg: DAggerLossConfig, *, env: EnvConfig, num_envs: int) -> None:
        super().__init__(cfg, env=env, num_envs=num_envs)
        assert isinstance(cfg.expert, ScriptedExpertConfig)
        self.policy = make_scripted_policy(cfg.expert.policy, env)
        self.step, self.beta, self.chunks = 0, cfg.beta, 0
        self.shown: Observation = {}
        self.acts = torch.zeros(num_envs, dtype=torch.bool)
        self.flags: torch.Tensor = self.acts.unsqueeze(-1)
        self.label = self.executed = torch.zeros(0)

    def begin_step(self, step: int) -> None:
        """See ``EnvWrapper``: the expert acts more rarely from step to step."""
        self.step, self.beta, self.chunks = step, self.cfg.beta * self.cfg.beta_decay ** (step - 1), 0

    def actions(self, actions: torch.Tensor) -> torch.Tensor:
        """See ``EnvWrapper``."""
        if self.resting is None:  # the first action of a chunk
            rows = [_row(self.shown, row) for row in range(self.num_envs)]
            draws = [draw(row, self.env.seed, self.step, self.chunks) for row in rows]
            self.acts = torch.tensor(draws) < self.beta
            self.chunks += 1
        self.label = self.policy(self.shown).to(actions.dtype)
        self.executed = torch.where(self.acts.view(-1, *[1] * (actions.ndim - 1)), self.label, actions)
        self.flags = self.acts.unsqueeze(-1)
        return self.executed

    def reset(self, obs: Observation, rows: torch.Tensor) -> Observation:
        """See ``EnvWrapper``."""
        self.shown = obs if len(rows) == self.num_envs else put_rows(self.shown, rows.numpy(), obs)
        return obs

    def step_result(self, step: ChunkStep) -> ChunkStep:
        """See ``EnvWrapper``."""
        self.shown = step.obs
        reported: dict[str, Any] = {"intervene_action": self.executed, "intervene_flag": self.flags & step.executed}
        return replace(step, expert_action=self.label, **reported)


def _row(obs: Observation, row: int) -> Observation:
    return {key: value[row : row + 1] for key, value in obs.items()}
