"""The Megatron-Core training engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from torch import nn

from rlinf.algorithms.types import add_metrics
from rlinf.config.schema.base import Precision
from rlinf.config.schema.megatron import MegatronConfig
from rlinf.config.schema.train import ActorConfig, OptimConfig
from rlinf.errors import AlgorithmError, ConfigError, NumericalError, WeightSyncError
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.hybrid_engines.train.loss_scale import LossScaler
from rlinf.hybrid_engines.train.megatron.layer_config import require_supported, transformer_config
from rlinf.hybrid_engines.train.megatron.offload import HostMemory
from rlinf.hybrid_engines.train.megatron.parallel_groups import enter_layout, leave_layout
from rlinf.hybrid_engines.train.megatron.shard_state import load_state, training_state
from rlinf.hybrid_engines.train.megatron.sharded_optimizer import ShardedOptimizer
from rlinf.hybrid_engines.train.megatron.shards import ModelShards
from rlinf.hybrid_engines.train.megatron.stage import MegatronLM, StagePlace
from rlinf.hybrid_engines.train.owners import choose_owners
from rlinf.hybrid_engines.train.saver import CheckpointSaver
from rlinf.hybrid_engines.train.train_engine import BatchT, Loss, MetricSums, Pass, TrainEngine, WeightEntry
from rlinf.models.language.causal_lm import CausalLM
from rlinf.models.trainable import TrainableModel, WeightForm
from rlinf.placement.parallel import ParallelLayout
from rlinf.telemetry.trace import traced


class MegatronEngine(TrainEngine):
    """Trains a language model that is spread over ranks by Megatron-Core.

    Weights are kept in the compute precision; each data-parallel rank has float32 masters and moments of a share.
    Without an optimizer there are weights alone: no masters, no moments and no memory for gradients.

    Args:
        model: The language model on device ``meta``; its ``weight_source`` fills this rank's part.
        optim: The ``actor.optim`` section; None for a model that is not trained here.
        megatron: The ``actor.megatron`` section.
        precision: Of weights and activations.
        device: Where to train.
        rank: Number of this process.
        world_size: Number of processes.

    Raises:
        ConfigError: The model or the layout is none that Megatron-Core trains.
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
    ) -> MegatronEngine:
        """See ``TrainEngine``."""
        return cls(
            model,
            optim=actor.optim if trains else None,
            megatron=actor.megatron,
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
        megatron: MegatronConfig,
        precision: Precision,
        device: torch.device,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not isinstance(model, CausalLM) or model.cfg.is_lora:
            raise ConfigError(
                "actor.training_backend: megatron trains language models (model_type=causal_lm) without adapters. Use "
                "actor.training_backend=fsdp."
            )
        require_supported(model.hf_config, model.cfg.model_path)
        self.layout = megatron.layout(world_size)
        _require_fit(self.layout, model.hf_config, world_size)
        groups = enter_layout(self.layout, device=device, rank=rank)
        seat = self.layout.seat(rank)
        self.rank, self.world_size, self.is_main, self.device = seat.data, self.layout.data, rank == 0, device
        self.groups = groups
        self.dtype = DTYPES[precision]
        config = transformer_config(
            model.hf_config, megatron, self.layout, dtype=self.dtype, finalize=finalize_model_grads
        )
        self.trains = optim is not None
        # What requires a gradient goes into Megatron-Core's buffers, which have memory for the gradient, too.
        stages = [MegatronLM(model, config, place).to(device).requires_grad_(self.trains) for place in self._places()]
        self.shards = ModelShards(model, stages, self.layout, rank)
        self.shards.load(model.weight_source)
        ddp = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True,
            overlap_grad_reduce=megatron.overlap_grad_reduce,
            use_distributed_optimizer=True,
        )
        self.chunks = [
            DistributedDataParallel(config=config, ddp_config=ddp, module=stage, disable_bucketing=number > 0)
            for number, stage in enumerate(stages)
        ]
        # Gradients are reduced while the last micro-batch is computed, not earlier.
        contexts = [chunk.no_sync for chunk in self.chunks]
        config.no_sync_func = contexts if len(contexts) > 1 else contexts[0]
        self.model: TrainableModel = stages[0]
        self._optimizer = None if optim is None else ShardedOptimizer(self.chunks, optim)
        self.scaler = LossScaler(enabled=self.dtype == torch.float16)
        self.remembered: dict[str, list[torch.Tensor]] = {}
        self.host = HostMemory()
        self.saver = CheckpointSaver()

    @property
    def optimizer(self) -> ShardedOptimizer:
        """What trains the model.

        Raises:
            AlgorithmError: There is none.
        """
        self._require_training()
        assert self._optimizer is not None
        return self._optimizer

    @property
    def num_steps(self) -> int:
        """Steps of the optimizer."""
        return self.optimizer.scheduled.num_steps

    @traced("forward_backward", "train")
    def forward_backward(
        self, micro_batches: Sequence[BatchT], work: Pass[BatchT, Any, Loss], *, optimizer: str | None = None
    ) -> MetricSums:
        """See ``TrainEngine``."""
        del optimizer
        self._require_training()
        padded = self._pad(micro_batches)
        # The schedule divides each loss by the number of micro-batches.
        factor = len(padded) * self.scaler.scale

        def use(output: Any, index: int) -> tuple[torch.Tensor, MetricSums]:
            loss, metrics = work.use(output, padded[index])
            is_padding = index >= len(micro_batches)
            return loss * (0.0 if is_padding else factor), {} if is_padding else metrics

        found = self._run(padded, work, use, num_counted=len(micro_batches))
        totals: MetricSums = {}
        for metrics in found:
            add_metrics(totals, metrics)
        return totals

    def forward(self, micro_batches: Sequence[BatchT], work: Pass[BatchT, Any, torch.Tensor]) -> list[torch.Tensor]:
        """See ``TrainEngine``."""
        padded = self._pad(micro_batches)

        def use(output: Any, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            # The schedule wants a loss.
            return torch.zeros((), device=self.device), work.use(output, padded[index])

        with torch.no_grad():
            found = self._run(padded, work, use)
        results: list[torch.Tensor] = found[: len(micro_batches)]
        return results

    @traced("optimizer_step", "train")
    def step(self, optimizer: str = "policy") -> dict[str, float]:
        """See ``TrainEngine``."""
        del optimizer
        norm, finite = self.optimizer.step(self.scaler.scale, counts_anyway=self.scaler.enabled)
        self.scaler.update(finite=finite)
        if not finite and not self.scaler.enabled:
            raise NumericalError(
                f"The gradient norm is {norm} at optimizer step {self.num_steps + 1}: a loss, an input or a weight "
                "is not finite. Lower actor.optim.lr or clip_grad, or look for NaN in rewards."
            )
        return {"grad_norm": norm, "lr": self.optimizer.scheduled.lr}

    def soft_update(self, target: nn.Module, source: nn.Module, weight: float) -> None:
        """See ``TrainEngine``; language models have no target networks.

        Raises:
            AlgorithmError: Always.
        """
        raise AlgorithmError("actor.training_backend: megatron has no target networks. Use fsdp.")

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``TrainEngine``."""
        total = tensor.clone()
        dist.all_reduce(total, group=self.groups.dp)
        return total

    def sum_parts(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``TrainEngine``."""
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """See ``TrainEngine``."""
        parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(parts, tensor.contiguous(), group=self.groups.dp)
        return parts

    def held_weights(self) -> Iterator[torch.Tensor]:
        """See ``TrainEngine``."""
        for chunk in self.chunks:
            for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers):
                yield buffer.param_data
            if not self.trains:
                yield from (parameter.data for parameter in chunk.parameters())

    def offload(self) -> None:
        """See ``TrainEngine``; without an accelerator there is nowhere to go."""
        if self.device.type != "cpu":
            self.host.take([*self._buffers(), *(self.optimizer.state_tensors() if self.trains else ())])
            torch.get_device_module(self.device).empty_cache()

    def onload(self) -> None:
        """See ``TrainEngine``."""
        self.host.give_back()

    def save(self, path: Path, *, in_background: bool = False) -> None:
        """See ``TrainEngine``; the same as the FSDP engine writes of the model, in any layout."""
        content = training_state(self.shards, self.optimizer, self.scaler)
        self.saver.save(path, content, in_background=in_background)

    def finish_save(self, *, wait: bool = True) -> bool:
        """See ``TrainEngine``."""
        return self.saver.finish(wait=wait)

    def load(self, path: Path) -> None:
        """See ``TrainEngine``."""
        load_state(path, self.shards, self.optimizer, self.scaler)

    def describe_weights(self, form: WeightForm = "merged") -> Iterator[WeightEntry]:
        """See ``TrainEngine``."""
        described = [
            (name, torch.empty(shape, dtype=self.dtype, device="meta")) for name, shape in self.shards.exported(form)
        ]
        owners = choose_owners([tensor.nbytes for _, tensor in described], self.layout.world_size)
        yield from (WeightEntry(*named, owner) for named, owner in zip(described, owners, strict=True))

    def export_weights(
        self, form: WeightForm = "merged", *, dtype: torch.dtype | None = None, owned: bool = False
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``TrainEngine``; without ``owned`` every rank yields all weights."""
        for entry in list(self.describe_weights(form)):
            whole = self.shards.whole(entry.name)
            if not owned or entry.owner == dist.get_rank():
                yield entry.name, whole if dtype is None else whole.to(dtype)

    @torch.no_grad()
    def import_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """See ``TrainEngine``."""
        for name, tensor in weights:
            expected = self.shards.shapes.get(name)
            if expected != tuple(tensor.shape):
                what = "no such weight" if expected is None else f"shape {expected}"
                raise WeightSyncError(f"Weight '{name}' has shape {tuple(tensor.shape)}, the model has {what}.")
            self.shards.put(name, tensor)
        if self.trains:
            self.optimizer.take_weights()

    def close(self) -> None:
        """See ``TrainEngine``."""
        leave_layout()

    def _places(self) -> list[StagePlace]:
        count = self.layout.virtual_pipeline
        return [StagePlace(self.groups, number if count > 1 else None, count) for number in range(count)]

    def _pad(self, micro_batches: Sequence[BatchT]) -> list[BatchT]:
        """Repeat the last micro-batch until the interleaved schedule can take them; repeats count nowhere."""
        multiple = self.layout.pipeline if self.layout.virtual_pipeline > 1 else 1
        missing = -len(micro_batches) % multiple
        return [*micro_batches, *([micro_batches[-1]] * missing)]

    def _run(
        self, batches: list[Any], work: Pass[Any, Any, Any], use: Callable[..., Any], *, num_counted: int | None = None
    ) -> list[Any]:
        """Run a schedule over micro-batches; return what ``use`` made of each, on every rank of the replica.

        Args:
            batches: The micro-batches.
            work: The pass.
            use: Makes a loss and a result of an output, given the number of its micro-batch.
            num_counted: How many of them count in the gradient; None computes none.
        """
        if work.needs_whole_model and self.layout.pipeline > 1:
            raise AlgorithmError("A loss that calls the model several times cannot be computed by pipeline stages.")

        def forward_step(numbers: Iterator[int], model: Any) -> tuple[Any, Callable[..., Any]]:
            number = next(numbers)
            # The schedule multiplies the losses that it sees by the context ranks.
            counts = num_counted is not None and number < num_counted
            model.module.balance_scale = self.scaler.scale * self.layout.context if counts else 0.0
            return work.call(model, batches[number]), functools.partial(use, index=number)

        data = [iter(range(len(batches))) for _ in self.chunks]
        found: list[Any] = get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=data if len(data) > 1 else data[0],
            model=self.chunks if len(data) > 1 else self.chunks[0],
            num_microbatches=len(batches),
            # Stages send shapes along: these are not used.
            seq_length=self.layout.tensor,
            micro_batch_size=1,
            forward_only=num_counted is None,
        )
        return self._from_last_stage(found)

    def _from_last_stage(self, found: list[Any]) -> list[Any]:
        group = self.groups.pp
        if group.size() == 1:
            return found
        box = [_moved(found, torch.device("cpu"))]
        source = dist.get_global_rank(group, group.size() - 1)
        dist.broadcast_object_list(box, src=source, group=group, device=self.device)
        result: list[Any] = _moved(box[0], self.device)
        return result

    def _buffers(self) -> Iterator[torch.Tensor]:
        """Yield the weights and gradients of all parameters."""
        yield from self.held_weights()
        for chunk in self.chunks:
            for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers):
                yield buffer.grad_data


def _require_fit(layout: ParallelLayout, hf: Any, world_size: int) -> None:
    """Return if the model can be spread over the ranks that way."""
    problems = layout.problems(
        world_size=world_size,
        num_layers=hf.num_hidden_layers,
        num_heads=hf.num_attention_heads,
        num_kv_heads=hf.num_key_value_heads,
        num_experts=getattr(hf, "num_experts", 0),
    )
    found = " ".join(problems)
    if found:
        raise ConfigError(f"actor.megatron: {found} Change the sizes in actor.megatron or the actor's placement.")


def _moved(value: Any, device: torch.device) -> Any:
    """Return lists and dicts of tensors on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list):
        return [_moved(each, device) for each in value]
    if isinstance(value, dict):
        return {name: _moved(each, device) for name, each in value.items()}
    return value
