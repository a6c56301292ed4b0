"""The optimizer's share of a rank: float32 masters of its part of the gradient buffers, under our own AdamW.

Megatron-Core's DDP lays parameters and gradients out in buffers and reduces each rank's share of the gradients to it.
Its ``DistributedOptimizer`` is not used: without Apex or TransformerEngine its state cannot be loaded, and its names
depend on the layout. AdamW works element by element, so the shares are tensors like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from torch import nn

from rlinf.config.schema.train import OptimConfig
from rlinf.hybrid_engines.train.megatron.stage import MegatronLM
from rlinf.hybrid_engines.train.optimizer import ScheduledOptimizer
from rlinf.models.fused.fusion_rules import is_split


@dataclass(frozen=True, slots=True)
class Share:
    """Consecutive elements of a parameter, of which this rank keeps the master weights and moments.

    Attributes:
        name: Fused name of the parameter.
        parameter: Of the model.
        begin: First element.
        end: The element after the last.
        weight: The elements in the parameter's buffer.
        grad: Their reduced gradient, in its buffer.
        master: In float32; shares memory with ``weight`` where that is float32, too.
        counts: Whether it counts in the norm of the gradient: of copies, one does.
    """

    name: str
    parameter: nn.Parameter
    begin: int
    end: int
    weight: torch.Tensor
    grad: torch.Tensor
    master: nn.Parameter
    counts: bool


class ShardedOptimizer:
    """AdamW on this rank's shares of all parameters.

    Args:
        chunks: The rank's parts of the model, with reduced gradients.
        cfg: The ``actor.optim`` section.

    Attributes:
        num_updates: Steps that were not skipped.
    """

    def __init__(self, chunks: list[DistributedDataParallel], cfg: OptimConfig) -> None:
        self.chunks = chunks
        self.shares = [share for chunk in chunks for share in _shares(chunk)]
        # A rank whose share of a group is empty has the group nevertheless.
        groups: dict[str, list[nn.Parameter]] = {"policy": [nn.Parameter(torch.zeros(0))]}
        if chunks[0].module.has_value_head:
            groups["value"] = [nn.Parameter(torch.zeros(0))]
        for share in self.shares:
            groups["value" if share.name.startswith("value_head.") else "policy"].append(share.master)
        self.num_updates = 0
        self.scheduled = ScheduledOptimizer(
            groups,
            cfg,
            base_lr={"value": cfg.value_lr or cfg.lr},
            critic_warmup_steps=cfg.critic_warmup_steps,
            fused=True,
        )

    def step(self, scale: float, *, counts_anyway: bool) -> tuple[float, bool]:
        """Clip the gradient, update masters and weights, and clear the gradient.

        Args:
            scale: The gradient is that of the loss times this.
            counts_anyway: Whether a step without a finite gradient is counted.

        Returns:
            The norm before clipping, and whether it was finite; else no weight has changed.
        """
        norm = self._norm() / scale
        finite = math.isfinite(norm)
        if finite:
            factor = min(1.0, self.scheduled.cfg.clip_grad / (norm + 1e-6)) / scale
            for share in self.shares:
                share.master.grad = share.grad * factor
        if finite or counts_anyway:
            self.scheduled.step(skip=not finite)
        if finite:
            self.num_updates += 1
            self._publish()
        self.zero_grad()
        return norm, finite

    def zero_grad(self) -> None:
        """Clear the gradients of masters and buffers."""
        for share in self.shares:
            share.master.grad = None
        for chunk in self.chunks:
            chunk.zero_grad_buffer()

    @torch.no_grad()
    def whole(self, of: Callable[[Share], torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return what is kept of the shares of each parameter, put together over the ranks that have them.

        Args:
            of: Returns float32 [end - begin] of a share: its master, gradient or a moment.

        Returns:
            Tensors in the parameters' shapes, by fused name, on every rank that has the parameter.
        """
        own: dict[str, list[Share]] = {}
        for share in self.shares:
            own.setdefault(share.name, []).append(share)
        result = {}
        for name, parameter, group in self._parameters():
            full = torch.zeros(parameter.shape, device=parameter.device)
            for share in own.get(name, ()):
                full.view(-1)[share.begin : share.end] = of(share).detach()
            # Every byte comes from one rank: their sum is exact.
            dist.all_reduce(full.view(-1).view(torch.uint8), group=group)
            result[name] = full
        return result

    @torch.no_grad()
    def restore(self, weights: Mapping[str, torch.Tensor], moments: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Set masters, weights and moments.

        Args:
            weights: float32, by fused name.
            moments: ``exp_avg`` and ``exp_avg_sq``, each by fused name; the count of updates must be set already.
        """
        for share in self.shares:
            part = slice(share.begin, share.end)
            share.master.copy_(weights[share.name].view(-1)[part])
            # Each parameter counts for itself: a tensor that several share would count every one of them.
            entry = {"step": torch.tensor(float(self.num_updates), device=share.master.device)}
            for moment, values in moments.items():
                entry[moment] = values[share.name].view(-1)[part].to(share.master.device, copy=True)
            self.scheduled.adam.state[share.master] = entry
        self._publish()

    def moment(self, share: Share, *, name: str) -> torch.Tensor:
        """Return a moment of a share, zero before the first update."""
        found = self.scheduled.adam.state.get(share.master)
        return torch.zeros_like(share.master) if not found else found[name]

    @torch.no_grad()
    def take_weights(self) -> None:
        """Set the masters to the weights, after those have been loaded."""
        for share in self.shares:
            if share.master.data_ptr() != share.weight.data_ptr():
                share.master.copy_(share.weight)

    def state_tensors(self) -> Iterator[torch.Tensor]:
        """Yield masters and moments, which may share memory with the model's buffers."""
        for share in self.shares:
            yield share.master.data
        for entry in self.scheduled.adam.state.values():
            yield from (value for value in entry.values() if value.ndim > 0)

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter, dist.ProcessGroup]]:
        """Yield all parameters, in the same order on the ranks of each group."""
        for chunk in self.chunks:
            names = {parameter: name for name, parameter in chunk.module.named_fused()}
            for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers):
                for parameter in buffer.params:
                    yield names[parameter], parameter, buffer.data_parallel_group

    def _norm(self) -> float:
        """Return the norm of the gradient of the whole model, the same on every rank."""
        squares = [share.grad.double().square().sum() for share in self.shares if share.counts]
        device = self.shares[0].grad.device if self.shares else torch.device("cpu")
        total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64, device=device)
        dist.all_reduce(total)
        return math.sqrt(float(total)) if math.isfinite(float(total)) else float(total)

    @torch.no_grad()
    def _publish(self) -> None:
        """Give every rank the weights that follow from all masters."""
        for share in self.shares:
            if share.master.data_ptr() != share.weight.data_ptr():
                share.weight.copy_(share.master)
        for chunk in self.chunks:
            chunk.start_param_sync(force_sync=True)


