"""The FSDP2 training engine: one or many ranks, CPU (gloo) or CUDA (NCCL), sharded or replicated."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint

from rlinf.algorithms.types import add_metrics
from rlinf.config.schema.base import Precision
from rlinf.config.schema.optim import AdamWConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.errors import ConfigError, NumericalError, WeightSyncError
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.hybrid_engines.train import state
from rlinf.hybrid_engines.train.loss_scale import LossScaler
from rlinf.hybrid_engines.train.optimizer import ScheduledOptimizer, build_optimizers
from rlinf.hybrid_engines.train.owners import choose_owners, gather_to
from rlinf.hybrid_engines.train.process_group import join_process_group, leave_process_group
from rlinf.hybrid_engines.train.saver import CheckpointSaver
from rlinf.hybrid_engines.train.train_engine import BatchT, Loss, MetricSums, Pass, TrainEngine, WeightEntry
from rlinf.models.language.causal_lm import CausalLM
from rlinf.models.language.language_model import LanguageModel
from rlinf.models.materialize import materialize
from rlinf.models.trainable import TrainableModel, WeightForm
from rlinf.placement.parallel import ParallelLayout
from rlinf.telemetry.trace import traced


class FSDPEngine(TrainEngine):
    """Trains a policy with fp32 master weights, sharded by ``fully_shard`` or replicated (``no_shard``).

    Args:
        model: The policy on the CPU, with equal weights on every rank; or on device ``meta``, see ``materialize``.
        optim: The ``actor.optim`` section; None for a model that is not trained here.
        critic_optim: The ``actor.critic_optim`` section; None takes ``optim`` for critics too.
        fsdp: The ``actor.fsdp_config`` section.
        precision: Compute precision unless ``fsdp.mixed_precision`` says otherwise.
        device: Where to train.
        rank: Number of this process.
        world_size: Number of processes; ``fsdp.context_parallel_size`` of them share each data-parallel rank's tokens.

    Raises:
        ConfigError: The processes or the model cannot share tokens.
    """

    @classmethod
    def of(
        cls,
        model: TrainableModel,
        actor: ActorConfig,
        *,
        device: torch.device,
        rank: int,
        world_size: int,
        trains: bool = True,
    ) -> FSDPEngine:
        """See ``TrainEngine``."""
        return cls(
            model if trains else model.requires_grad_(False),
            optim=actor.optim if trains else None,
            critic_optim=actor.critic_optim,
            fsdp=actor.fsdp_config,
            precision=actor.model.precision,
            device=device,
            rank=rank,
            world_size=world_size,
        )

    def __init__(
        self,
        model: TrainableModel,
        *,
        optim: OptimConfig | None,
        critic_optim: AdamWConfig | None = None,
        fsdp: FSDPConfig,
        precision: Precision,
        device: torch.device,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        join_process_group(device, rank, world_size)
        self.layout = ParallelLayout(data=world_size // fsdp.context_parallel_size, context=fsdp.context_parallel_size)
        self.process, self.num_processes, self.device = rank, world_size, device
        self.rank, self.world_size = self.layout.seat(rank).data, self.layout.data
        self.is_main = rank == 0
        self.group = _share_context(model, self.layout, rank, world_size)
        self.compute_dtype = DTYPES[fsdp.mixed_precision.param_dtype or precision]
        self.sharded = fsdp.sharding_strategy != "no_shard"
        if fsdp.gradient_checkpointing:
            for layer in model.recompute_units():
                layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
        self.stays_on_host = self.sharded and fsdp.cpu_offload
        is_empty = any(parameter.is_meta for parameter in model.parameters())
        if not is_empty:
            model.to(device)
        if self.sharded:
            SHARDING[fsdp.strategy](model, fsdp, self.compute_dtype, device)
        if is_empty:
            materialize(model, device, weights_device=torch.device("cpu") if self.stays_on_host else None)
        self.reduces_once = fsdp.enable_gradient_accumulation
        self.model: TrainableModel = model
        self.trains = optim is not None
        self.optimizers: dict[str, ScheduledOptimizer] = {}
        if optim is not None:
            self.optimizers = build_optimizers(model, optim, critic_optim, fused=not self.sharded)
        self.scaler = LossScaler(enabled=self.compute_dtype == torch.float16)
        self.saver = CheckpointSaver()
        self.remembered: dict[str, list[torch.Tensor]] = {}
        self.owners: dict[WeightForm, list[int]] = {}

    @property
    def num_steps(self) -> int:
        """Steps of the policy's optimizer."""
        return self.optimizers["policy"].num_steps

    @traced("forward_backward", "train")
    def forward_backward(
        self, micro_batches: Sequence[BatchT], work: Pass[BatchT, Any, Loss], *, optimizer: str | None = None
    ) -> MetricSums:
        """See ``TrainEngine``."""
        self._require_training()
        totals: MetricSums = {}
        # Of context ranks each computes the gradient of its own tokens, and gradients are averaged over all processes.
        scale = self.scaler.scale * self.layout.context
        if isinstance(self.model, LanguageModel):
            self.model.balance_scale = scale
        # Sharding hooks wait for the gradients of whole units: there the superfluous ones are computed and dropped.
        inputs = None if optimizer is None or self.sharded else self.optimizers[optimizer].parameters
        for index, batch in enumerate(micro_batches):
            if isinstance(self.model, FSDPModule):
                is_last = index == len(micro_batches) - 1
                self.model.set_requires_gradient_sync(is_last or not self.reduces_once)
            with self._autocast():
                loss, metrics = work.use(work.call(self.model, batch), batch)
            torch.autograd.backward(loss if scale == 1.0 else loss * scale, inputs=inputs)
            add_metrics(totals, metrics)
        self._average_replicated_gradients()
        return totals

    def forward(self, micro_batches: Sequence[BatchT], work: Pass[BatchT, Any, torch.Tensor]) -> list[torch.Tensor]:
        """See ``TrainEngine``."""
        with torch.no_grad(), self._autocast():
            return [work.use(work.call(self.model, batch), batch) for batch in micro_batches]

    @traced("optimizer_step", "train")
    def step(self, optimizer: str = "policy") -> dict[str, float]:
        """See ``TrainEngine``."""
        self._require_training()
        chosen = self.optimizers[optimizer]
        parameters = [p for p in chosen.parameters if p.grad is not None]
        if self.scaler.enabled:
            torch._foreach_div_([cast(torch.Tensor, p.grad) for p in parameters], self.scaler.scale)
        norm = self._clip(parameters, chosen.cfg.clip_grad)
        finite = math.isfinite(norm)
        self.scaler.update(finite=finite)
        if not finite and not self.scaler.enabled:
            section = "actor.critic_optim" if optimizer == "critic" else "actor.optim"
            raise NumericalError(
                f"The gradient norm is {norm} at optimizer step {chosen.num_steps + 1}: a loss, an input or a weight "
                f"is not finite. Lower {section}.lr or clip_grad, or look for NaN in observations and rewards."
            )
        chosen.step(skip=not finite)
        # What ``Module.zero_grad`` does, which takes as long as a small layer to find the parameters.
        for parameter in (p for each in self.optimizers.values() for p in each.parameters):
            parameter.grad = None
        return {"grad_norm": norm, "lr": chosen.lr}

    @torch.no_grad()
    def soft_update(self, target: nn.Module, source: nn.Module, weight: float) -> None:
        """See ``TrainEngine``."""
        _reshard(target, source)
        torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), weight)

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``TrainEngine``."""
        if self.world_size == 1:
            return tensor
        total = tensor.clone()
        dist.all_reduce(total, group=self.group)
        return total

    def sum_parts(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``TrainEngine``."""
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """See ``TrainEngine``."""
        if self.world_size == 1:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(parts, tensor.contiguous(), group=self.group)
        return parts

    def held_weights(self) -> Iterator[torch.Tensor]:
        """See ``TrainEngine``."""
        _reshard(self.model)
        changing = [p for p in self.model.parameters() if p.requires_grad or not self.trains]
        yield from map(_local, (*changing, *self.model.buffers()))

    def offload(self) -> None:
        """See ``TrainEngine``; without an accelerator there is nowhere to go."""
        if self.device.type != "cpu" and not self.stays_on_host:
            self._move(torch.device("cpu"))
            torch.get_device_module(self.device).empty_cache()

    def onload(self) -> None:
        """See ``TrainEngine``."""
        if self.device.type != "cpu" and not self.stays_on_host:
            self._move(self.device)

    def save(self, path: Path, *, in_background: bool = False) -> None:
        """See ``TrainEngine``."""
        self._require_training()
        content = state.training_state(self.model, self._adams(), self._extra_state())
        self.saver.save(path, content, in_background=in_background)

    def finish_save(self, *, wait: bool = True) -> bool:
        """See ``TrainEngine``."""
        return self.saver.finish(wait=wait)

    def load(self, path: Path) -> None:
        """See ``TrainEngine``."""
        self._require_training()
        extra = state.load(path, self.model, self._adams(), self._extra_state())
        for name, optimizer in self.optimizers.items():
            optimizer.num_steps = int(extra[_counter(name)])
        self.scaler.load_state_dict({name: extra[f"scaler.{name}"] for name in self.scaler.state_dict()})

    def describe_weights(self, form: WeightForm = "merged") -> Iterator[WeightEntry]:
        """See ``TrainEngine``."""
        described = list(self.model.export(_described, form))
        owners = self.owners[form] = choose_owners([tensor.nbytes for _, tensor in described], self.num_processes)
        yield from (WeightEntry(*named, owner) for named, owner in zip(described, owners, strict=True))

    def export_weights(
        self, form: WeightForm = "merged", *, dtype: torch.dtype | None = None, owned: bool = False
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``TrainEngine``; without ``owned`` every rank yields all weights."""
        for name, tensor in self._export_owned(form) if owned else self.model.export(_whole, form):
            yield name, tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor

    def _export_owned(self, form: WeightForm) -> Iterator[tuple[str, torch.Tensor]]:
        owners = self.owners.get(form) or [entry.owner for entry in self.describe_weights(form)]
        owner = 0
        source = self.model.export(lambda tensor: gather_to(owner, tensor), form)
        for owner in owners:
            named = next(source)
            if owner == self.process:
                yield named

    @torch.no_grad()
    def import_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """See ``TrainEngine``."""
        state = self.model.state_dict()
        for name, tensor in weights:
            target = state.get(name)
            if target is None or target.shape != tensor.shape:
                expected = "no such weight" if target is None else f"shape {tuple(target.shape)}"
                raise WeightSyncError(f"Weight '{name}' has shape {tuple(tensor.shape)}, the model has {expected}.")
            tensor = tensor.to(target.device)
            if isinstance(target, DTensor):
                # Every rank has the whole tensor, and keeps its part.
                tensor = distribute_tensor(tensor, target.device_mesh, target.placements, src_data_rank=None)
            target.copy_(tensor)

    def close(self) -> None:
        """See ``TrainEngine``."""
        leave_process_group()

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.sharded or self.compute_dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.compute_dtype)

    def _average_replicated_gradients(self) -> None:
        if self.sharded or self.num_processes == 1:
            return
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat)
        flat /= self.num_processes
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def _clip(self, parameters: list[nn.Parameter], max_norm: float) -> float:
        norm = nn.utils.clip_grad_norm_(parameters, max_norm)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def _move(self, device: torch.device) -> None:
        self.model.to(device)
        for entry in (entry for adam in self._adams() for entry in adam.state.values()):
            for key, value in entry.items():
                if isinstance(value, torch.Tensor) and value.ndim > 0:
                    entry[key] = value.to(device)

    def _extra_state(self) -> dict[str, Any]:
        counters = {_counter(name): optimizer.num_steps for name, optimizer in self.optimizers.items()}
        return counters | {f"scaler.{name}": value for name, value in self.scaler.state_dict().items()}

    def _adams(self) -> list[torch.optim.Optimizer]:
        return [optimizer.adam for optimizer in self.optimizers.values()]


def _share_context(
    model: TrainableModel, layout: ParallelLayout, rank: int, num_processes: int
) -> dist.ProcessGroup | None:
    """Let the processes of a replica share its tokens; return the group of its data-parallel ranks, None for all."""
    if layout.context == 1:
        return None
    path = "actor.fsdp_config.context_parallel_size"
    if layout.world_size != num_processes:
        raise ConfigError(f"{path}: received {layout.context}; must divide the {num_processes} actor rank(s).")
    if not isinstance(model, CausalLM) or not model.can_share_prompts:
        raise ConfigError(
            f"{path}: received {layout.context}; needs a language model with actor.model.attn_implementation=sdpa. "
            "Set it to 1."
        )
    model.context = _group_of(layout.groups("context"), rank)
    return _group_of(layout.groups("data"), rank)


def _group_of(groups: list[tuple[int, ...]], rank: int) -> dist.ProcessGroup:
    """Make all groups, as all processes must, and return the one that a rank is in."""
    made: list[dist.ProcessGroup] = [dist.new_group(list(ranks)) for ranks in groups]
    return next(group for group, ranks in zip(made, groups, strict=True) if rank in ranks)


def _reshard(*models: nn.Module) -> None:
    """Drop gathered copies: they would be changed in place of the shards, or outlive the change."""
    for module in (module for model in models for module in model.modules()):
        if isinstance(module, FSDPModule):
            module.reshard()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a parameter or buffer, sharing its memory."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


def _described(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _counter(optimizer: str) -> str:
    return "num_steps" if optimizer == "policy" else f"{optimizer}_num_steps"


def _replica_mesh(fsdp: FSDPConfig, device: torch.device) -> DeviceMesh | None:
    """Return the ranks as rows of replicas; None where all ranks hold one, and in a process that has no others."""
    ranks, size = dist.get_world_size(), fsdp.hybrid_shard_size
    if fsdp.sharding_strategy != "hybrid_shard" or ranks == 1:
        return None
    if size is None or ranks % size:
        raise ConfigError(
            f"actor.fsdp_config.hybrid_shard_size: received {size}; must divide the {ranks} actor rank(s). "
            "Set it to the number of ranks on a node, say."
        )
    return init_device_mesh(device.type, (ranks // size, size), mesh_dim_names=("replicate", "shard"))


def _shard(model: TrainableModel, fsdp: FSDPConfig, compute_dtype: torch.dtype, device: torch.device) -> None:
    """Shard each layer in compute precision, and the rest (norms, standard deviations) at the root in fp32."""
    reduce_dtype = DTYPES[fsdp.mixed_precision.reduce_dtype or "fp32"]
    reshard = fsdp.reshard_after_forward
    if reshard is None:
        reshard = fsdp.sharding_strategy != "shard_grad_op"
    mesh = _replica_mesh(fsdp, device)
    offload = CPUOffloadPolicy(pin_memory=fsdp.offload_pin_memory) if fsdp.cpu_offload else OffloadPolicy()
    mixed = MixedPrecisionPolicy(param_dtype=compute_dtype, reduce_dtype=reduce_dtype)
    for layer in model.shard_units():
        fully_shard(layer, mesh=mesh, mp_policy=mixed, reshard_after_forward=reshard, offload_policy=offload)
    root = MixedPrecisionPolicy(reduce_dtype=reduce_dtype, cast_forward_inputs=False)
    fully_shard(model, mesh=mesh, mp_policy=root, reshard_after_forward=reshard, offload_policy=offload)
    if fsdp.forward_prefetch:
        layers = [layer for layer in model.recompute_units() if isinstance(layer, FSDPModule)]
        for layer, following in itertools.pairwise(layers):
            layer.set_modules_to_forward_prefetch([following])


SHARDING = {"fsdp": _shard, "fsdp2": _shard}
"""What ``actor.fsdp_config.strategy`` names."""
