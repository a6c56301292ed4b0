"""A program that solves robosuite's ``Lift``: pick up a cube."""

from __future__ import annotations

import torch

from rlinf.config.schema.env import EnvConfig, RobosuiteEnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.errors import ConfigError

_NUM_ACTIONS = {"OSC_POSE": 7, "OSC_POSITION": 4}
_FINGERS = slice(28, 30)
"""Place of both finger joints in the whole state of a Panda arm."""
_WAY = slice(-3, None)
"""Place of the way from the cube to the hand, the last of the object's numbers."""
_PER_METER = 20.0
"""Action for each meter that is left; an action of 1 moves the controller's goal by 5 cm."""
_ABOVE = 0.06
"""Height over the cube at which the hand arrives, in meters."""
_AIM = 0.012
"""How exactly it comes there and down to the cube."""
_CLOSED = 0.065
"""Opening below which the fingers hold the cube: its diagonal is up to 0.062 m long; open they are 0.08 m apart."""


class RobosuiteLiftExpert:
    """Goes over the cube, down, closes the gripper and rises; what to do follows from the present alone.

    Args:
        env: The environment's configuration.

    Raises:
        ConfigError: It is another task, arm or controller, or does not show where the cube is.
    """

    def __init__(self, env: EnvConfig) -> None:
        if not isinstance(env, RobosuiteEnvConfig) or not _can_act(env):
            raise ConfigError(
                "the scripted policy robosuite_lift lifts the cube with a Panda arm and reads where the cube is. Use "
                "it with env_type: robosuite, task_name: Lift, robots: Panda and controller: OSC_POSE or OSC_POSITION; "
                "with image_size, set show_objects: true in the environment that it acts in."
            )
        self._num_actions = _NUM_ACTIONS[env.controller]

    def __call__(self, obs: Observation) -> torch.Tensor:
        """Act for the whole state [B, 42], ``objects`` or else ``states``; returns float32 [B, 1, A]."""
        state = obs["objects" if "objects" in obs else "states"].float().cpu()
        way, fingers = -state[:, _WAY], state[:, _FINGERS]
        is_over = way[:, :2].norm(dim=-1) < _AIM
        is_at = is_over & (way[:, 2].abs() < _AIM)
        holds = is_at & (fingers[:, 0] - fingers[:, 1] < _CLOSED)
        above = way + torch.tensor([0.0, 0.0, _ABOVE])
        move = torch.where(is_over.unsqueeze(-1), way, above) * _PER_METER
        move[holds] = torch.tensor([0.0, 0.0, 1.0])
        action = torch.zeros(len(state), self._num_actions)
        action[:, :3] = move.clamp(-1.0, 1.0)
        action[:, -1] = torch.where(is_at, 1.0, -1.0)
        return action.unsqueeze(1)


def _can_act(env: RobosuiteEnvConfig) -> bool:
    is_lift = env.task_name == "Lift" and env.robots == "Panda" and env.controller in _NUM_ACTIONS
    return is_lift and (env.image_size is None or env.show_objects)