def _shares(chunk: DistributedDataParallel) -> Iterator[Share]:
    """Yield this rank's shares of the parameters of a part of the model."""
    model: MegatronLM = chunk.module
    names = {parameter: name for name, parameter in model.named_fused()}
    for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers):
        group = buffer.data_parallel_group
        for bucket in buffer.buckets:
            size = bucket.grad_data.numel() // group.size()
            first = bucket.offset + group.rank() * size
            for parameter in bucket.params_list:
                start, end, _ = buffer.param_index_map[parameter]
                low, high = max(start, first), min(end, first + size)
                if low >= high:
                    continue
                weight = buffer.param_data[low:high]
                yield Share(
                    name=names[parameter],
                    parameter=parameter,
                    begin=low - start,
                    end=high - start,
                    weight=weight,
                    grad=buffer.grad_data[low:high],
                    master=nn.Parameter(weight.detach() if weight.dtype == torch.float32 else weight.detach().float()),
                    counts=_counts(model, names[parameter], parameter),
                )


def _counts(model: MegatronLM, name: str, parameter: nn.Parameter) -> bool:
    """Return whether a parameter is no copy of another rank's: of one that another stage or tensor rank has, too."""
    if name == "head.weight" and model.share_embeddings_and_output_weights:
        return False
    is_expert = not getattr(parameter, "allreduce", True)
    return is_expert or is_split(name) or dist.get_rank(model.groups.tp) == 0
