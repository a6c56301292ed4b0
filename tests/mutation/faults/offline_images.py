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
    Fault(
        "rlinf/models/control/flow_policy.py",
        "ImageEncoder(cfg) if cfg.image_keys else StateEncoder(cfg)",
        "StateEncoder(cfg)",
        ("tests/unit/models/control/test_flow_images.py",),
        "a flow policy does not see its cameras",
    ),
    Fault(
        "rlinf/config/checks/runner_checks.py",
        "    if isinstance(model, FlowPolicyConfig) and not model.image_keys:",
        "    if isinstance(model, FlowPolicyConfig):",
        ("tests/unit/models/control/test_flow_images.py",),
        "cameras of flow policies are not checked",
    ),
    Fault(
        "rlinf/workers/env/spaces.py",
        "(model.image_size,) if isinstance(model, CameraPolicyConfig) and model.image_keys else ()",
        "(model.image_size,) if isinstance(model, CameraPolicyConfig) else ()",
        ("tests/unit/workers/env/test_spaces.py",),
        "a flow on states waits for a size of images",
    ),
]
