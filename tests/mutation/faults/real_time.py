"""Faults of what makes policies answer in time: acting while they compute, and layers that are compiled."""

from __future__ import annotations

from tests.mutation.fault import Fault

CHUNKS = ("tests/unit/models/vla/test_real_time.py",)
WORKER = ("tests/unit/workers/env/test_env_worker_real_time.py",)
CHECKS = ("tests/unit/config/checks/test_vla_checks.py",)
COMPILED = ("tests/unit/hybrid_engines/test_inference_backends.py",)
ROLLOUTS = ("tests/unit/workers/rollout/test_rollout_worker.py",)
RUNS = ("tests/e2e/test_vla_runs.py",)

_REAL_TIME = "rlinf/models/vla/real_time.py"
_FLOW = "rlinf/models/vla/flow_vla.py"
_WORKER = "rlinf/workers/env/env_worker.py"
_ROLLOUT = "rlinf/workers/rollout/rollout_worker.py"
_BACKENDS = "rlinf/hybrid_engines/inference_backends.py"
_CHECKS = "rlinf/config/checks/vla_checks.py"

FAULTS: list[Fault] = [
    Fault(_REAL_TIME, "weights[:delay] = 1.0", "weights[:delay] = 0.0", CHUNKS, "what is executed is left free"),
    Fault(_REAL_TIME, "(planned - delay + 1)", "(planned - delay)", CHUNKS, "weights fall too late"),
    Fault(_REAL_TIME, " / math.expm1(1.0)", "", CHUNKS, "weights above 1"),
    Fault(_REAL_TIME, "weights[delay:planned] = falling", "weights[:planned] = 1.0", CHUNKS, "nothing may change"),
    Fault(_REAL_TIME, "start - time * plain", "start - plain", CHUNKS, "the flow's end is guessed as from noise"),
    Fault(_REAL_TIME, "ends.detach()) * before.weights", "ends.detach())", CHUNKS, "weights are left out"),
    Fault(
        _REAL_TIME,
        "(correction,) = torch.autograd.grad(ends, start, error)",
        "correction = error",
        CHUNKS,
        "how the end moves with the point is left out",
    ),
    Fault(_REAL_TIME, "- _guidance(time", "+ _guidance(time", CHUNKS, "led away"),
    Fault(_REAL_TIME, "(tau**2 + time**2) / (tau * time)", "time / tau", CHUNKS, "the variance is left out"),
    Fault(_REAL_TIME, "min(factor, bound)", "bound", CHUNKS, "the bound is always reached"),
    Fault(
        _FLOW,
        "self.inputs.of_actions(planned.to(self.device), obs)",
        "planned.to(self.device)",
        CHUNKS,
        "planned actions are not normalised",
    ),
    Fault(_FLOW, "weights[:, :size] = prefix_weights(", "weights[:] = prefix_weights(", CHUNKS, "padding leads"),
    Fault(
        _FLOW,
        "horizon=self.horizon, num_executed=self.cfg.num_action_chunks",
        "horizon=self.horizon, num_executed=0",
        CHUNKS,
        "what was not planned leads to 0",
    ),
    Fault(_FLOW, "before=self._planned_before(obs)", "before=None", CHUNKS, "what was planned is forgotten"),
    Fault(
        _FLOW,
        "to_actions(chain[:, -1, :, : self.cfg.action_dim], obs)",
        "to_actions(chain[:, -2, :, : self.cfg.action_dim], obs)",
        CHUNKS,
        "the plan is not quite denoised",
    ),
    Fault(_WORKER, "plan[:, executed:size]", "plan[:, :size]", WORKER, "actions are executed twice"),
    Fault(_WORKER, "plan[:, size : size + delay]", "plan[:, :delay]", WORKER, "old actions are executed meanwhile"),
    Fault(
        _WORKER, "PREVIOUS_ACTIONS: plan[:, size:]", "PREVIOUS_ACTIONS: plan[:, delay:]", WORKER, "tells another time"
    ),
    Fault(_WORKER, "if delay and not is_last:", "if delay:", WORKER, "acts on behind the end"),
    Fault(_WORKER, "executed = delay", "executed = 0", WORKER, "executes what is past"),
    Fault(_WORKER, "model.inference_delay is None or", "model.inference_delay != 0 or", WORKER, "waits for each chunk"),
    Fault(
        _ROLLOUT,
        "if self.cfg.actor.model.inference_delay is not None:",
        "if self.cfg.actor.model.inference_delay is None:",
        RUNS,
        "other policies are asked for plans",
    ),
    Fault(_CHECKS, "if delay >= size or", "if delay > size or", CHECKS, "a chunk that is old when it arrives"),
    Fault(_CHECKS, "size + delay > planned", "size + delay >= planned", CHECKS, "refuses the last action"),
    Fault(_CHECKS, "if evaluation.auto_reset:", "if False:", CHECKS, "new episodes begin with old actions"),
    Fault(
        _BACKENDS,
        'if cfg.enable_cuda_graph and policy.device.type != "cuda":',
        "if False:",
        COMPILED,
        "graphs without a GPU fail later",
    ),
    Fault(_BACKENDS, "not _has_compiler():", "False:", COMPILED, "a missing compiler fails later"),
    Fault(_BACKENDS, "if not (cfg.enable_torch_compile or cfg.enable_cuda_graph):", "if False:", COMPILED, "always"),
    Fault(
        _BACKENDS,
        '"inductor" if cfg.enable_torch_compile else "cudagraphs"',
        '"cudagraphs" if cfg.enable_cuda_graph else "inductor"',
        COMPILED,
        "graphs of what is not compiled",
    ),
    Fault(
        _BACKENDS,
        '"reduce-overhead" if cfg.enable_torch_compile and cfg.enable_cuda_graph else None',
        "None",
        COMPILED,
        "no graphs of what is compiled",
    ),
    Fault(_BACKENDS, "in policy.recompute_units():", "in policy.recompute_units()[:1]:", COMPILED, "one layer alone"),
    Fault(_ROLLOUT, "        compile_layers(self.model, rollout)\n", "", ROLLOUTS, "nothing is compiled"),
    Fault(
        _CHECKS,
        "elif rollout.enable_cuda_graph and rollout.enable_offload:",
        "elif rollout.enable_torch_compile and rollout.enable_offload:",
        CHECKS,
        "graphs lose their weights",
    ),
]
