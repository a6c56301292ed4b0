"""Keys by which the operator says how an episode has ended; imports no torch."""

from __future__ import annotations

from typing import Any

from rlinf.config.schema.realworld import MarkedEnvConfig
from rlinf.utils.optional import require


class OperatorMarks:
    """What the operator has marked the present episode as, by keys of the keyboard of the robot's computer.

    Args:
        cfg: The environment's configuration; without ``success_key`` and ``failure_key`` nothing is ever marked.

    Raises:
        MissingPackageError: pynput is not installed.
    """

    def __init__(self, cfg: MarkedEnvConfig) -> None:
        self._meanings = {key: key == cfg.success_key for key in (cfg.success_key, cfg.failure_key) if key is not None}
        self._mark: bool | None = None
        self._listener: Any = None
        if self._meanings:
            keyboard: Any = require("pynput.keyboard", needed_by="env.*.success_key")
            self._listener = keyboard.Listener(on_press=self._press)
            self._listener.start()

    def begin(self) -> None:
        """Forget what was marked before an episode begins."""
        self._mark = None

    def judge(self, success: bool, reward: float) -> tuple[bool, float, bool]:
        """Let the operator's mark take the place of what was found.

        Args:
            success: What was found of the last action.
            reward: Its reward, 1 for success included.

        Returns:
            Success, reward, and whether the episode has ended.
        """
        mark, self._mark = self._mark, None
        if mark is None:
            return success, reward, success
        return mark, reward + float(mark) - float(success), True

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.stop()

    def _press(self, key: Any) -> None:
        name = getattr(key, "char", None) or getattr(key, "name", None)
        if name is not None and name.lower() in self._meanings:
            self._mark = self._meanings[name.lower()]
