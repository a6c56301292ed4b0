"""Faults of on-policy distillation."""

from __future__ import annotations

from tests.mutation.fault import Fault

_ADVANTAGES = ("tests/unit/algorithms/advantages/test_reverse_kl.py",)
_LOSS = ("tests/unit/algorithms/losses/test_distillation.py",)
_TEACHER = ("tests/unit/workers/actor/test_text_teacher.py",)

FAULTS: list[Fault] = [
    Fault(
        "rlinf/algorithms/advantages/reverse_kl.py",
        "torch.where(steps.loss_mask, -steps.kl,",
        "torch.where(steps.loss_mask, steps.kl,",
        _ADVANTAGES,
        "the policy moves away from the teacher",
    ),
    Fault(
        "rlinf/algorithms/losses/distillation.py",
        "-ratio * advantages, metrics",
        "-ratio.detach() * advantages, metrics",
        _LOSS,
        "the ratio has no gradient",
    ),
    Fault(
        "rlinf/algorithms/losses/distillation.py",
        '"actor_reverse_kl": -advantages',
        '"actor_reverse_kl": advantages',
        _LOSS,
        "the KL is logged with the wrong sign",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "return self.teacher.logprobs(batch)",
        "return self._evaluate(batch).logprobs",
        _TEACHER,
        "the policy is its own teacher",
    ),
    Fault(
        "rlinf/config/checks/text_checks.py",
        "if algorithm.teacher is not None and not algorithm.needs_reference:",
        "if algorithm.teacher is None and not algorithm.needs_reference:",
        _TEACHER,
        "a teacher that is not used is accepted",
    ),
]
