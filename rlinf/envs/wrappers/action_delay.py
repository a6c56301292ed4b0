"""The wrapper ``action_delay``."""

from __future__ import annotations

import torch

from rlinf.config.schema.env import ActionDelayConfig
from rlinf.data.messages.embodied import ChunkStep, Observation
from rlinf.envs.action_conventions import convention_of
from rlinf.envs.wrappers.base import EnvWrapper
from rlinf.errors import ConfigError


class ActionDelay(EnvWrapper):
    """Executes every action a fixed number of steps after it was chosen, as a robot does that acts while it infers.

    An episode begins with zeros, which displacements and torques take for rest, in the convention of policies; what is
    still waiting at its end is dropped. The policy is not shown what waits: ``frame_stack`` lets it infer that.
    """

    cfg: ActionDelayConfig
    state_names = ("waiting",)
    waiting: torch.Tensor | None = None
    """[B, num_steps, A]; None before the first chunk."""

    def actions(self, actions: torch.Tensor) -> torch.Tensor:
        """See ``EnvWrapper``.

        Raises:
            ConfigError: Actions are discrete, and no number of them means rest.
        """
        if not actions.is_floating_point():
            raise ConfigError(
                f"env.*.wrappers: action_delay: env_type={self.env.env_type} has discrete actions, of which none is "
                "known to mean rest. Remove the wrapper."
            )
        if self.waiting is None:
            self.waiting = actions.new_zeros(self.num_envs, self.cfg.num_steps, actions.shape[-1])
            self._rest(torch.arange(self.num_envs))
        stream = torch.cat([self.waiting, actions], 1)
        self.waiting = stream[:, actions.shape[1] :].clone()
        if self.resting is not None:
            self.waiting[self.resting] = 0
        return stream[:, : actions.shape[1]]

    def reset(self, obs: Observation, rows: torch.Tensor) -> Observation:
        """See ``EnvWrapper``."""
        self._rest(rows)
        return obs

    def step_result(self, step: ChunkStep) -> ChunkStep:
        """See ``EnvWrapper``."""
        if step.final_ids is not None:
            self._rest(step.final_ids)
        return step

    def _rest(self, rows: torch.Tensor) -> None:
        """Let what waits in some environments say nothing."""
        if self.waiting is not None:
            self.waiting[rows] = 0
            self.waiting[rows, :, -1] = convention_of(self.env).gripper_number(0.0)
