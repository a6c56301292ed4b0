"""The task ``pen`` of D4RL: Gymnasium-Robotics' hand, with episodes that end as they did when they were recorded."""

from __future__ import annotations

from typing import Any

from rlinf.envs.simulators.gymnasium_single import GymnasiumSingleEnv
from rlinf.envs.single_env import SingleStep

_HEIGHT = 26
"""Of the pen, in the observation: behind the 24 angles of the hand, and the pen's x and y."""
_DROPPED_METERS = 0.075


class PenSingleEnv(GymnasiumSingleEnv):
    """``AdroitHandPen-v1``, which has D4RL's hand, observations and rewards; a dropped pen ends the episode.

    So it was recorded (d4rl/hand_manipulation_suite/pen_v0.py); Gymnasium-Robotics lets the episode go on.
    """

    def step(self, action: Any) -> SingleStep:
        """See ``GymnasiumSingleEnv``."""
        obs, reward, terminated, truncated, success = super().step(action)
        return obs, reward, terminated or bool(obs[_HEIGHT] < _DROPPED_METERS), truncated, success
