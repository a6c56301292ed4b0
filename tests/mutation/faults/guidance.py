"""Faults of policies of which good actions are requested, and of the labels that they learn from."""

from __future__ import annotations

from tests.mutation.fault import Fault

GUIDANCE = ("tests/unit/models/vla/test_guidance.py",)
FRAMES = ("tests/unit/workers/actor/test_labelled_frames.py",)
CHECKS = ("tests/unit/config/checks/test_vla_checks.py",)

_GUIDANCE = "rlinf/models/vla/guidance.py"
_FLOW = "rlinf/models/vla/flow_vla.py"
_STREAM = "rlinf/data/frames.py"
_LEARNER = "rlinf/workers/actor/supervised_frames.py"
_CHECKS = "rlinf/config/checks/vla_checks.py"

FAULTS: list[Fault] = [
    Fault(
        _GUIDANCE, "draws >= cfg.unconditional_prob", "draws < cfg.unconditional_prob", GUIDANCE, "the rest is chosen"
    ),
    Fault(_GUIDANCE, "kept & is_positive if", "kept if", GUIDANCE, "negative frames are learned with their word"),
    Fault(_GUIDANCE, "'positive' if is_positive else 'negative'", "'positive'", GUIDANCE, "all frames are good"),
    Fault(_GUIDANCE, 'cfg.type == "positive")', "True)", GUIDANCE, "good actions, whatever was requested"),
    Fault(
        _GUIDANCE,
        "torch.lerp(unconditional, conditional, scale)",
        "torch.lerp(conditional, unconditional, scale)",
        GUIDANCE,
        "guidance leads the other way",
    ),
    Fault(
        _FLOW,
        "self.inputs.record(requesting(obs, guidance), self.device)",
        "self.inputs.record(obs, self.device)",
        GUIDANCE,
        "asks nothing",
    ),
    Fault(
        _FLOW,
        "plain = self.inputs.record(obs, self.device)",
        "plain = record",
        GUIDANCE,
        "compares a prompt with itself",
    ),
    Fault(_FLOW, "torch.cat([x, x])", "torch.cat([x, x * 0])", GUIDANCE, "velocities of different points are compared"),
    Fault(
        _FLOW,
        "self.cfg.guidance.scale != 1.0",
        "self.cfg.guidance.scale > 1.0",
        GUIDANCE,
        "scales below 1 have no effect",
    ),
    Fault(
        _STREAM,
        "bool(self._labels[s][f])",
        "bool(self._labels[0][f])",
        FRAMES,
        "labels are those of the first data set",
    ),
    Fault(
        _LEARNER,
        "generator=generator)[rows]",
        "generator=generator)[: rows.stop - rows.start]",
        FRAMES,
        "draws by rank",
    ),
    Fault(
        _LEARNER,
        'derive_seed(self.actor.seed, "actor", "guidance", number)',
        'derive_seed(self.actor.seed, "actor", "guidance")',
        FRAMES,
        "the same rows of every batch are chosen",
    ),
    Fault(_LEARNER, "if is_said else task", "if not is_said else task", FRAMES, "the others say their label"),
    Fault(
        _LEARNER,
        '"positive_frames": metric_pair(positive.sum()',
        '"positive_frames": metric_pair(said.sum()',
        FRAMES,
        "the wrong share",
    ),
    Fault(
        _CHECKS,
        "if guidance.scale != 1.0 and (learned or",
        "if guidance.scale != 1.0 and (learned and",
        CHECKS,
        "rollouts are led",
    ),
    Fault(
        _CHECKS,
        'if guidance.type == "negative" and',
        'if guidance.type == "positive" and',
        CHECKS,
        "the known word is refused",
    ),
    Fault(_CHECKS, "if has_labels and not (", "if has_labels and (", CHECKS, "labels for those who learn none"),
]
