"""Where the time goes: named timers that add up seconds and counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ContextDecorator
from dataclasses import dataclass
from types import TracebackType

from rlinf.errors import MetricError


@dataclass(frozen=True, slots=True)
class TimerTotal:
    """What one tag has accumulated."""

    seconds: float
    """Sum over all measured blocks."""
    count: int
    """Number of measured blocks."""


class ScopedTimer(ContextDecorator):
    """Measures one block (or, as a decorator, each call) and reports its seconds, also when the block raises.

    Entering it again while it runs is allowed; each entry is measured on its own.

    Args:
        report: Called with the seconds of each finished block.
        clock: Seconds from any fixed point, never running backwards.
    """

    def __init__(self, report: Callable[[float], None], *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._report = report
        self._clock = clock
        # Entries are kept per thread: one decorated function may run in several threads at once.
        self._local = threading.local()

    def __enter__(self) -> ScopedTimer:
        """Start measuring."""
        starts: list[float] = self._local.__dict__.setdefault("starts", [])
        starts.append(self._clock())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop measuring and report."""
        self._report(self._clock() - self._local.starts.pop())


class Timers:
    """Seconds and counts by tag; safe to use from several threads.

    Args:
        clock: Seconds from any fixed point, never running backwards.

    Example:
        >>> timers = Timers()
        >>> with timers("rollout"):
        ...     pass
        >>> sorted(timers.pop())
        ['rollout']
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._totals: dict[str, TimerTotal] = {}

    def __call__(self, tag: str) -> ScopedTimer:
        """Return a timer for ``with timers(tag):`` or ``@timers(tag)``.

        Args:
            tag: What is measured; blocks of one tag add up.
        """
        return ScopedTimer(lambda seconds: self.add(tag, seconds), clock=self._clock)

    def add(self, tag: str, seconds: float) -> None:
        """Count a block that was measured elsewhere.

        Args:
            tag: What was measured.
            seconds: How long it took.
        """
        with self._lock:
            old = self._totals.get(tag, TimerTotal(0.0, 0))
            self._totals[tag] = TimerTotal(old.seconds + seconds, old.count + 1)

    def totals(self) -> dict[str, TimerTotal]:
        """Return seconds and count by tag, without forgetting them."""
        with self._lock:
            return dict(self._totals)

    def pop(self) -> dict[str, float]:
        """Return the accumulated seconds by tag and start again from zero; blocks still running count next time."""
        return {tag: total.seconds for tag, total in self.pop_totals().items()}

    def pop_tag(self, tag: str) -> float:
        """Return the accumulated seconds of one tag and start it again from zero.

        Raises:
            MetricError: No block of this tag has ended.
        """
        with self._lock:
            if tag not in self._totals:
                known = ", ".join(sorted(self._totals)) or "none"
                raise MetricError(f"Timer '{tag}' has measured nothing yet; timers that have: {known}.")
            return self._totals.pop(tag).seconds

    def pop_totals(self) -> dict[str, TimerTotal]:
        """Return seconds and count by tag and start again from zero."""
        with self._lock:
            totals, self._totals = self._totals, {}
        return totals
