"""What a policy says of a rank's samples, without gradients, a micro-batch at a time."""

from __future__ import annotations

import torch
from torch import nn

from rlinf.hybrid_engines.train.train_engine import Pass, TrainEngine
from rlinf.models.base_policy import PolicyEvaluation


def inputs_on_device(
    inputs: dict[str, torch.Tensor], rows: torch.Tensor, device: torch.device
) -> dict[str, torch.Tensor]:
    """Return some rows of a policy's inputs on a device.

    Args:
        inputs: Tensors [N, ...] on the host.
        rows: int64 [M], on the host.
        device: The device.
    """
    chosen = {name: tensor[rows] for name, tensor in inputs.items()}
    if device.type == "cuda":
        # From pinned memory they are copied while the device computes what came before.
        chosen = {name: tensor.pin_memory() for name, tensor in chosen.items()}
    return {name: tensor.to(device, non_blocking=True) for name, tensor in chosen.items()}


def compute_logprobs(engine: TrainEngine, inputs: dict[str, torch.Tensor], *, micro_batch_size: int) -> torch.Tensor:
    """Return float [N, C, A] log-probabilities of the actions that inputs of a policy hold, under an engine's policy.

    Args:
        engine: Holds the policy.
        inputs: Tensors [N, ...] on the host.
        micro_batch_size: Samples of a forward pass.
    """

    def logprobs(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        evaluation: PolicyEvaluation = model(forward_inputs=inputs_on_device(inputs, rows, engine.device))
        return evaluation.logprobs

    rows = torch.arange(len(next(iter(inputs.values()))))
    return torch.cat(engine.forward(torch.split(rows, micro_batch_size), Pass.whole(logprobs)))
