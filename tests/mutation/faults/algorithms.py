"""Faults of advantages, losses and what they share."""

from __future__ import annotations

from tests.mutation.fault import Fault

FAULTS: list[Fault] = [
    Fault(
        "rlinf/algorithms/sac.py",
        "return -self.alpha * (mean_logprob",
        "return self.alpha * (mean_logprob",
        ("tests/unit/algorithms/test_sac.py",),
        "the temperature moves away from the target entropy",
    ),
]
