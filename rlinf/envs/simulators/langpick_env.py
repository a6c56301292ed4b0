"""``env_type: langpick``: a simulated Franka arm lifts the cube that a sentence names."""

from __future__ import annotations

import torch

from rlinf.config.schema.env import EnvConfig, LangPickEnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs.simulators.langpick_single import DESCRIPTIONS
from rlinf.envs.simulators.simulator_vector import SimulatorVectorEnv
from rlinf.errors import ConfigError

_ABOVE = 0.07
"""Height over a cube at which the expert's hand arrives, in meters."""
_AIM = 0.012
"""How exactly, sidewise."""
_CLOSED = 0.055
"""Opening below which the fingers hold a cube, which is 0.04 m wide."""
_PER_METER = 30.0
"""Action of the expert for each meter that is left: one step goes 0.03 m."""


class LangPickEnv(SimulatorVectorEnv):
    """MuJoCo: ``states`` float32 [B, 4] (hand, opening), ``main_images`` uint8 [B, H, W, 3], ``task_descriptions``.

    Actions are those of ``frankasim``. Lifting the cube that the sentence names by 0.06 m is success and ends the
    episode.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        MissingPackageError: MuJoCo is not installed.
    """


class LangPickExpert:
    """Goes over the cube, down, closes the gripper and rises; what to do follows from the present alone.

    Args:
        env: The environment's configuration.

    Raises:
        ConfigError: The environment does not show where the cubes are.
    """

    def __init__(self, env: EnvConfig) -> None:
        if not isinstance(env, LangPickEnvConfig) or not env.show_objects:
            raise ConfigError(
                "the scripted policy langpick reads where the cubes are. Use it with env_type: langpick and set "
                "show_objects: true in the environment that it acts in."
            )

    def __call__(self, obs: Observation) -> torch.Tensor:
        """Act for ``states`` [B, 4], ``objects`` [B, 9] and ``task_descriptions``."""
        states, objects = obs["states"].float().cpu(), obs["objects"].float().cpu().view(-1, 3, 3)
        numbers = torch.tensor([DESCRIPTIONS.index(task) for task in obs["task_descriptions"]])
        way = objects[torch.arange(len(numbers)), numbers] - states[:, :3]
        aside = way[:, :2].norm(dim=-1)
        is_over = aside < _AIM
        is_at = is_over & (way[:, 2].abs() < _AIM)
        holds = is_at & (states[:, 3] < _CLOSED)
        above = way + torch.tensor([0.0, 0.0, _ABOVE])
        # Never sidewise between the cubes: a hand that is low rises first.
        above[:, :2] *= (above[:, 2] < 0.03).float().unsqueeze(-1)
        move = torch.where(is_over.unsqueeze(-1), way, above) * _PER_METER
        move[holds] = torch.tensor([0.0, 0.0, 1.0])
        grip = torch.where(is_at, -1.0, 1.0)
        return torch.cat([move.clamp(-1.0, 1.0), grip.unsqueeze(-1)], -1).unsqueeze(1)
