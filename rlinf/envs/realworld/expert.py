"""The scripted policies ``franka``, straight to the target, and ``operator``, which rests until a person acts."""

from __future__ import annotations

import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.realworld import RealWorldEnvConfig, RobotEnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.errors import ConfigError

_ABOVE_METERS = 0.01
"""How far above the block it moves sideways."""


class FrankaExpert:
    """Solves ``env_type: realworld`` from ``states`` alone.

    Args:
        env: The environment's configuration.

    Raises:
        ConfigError: It is another environment, or its target is not known.
    """

    def __init__(self, env: EnvConfig) -> None:
        if not isinstance(env, RealWorldEnvConfig) or env.target_ee_pose is None:
            raise ConfigError(
                f"The scripted policy 'franka' solves env_type=realworld with env.*.target_ee_pose; received env_type="
                f"{env.env_type}. Choose another policy."
            )
        self.env = env

    def __call__(self, obs: Observation) -> torch.Tensor:
        """Act, float32 [B, 1, A], for ``states`` [B, 19], which are relative to the target."""
        env, states = self.env, obs["states"].float().cpu()
        goal = torch.zeros_like(states[:, :3])
        if env.dummy.scene == "peg":
            away = states[:, :2].norm(dim=-1) > env.dummy.hole_clearance_meters / 2
            goal[:, 2] = torch.where(away, env.dummy.hole_depth_meters + _ABOVE_METERS, 0.0)
        parts = [_limited((goal - states[:, :3]) / env.max_step_meters)]
        if not env.fixed_rotation:
            parts.append(_limited(-states[:, 3:6] / env.max_step_radians))
        if not env.no_gripper:
            parts.append(torch.ones(len(states), 1))
        return torch.cat(parts, -1).unsqueeze(1)


class RestingPolicy:
    """Stays where it is: what a robot does while its operator does not act.

    Args:
        env: The environment's configuration.

    Raises:
        ConfigError: Zeros are no rest in another environment.
    """

    def __init__(self, env: EnvConfig) -> None:
        if not isinstance(env, RealWorldEnvConfig | RobotEnvConfig):
            raise ConfigError(
                "The scripted policy 'operator' waits for the operator of env_type=realworld or robot; received "
                f"env_type={env.env_type}. Choose another policy."
            )
        self.env = env

    def __call__(self, obs: Observation) -> torch.Tensor:
        """Act, float32 [B, 1, A], by no motion."""
        return torch.zeros(len(obs["states"]), 1, self.env.num_actions)


def _limited(vectors: torch.Tensor) -> torch.Tensor:
    lengths: torch.Tensor = vectors.norm(dim=-1, keepdim=True)
    return vectors / lengths.clamp(min=1.0)
