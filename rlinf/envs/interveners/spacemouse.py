"""The intervener ``spacemouse``: a person acts while the device is pushed."""

from __future__ import annotations

from typing import Any

import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.intervention import SpaceMouseIntervenerConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.interveners.person import require_one_environment, twist_to_action
from rlinf.errors import EnvironmentFailure
from rlinf.utils.optional import require


class SpaceMouseIntervener:
    """Acts while the device is off its rest; its left button closes the gripper, its right one opens it.

    Args:
        cfg: Its keys.
        env: The environment's configuration.
        row: Which of the environments of its worker it drives; only the first can be.

    Raises:
        ConfigError: The worker holds several environments.
        EnvironmentFailure: No device answers.
        MissingPackageError: pyspacemouse is not installed.
    """

    state_names = ("gripper",)

    def __init__(self, cfg: SpaceMouseIntervenerConfig, *, env: EnvConfig, row: int) -> None:
        require_one_environment(row, cfg.intervener_type)
        self._device: Any = require(
            "pyspacemouse", install="pip install pyspacemouse", needed_by="the wrapper intervention (spacemouse)"
        )
        self.cfg, self.env = cfg, env
        self.gripper = 1.0
        if not self._device.open():
            raise EnvironmentFailure(
                "env.*.wrappers: intervention: no SpaceMouse answers. Plug it in, and give this user access to it."
            )

    def begin(self) -> None:
        """See ``Intervener``: an episode begins with the gripper open."""
        self.gripper = 1.0

    def act(self, situation: Situation) -> torch.Tensor | None:
        """See ``Intervener``."""
        state = self._device.read()
        # The device's x points right and its y away from the person, as the arm's -y and x do.
        motion = [state.y, -state.x, state.z, state.roll, state.pitch, -state.yaw]
        buttons = [bool(button) for button in state.buttons]
        left, right = buttons[0], buttons[-1]
        if max(abs(value) for value in motion) < self.cfg.dead_zone and not (left or right):
            return None
        if left != right:
            self.gripper = -1.0 if left else 1.0
        scaled = [value * self.cfg.sensitivity for value in motion]
        return twist_to_action(scaled, self.gripper, len(situation.action), cfg=self.cfg, env=self.env)

    def close(self) -> None:
        """See ``Intervener``: free the device."""
        self._device.close()
