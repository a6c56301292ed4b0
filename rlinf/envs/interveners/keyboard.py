"""The intervener ``keyboard``: a person acts while keys are held."""

from __future__ import annotations

from typing import Any

import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.intervention import KEYBOARD_KEYS, KeyboardIntervenerConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.interveners.person import require_one_environment, twist_to_action
from rlinf.utils.optional import require

_AXES = {"w": (0, 1), "s": (0, -1), "a": (1, 1), "d": (1, -1), "r": (2, 1), "f": (2, -1)}
_AXES |= {"i": (3, 1), "k": (3, -1), "j": (4, 1), "l": (4, -1), "u": (5, 1), "o": (5, -1)}
"""Key to (axis of the motion, direction)."""
_CLOSE, _OPEN = "c", "v"


class KeyboardIntervener:
    """Acts while one of its keys is held; ``c`` closes the gripper and ``v`` opens it, and it stays so.

    Args:
        cfg: Its keys.
        env: The environment's configuration.
        row: Which of the environments of its worker it drives; only the first can be.

    Raises:
        ConfigError: The worker holds several environments.
        MissingPackageError: pynput is not installed.
    """

    state_names = ("gripper",)

    def __init__(self, cfg: KeyboardIntervenerConfig, *, env: EnvConfig, row: int) -> None:
        require_one_environment(row, cfg.intervener_type)
        keyboard: Any = require("pynput.keyboard", needed_by="the wrapper intervention (keyboard)")
        self.cfg, self.env = cfg, env
        self.held: set[str] = set()
        self.gripper = 1.0
        self._listener = keyboard.Listener(on_press=self._press, on_release=self._release)
        self._listener.start()

    def begin(self) -> None:
        """See ``Intervener``: an episode begins with the gripper open."""
        self.gripper = 1.0

    def act(self, situation: Situation) -> torch.Tensor | None:
        """See ``Intervener``."""
        held = set(self.held)  # the listener's thread changes the other one
        if not held.intersection(KEYBOARD_KEYS):
            return None
        motion = [0.0] * 6
        for key in held & _AXES.keys():
            axis, direction = _AXES[key]
            motion[axis] += direction * self.cfg.speed
        return twist_to_action(motion, self.gripper, len(situation.action), cfg=self.cfg, env=self.env)

    def close(self) -> None:
        """See ``Intervener``: stop listening."""
        self._listener.stop()

    def _press(self, key: Any) -> None:
        name = getattr(key, "char", None)
        if name is None:
            return
        self.held.add(name.lower())
        if name.lower() in {_CLOSE, _OPEN}:
            self.gripper = 1.0 if name.lower() == _OPEN else -1.0

    def _release(self, key: Any) -> None:
        name = getattr(key, "char", None)
        if name is not None:
            self.held.discard(name.lower())
