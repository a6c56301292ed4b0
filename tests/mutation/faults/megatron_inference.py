"""Faults of inference ranks that are spread as the actor is, and of engines without an optimizer."""

from __future__ import annotations

from tests.mutation.fault import Fault

LOGPROBS = ("tests/unit/workers/inference/test_megatron_logprobs.py",)
GROUPS = ("tests/unit/config/checks/test_inference_checks.py",)
_ENGINE = "rlinf/hybrid_engines/train/megatron/engine.py"
_FSDP = "rlinf/hybrid_engines/train/fsdp.py"
_WORKER = "rlinf/workers/inference/logprob_worker.py"
_CHECKS = "rlinf/config/checks/inference_checks.py"

FAULTS: list[Fault] = [
    Fault(
        _ENGINE,
        ".to(device).requires_grad_(self.trains) for",
        ".to(device) for",
        LOGPROBS,
        "ranks that do not train have memory for gradients",
    ),
    Fault(
        _ENGINE,
        "yield from (parameter.data for parameter in chunk.parameters())",
        "yield from ()",
        LOGPROBS,
        "weights of ranks that do not train stay on the device",
    ),
    Fault(
        _ENGINE,
        "optim=actor.optim if trains else None,",
        "optim=actor.optim,",
        LOGPROBS,
        "an engine that does not train has an optimizer nevertheless",
    ),
    Fault(
        _FSDP,
        "model if trains else model.requires_grad_(False),",
        "model,",
        LOGPROBS,
        "parameters that are not trained require a gradient under FSDP2",
    ),
    Fault(
        _FSDP,
        "        self._require_training()\n        chosen = self.optimizers[optimizer]\n",
        "        chosen = self.optimizers[optimizer]\n",
        LOGPROBS,
        "a step without an optimizer does not say why it fails",
    ),
    Fault(
        _WORKER,
        "            trains=False,\n",
        "",
        LOGPROBS,
        "the inference group has optimizers",
    ),
    Fault(
        _WORKER,
        "rank=self._rank if section.shard_model else 0,",
        "rank=self._rank,",
        LOGPROBS,
        "a rank that holds the whole model takes itself for one of several",
    ),
    Fault(
        _CHECKS,
        "    needed = sizes.replica_size * sizes.expert_model_parallel_size\n",
        "    needed = sizes.replica_size\n",
        GROUPS,
        "fewer inference ranks than experts are spread over are accepted",
    ),
    Fault(
        _CHECKS,
        "elif ranks is not None and ranks % needed and section.shard_model:",
        "elif ranks is not None and ranks < needed and section.shard_model:",
        GROUPS,
        "inference ranks that are not whole replicas are accepted",
    ),
]
