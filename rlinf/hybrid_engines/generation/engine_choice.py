"""Which of several engines a request goes to."""

from __future__ import annotations

from collections.abc import Sequence

MARGIN = 2
"""A request leaves its group's engine when that has this many more in flight than another, and half as many as engines
have on average: prefix caches stay warm, and no engine is left idle. Loads that go up and down by chance move few turns
of an episode: without the second part, a fifth of those on busy engines."""


def choose_engine(load: Sequence[int], home: int) -> int:
    """Return the engine that a request goes to: its home, unless that has clearly more in flight than another.

    Args:
        load: Requests in flight on each engine.
        home: The engine that has the prefix.

    Example:
        >>> choose_engine([3, 2], 0), choose_engine([5, 2], 0)
        (0, 1)
    """
    # From home on, so that requests which leave one engine do not all go to the same.
    around = [(home + step) % len(load) for step in range(len(load))]
    idlest = min(around, key=lambda rank: load[rank])
    margin = MARGIN + sum(load) // (2 * len(load))
    return idlest if load[home] - load[idlest] >= margin else home
