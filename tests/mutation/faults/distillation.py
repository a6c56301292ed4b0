"""Faults of on-policy distillation."""

from __future__ import annotations

from tests.mutation.fault import Fault

_ADVANTAGES = ("tests/unit/algorithms/advantages/test_reverse_kl.py",)
_LOSS = ("tests/unit/algorithms/losses/test_distillation.py",)
_TEACHER = ("tests/unit/workers/actor/test_text_teacher.py",)

_POLICY_TEACHER = ("tests/unit/workers/actor/test_policy_teacher.py",)
_CHECKS = ("tests/unit/config/checks/test_algorithm_checks.py",)

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
    Fault(
        "rlinf/workers/actor/policy_learner.py",
        "return reduce_to_level(samples.ref_logprobs[rows] - old_logprobs, executed, level)",
        "return reduce_to_level(old_logprobs - samples.ref_logprobs[rows], executed, level)",
        _POLICY_TEACHER,
        "a policy moves away from its teacher",
    ),
    Fault(
        "rlinf/workers/actor/policy_learner.py",
        "if samples.ref_logprobs is not None and self.algorithm.advantage.needs_reference:",
        "if samples.ref_logprobs is None and self.algorithm.advantage.needs_reference:",
        _POLICY_TEACHER,
        "tokens are credited with their whole action",
    ),
    Fault(
        "rlinf/workers/actor/policy_learner.py",
        "gap = logprobs - reference.to(logprobs.device)",
        "gap = reference.to(logprobs.device) - logprobs",
        _POLICY_TEACHER,
        "the divergence from the teacher has the wrong sign",
    ),
    Fault(
        "rlinf/workers/actor/policy_teacher.py",
        "            load_weights(Path(section.ckpt_path), model)\n",
        "            Path(section.ckpt_path)\n",
        _POLICY_TEACHER,
        "the teacher keeps random weights",
    ),
    Fault(
        "rlinf/workers/actor/policy_teacher.py",
        "found = compute_logprobs(self.engine, inputs, micro_batch_size=micro_batch_size)",
        "found = compute_logprobs(self.engine, inputs, micro_batch_size=micro_batch_size).flip(0)",
        _POLICY_TEACHER,
        "the teacher's scores are those of other samples",
    ),
    Fault(
        "rlinf/config/schema/frozen_policy.py",
        "replace(model, model_path=self.model_path, is_lora=False, lora_path=None)",
        "replace(model, model_path=self.model_path)",
        ("tests/unit/config/schema/test_frozen_policy.py",),
        "a teacher whose adapters are merged gets new ones",
    ),
    Fault(
        "rlinf/algorithms/steps.py",
        "samples.view(-1, num_chunk_steps, samples.shape[1]).permute(1, 2, 0).flatten(0, 1)",
        "samples.view(-1, num_chunk_steps, samples.shape[1]).permute(2, 1, 0).flatten(0, 1)",
        ("tests/unit/algorithms/test_steps.py",),
        "actions of a chunk are taken for later chunks",
    ),
    Fault(
        "rlinf/config/checks/algorithm_checks.py",
        "elif section.ckpt_path is None and not its_model.carries_weights:",
        "elif section.ckpt_path is None and its_model.carries_weights:",
        _CHECKS,
        "a teacher may have random weights",
    ),
    Fault(
        "rlinf/config/checks/algorithm_checks.py",
        "    if not algorithm.needs_reference:\n        check.problem(\n            path,",
        "    if algorithm.needs_reference:\n        check.problem(\n            path,",
        _CHECKS,
        "a teacher that no policy is compared with is accepted",
    ),
    Fault(
        "rlinf/workers/env/spaces.py",
        "None if teacher is None else teacher.model,",
        "None,",
        ("tests/unit/workers/env/test_spaces.py",),
        "the teacher's sizes are not filled in",
    ),
]
