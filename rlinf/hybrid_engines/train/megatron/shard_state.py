"""A rank's training state as chunks of Hugging Face tensors: the checkpoint format of all engines."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from rlinf.hybrid_engines.train.chunks import (
    Chunk,
    ChunkedTensor,
    State,
    moment_key,
    read_state,
    value_key,
    weight_key,
)
from rlinf.hybrid_engines.train.loss_scale import LossScaler
from rlinf.hybrid_engines.train.megatron.sharded_optimizer import ShardedOptimizer
from rlinf.hybrid_engines.train.megatron.shards import ModelShards
from rlinf.hybrid_engines.train.state import FileNames, names_in

MOMENTS = ("exp_avg", "exp_avg_sq")
Fused = dict[str, torch.Tensor]


def training_state(shards: ModelShards, optimizer: ShardedOptimizer, scaler: LossScaler) -> State:
    """Return what a checkpoint holds of this rank; called by all ranks together.

    Args:
        shards: Which blocks of which tensors the rank has.
        optimizer: Has masters and moments, which data-parallel ranks put together first.
        scaler: Of the loss.
    """
    weights = optimizer.whole(lambda share: share.master)
    moments = {name: optimizer.whole(functools.partial(optimizer.moment, name=name)) for name in MOMENTS}
    steps = torch.tensor(float(optimizer.num_updates))
    return _state(shards, weights, moments, steps, shards.model.file_names()) | _values(optimizer, scaler)


def load_state(path: Path, shards: ModelShards, optimizer: ShardedOptimizer, scaler: LossScaler) -> None:
    """Read what ``training_state`` is, written under any layout by any engine; called by all ranks together.

    Args:
        path: The folder.
        shards: Which blocks of which tensors the rank has.
        optimizer: Changed, weights included.
        scaler: Changed.

    Raises:
        CheckpointError: The folder holds no checkpoint of this model, or not all of it.
    """
    weights, *both = ({name: torch.zeros(p.shape) for name, p in shards.fused.items()} for _ in range(3))
    moments = dict(zip(MOMENTS, both, strict=True))
    steps = torch.tensor(0.0)
    wanted = _state(shards, weights, moments, steps, names_in(path, shards.model))
    values = read_state(path, wanted | _values(optimizer, scaler))
    optimizer.num_updates = int(steps)
    optimizer.scheduled.num_steps = int(values[value_key("num_steps")])
    optimizer.restore(weights, moments)
    scaler.load_state_dict({name: values[value_key(f"scaler.{name}")] for name in scaler.state_dict()})


def _values(optimizer: ShardedOptimizer, scaler: LossScaler) -> State:
    """Return what a checkpoint holds besides tensors."""
    scale = {value_key(f"scaler.{name}"): value for name, value in scaler.state_dict().items()}
    return scale | {value_key("num_steps"): optimizer.scheduled.num_steps}


def _state(
    shards: ModelShards, weights: Fused, moments: dict[str, Fused], steps: torch.Tensor, file_names: FileNames
) -> State:
    """Return the tensors of a checkpoint, sharing memory with the arguments."""
    state: State = {}
    for name, tensor in shards.chunks(weights, file_names).items():
        state[weight_key(name)] = tensor
        state[moment_key(name, "step")] = ChunkedTensor((), [Chunk((), steps)])
    for moment, values in moments.items():
        state |= {moment_key(name, moment): tensor for name, tensor in shards.chunks(values, file_names).items()}
    return state
