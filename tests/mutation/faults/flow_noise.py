"""Faults in the noise, the starts and the values of vision-language-action policies with flows."""

from __future__ import annotations

from tests.mutation.fault import Fault

NOISE = ("tests/unit/models/vla/test_step_noise.py",)
DRAWS = ("tests/unit/models/test_draws.py",)
CHECKS = ("tests/unit/config/checks/test_vla_checks.py",)
_FLOW = "rlinf/models/vla/flow_vla.py"
_STEP = "rlinf/models/vla/step_noise.py"
_DRAWS = "rlinf/models/draws.py"
_CHECKS = "rlinf/config/checks/vla_checks.py"

FAULTS: list[Fault] = [
    Fault(_STEP, "low + 0.5 * (high - low) * (torch.tanh(raw) + 1.0)", "low + raw.exp()", NOISE, "noise has no bound"),
    Fault(
        _STEP, "output[:, :, : self.num_actions]", "output[:, :, -self.num_actions :]", NOISE, "noise of other actions"
    ),
    Fault(_STEP, "(output[:1, 0])[0, steps]", "(output[:1, 0])[0, steps - 1]", NOISE, "noise of the step before"),
    Fault(
        _FLOW,
        "reached, mean, log_std)",
        "reached, mean, 2 * log_std)",
        NOISE,
        "rollouts report other log-probabilities",
    ),
    Fault(_FLOW, "is_noisy = (step_ids == step)", "is_noisy = (step_ids <= step)", NOISE, "later steps are noisy, too"),
    Fault(_FLOW, "torch.where(is_noisy, logprob, 0.0)", "logprob", NOISE, "calm steps have log-probabilities"),
    Fault(
        _FLOW,
        "ids.unsqueeze(1) + torch.arange(2,",
        "0 * ids.unsqueeze(1) + torch.arange(2,",
        NOISE,
        "the first step is kept",
    ),
    Fault(
        _FLOW,
        "return forward_inputs[STEP_IDS].unsqueeze(1)",
        "return 0 * forward_inputs[STEP_IDS].unsqueeze(1)",
        NOISE,
        "training takes the first step",
    ),
    Fault(_FLOW, "self.cfg.num_steps - self.cfg.ignore_last", "self.cfg.num_steps", NOISE, "the last step is chosen"),
    Fault(_FLOW, "sums / (self.cfg.num_steps + 1)", "sums / self.cfg.num_steps", NOISE, "the start is not counted"),
    Fault(
        _FLOW,
        'if self.cfg.value_input == "expert_mean" else',
        'if self.cfg.value_input != "expert_mean" else',
        NOISE,
        "values read other actions",
    ),
    Fault(
        _FLOW,
        "points = torch.cat([x, torch.zeros_like(x[:, :1])], 1)",
        "points = torch.cat([x, x[:, :1]], 1)",
        NOISE,
        "values see noise",
    ),
    Fault(
        _FLOW,
        "features.detach() if self.cfg.value_detach else features",
        "features",
        NOISE,
        "values train what is below",
    ),
    Fault(
        _FLOW,
        'self.cfg.eval_start == "normal" and',
        'self.cfg.eval_start == "zeros" and',
        NOISE,
        "evaluation starts elsewhere",
    ),
    Fault(_FLOW, '"noise.head.": LAST_NOISE_LAYER', '"noise.head.": ""', NOISE, "noise starts at 0 in all layers"),
    Fault(
        _DRAWS,
        "whole if self.shared is self else whole[self.slots]",
        "whole[: len(self.slots)]",
        DRAWS,
        "all parts are the first",
    ),
    Fault(
        _DRAWS,
        "self.manual_seed(shared_seed if is_whole else seed)",
        "self.manual_seed(shared_seed)",
        DRAWS,
        "ranks explore alike",
    ),
    Fault(
        _DRAWS,
        "(probabilities / races).argmax(-1)",
        "(probabilities * races).argmax(-1)",
        DRAWS,
        "parts choose otherwise",
    ),
    Fault(
        _CHECKS,
        "model.noise_range[0] >= model.noise_range[1]",
        "model.noise_range[0] == 0",
        CHECKS,
        "bounds in any order",
    ),
    Fault(
        _CHECKS,
        "model.ignore_last and model.num_steps == 1",
        "model.num_steps == 0",
        CHECKS,
        "no step is left for noise",
    ),
]
