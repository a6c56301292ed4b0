"""The beat in which a robot gets its actions; imports no torch."""

from __future__ import annotations

from rlinf.envs.realworld.client import Clock
from rlinf.utils.logging import get_logger


class Pace:
    """Lets time pass until the next action is due, and says once that actions come too late.

    Args:
        clock: The robot's time.
        frequency_hz: Actions per second.
        robot: Its address, for the message.
    """

    def __init__(self, clock: Clock, *, frequency_hz: float, robot: str) -> None:
        self.clock, self.frequency_hz, self.robot = clock, frequency_hz, robot
        self._next_tick = 0.0
        self._is_late = False

    def begin(self) -> None:
        """An episode begins now."""
        self._next_tick = self.clock.now()

    def wait(self) -> None:
        """Let time pass until the next action is due, the time that the policy took included."""
        period = 1.0 / self.frequency_hz
        self._next_tick += period
        remaining = self._next_tick - self.clock.now()
        if remaining < 0:
            if not self._is_late:
                get_logger(__name__).warning(
                    "The robot %s does not get env.*.control_frequency_hz=%s actions per second: inference takes too "
                    "long by %.3f s.", self.robot, self.frequency_hz, -remaining
                )  # fmt: skip
            self._is_late = True
            # The robot gets its time for this action in any case.
            self._next_tick, remaining = self.clock.now() + period, period
        self.clock.sleep(remaining)
