"""Faults of implicit Q-learning from images."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TESTS = ("tests/unit/workers/actor/test_iql_learner_images.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/workers/actor/iql_learner.py",
        "return replace(batch, inputs=inputs, next_inputs=next_inputs)",
        "return replace(batch, inputs=inputs)",
        _TESTS,
        "what follows is not shifted",
    ),
    Fault(
        "rlinf/models/control/iql_policy.py",
        "return self.encoder.augment(inputs, generator)",
        "return inputs",
        _TESTS,
        "images are not shifted",
    ),
]
