"""Faults of small policies that steer frozen flows or act next to them."""

from __future__ import annotations

from tests.mutation.fault import Fault

SOURCE = "rlinf/models/vla/steered_policy.py"
STEERED = ("tests/unit/models/vla/test_steered_policy.py",)
CHECKS = ("tests/unit/config/checks/test_vla_checks.py",)
REFINER = "rlinf/models/vla/refined_policy.py"
REFINED = ("tests/unit/models/vla/test_refined_policy.py",)
RLT = ("tests/unit/algorithms/test_rlt.py",)
RULES = "rlinf/config/checks/vla_checks.py"

FAULTS: list[Fault] = [
    Fault(SOURCE, "self.flow = flow.requires_grad_(False)", "self.flow = flow", STEERED, "the flow is trained"),
    Fault(
        SOURCE,
        "noise.expand(-1, self.flow.horizon, -1)",
        "torch.zeros_like(noise).expand(-1, self.flow.horizon, -1)",
        STEERED,
        "the flow does not start from the noise",
    ),
    Fault(SOURCE, "action_scale=keys.noise_scale,", "", STEERED, "noise has no scale"),
    Fault(
        SOURCE,
        "states.normalize(states_of(obs, len(states)).float().cpu())",
        "states_of(obs, len(states)).float().cpu()",
        STEERED,
        "states are not normalised",
    ),
    Fault(SOURCE, 'self.cfg.camera_size, "bilinear")', 'self.cfg.camera_size, "bicubic")', STEERED, "another kernel"),
    Fault(SOURCE, "tensor.detach().clone()", "tensor.detach()", STEERED, "first weights change with the model"),
    Fault(
        "rlinf/models/vla/small_policies.py",
        "if not cfg.add_q_head:",
        "if True:",
        STEERED,
        "no flow is steered",
    ),
    Fault(SOURCE, "num_q_heads=cfg.num_q_heads,", "", STEERED, "the number of critics is ignored"),
    Fault(SOURCE, "random_shift=keys.random_shift,", "", STEERED, "images are not shifted"),
    Fault(SOURCE, "initial_log_std=keys.initial_log_std,", "", STEERED, "the first spread is ignored"),
    Fault(SOURCE, "image_keys=keys.image_keys,", "", STEERED, "cameras are ignored"),
    Fault(
        SOURCE,
        "return [*super().shard_units(), *self.flow.shard_units()]",
        "return [*super().shard_units()]",
        STEERED,
        "the flow is not sharded",
    ),
    Fault(
        SOURCE,
        "return super().shard_units()",
        "return self.shard_units()",
        STEERED,
        "what has no backward pass is recomputed",
    ),
    Fault(
        "rlinf/models/vla/flow_vla.py",
        'self.sample(prefix, record["state"], start, None)',
        'self.sample(self.prefix(record), record["state"], torch.zeros_like(start), None)',
        STEERED,
        "flows forget where they start",
    ),
    Fault(
        "rlinf/models/policy_conformance.py",
        "shape = tuple(decided.shape)",
        "pass",
        STEERED,
        "log-probabilities of noise are refused",
    ),
    Fault(
        "toolkits/vla/export_policy.py",
        "    if model.add_q_head:",
        "    if False:",
        STEERED,
        "a policy that has no published layout is exported",
    ),
    Fault(RULES, "if not isinstance(loss, SACLossConfig):", "if False:", CHECKS, "TD3 steers flows"),
    Fault(
        RULES,
        'check.unused(model, ("noise_policy", "refine_actions", "action_policy"), path,',
        "check.unused(model, (), path,",
        CHECKS,
        "keys of a policy that is not there are accepted",
    ),
    Fault(
        RULES,
        "if any(isinstance(wrapper, InterventionConfig) for wrapper in cfg.env.train.wrappers):",
        "if False:",
        CHECKS,
        "operators steer",
    ),
    Fault(RULES, "if not -5 < keys.initial_log_std < 2:", "if False:", CHECKS, "any spread is accepted"),
    Fault(
        RULES,
        "check.unused(model, unused, path,",
        "check.unused(model, (), path,",
        CHECKS,
        "keys of training a frozen flow are accepted",
    ),
    Fault(REFINER, "self.flow = flow.requires_grad_(False)", "self.flow = flow", REFINED, "the flow is trained"),
    Fault(
        REFINER, "return self.flow.inputs.to_actions(actions, obs), output", "return actions, output", REFINED, "units"
    ),
    Fault(
        REFINER,
        "self.flow.inputs.of_actions(actions.to(self.device), obs)",
        "actions",
        REFINED,
        "actions of others are not normalised",
    ),
    Fault(REFINER, "self.cfg.action_scale * action - inputs[PROPOSAL]", "action - inputs[PROPOSAL]", REFINED, "scale"),
    Fault(REFINER, "inputs[PROPOSAL].flatten(1) * inputs[KEPT]", "inputs[PROPOSAL].flatten(1)", REFINED, "no dropout"),
    Fault(REFINER, ">= self.dropout", ">= 0.0", REFINED, "nothing is hidden"),
    Fault(REFINER, "action_scale=keys.action_scale,", "", REFINED, "actions have no scale"),
    Fault(REFINER, '"features": flow.features(prefix),', '"features": 0 * prefix.mean(),', REFINED, "no features"),
    Fault(
        "rlinf/algorithms/rlt.py",
        "self.cfg.bc_weight * distance.sum()",
        "distance.sum()",
        RLT,
        "the distance has no weight",
    ),
    Fault("rlinf/algorithms/rlt.py", "self.cfg.q_weight * climb", "climb", RLT, "the value has no weight"),
    Fault(
        RULES,
        "if isinstance(loss, RLTLossConfig) and not isinstance(model, FlowVLAConfig):",
        "if False:",
        CHECKS,
        "a model without proposals is accepted",
    ),
    Fault(RULES, "if not isinstance(loss, RLTLossConfig):", "if False:", CHECKS, "SAC refines"),
]
