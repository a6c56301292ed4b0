"""Weights that an engine computes together or spreads over several devices: found, and joined again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch


class Shard(NamedTuple):
    """A worker's part of a weight.

    Attributes:
        stage: Of the pipeline.
        dim: Dimension in which it is spread over the tensor-parallel workers; None: all have it whole.
        num_rows: Rows of the whole, where it is padded.
        tensor: On the host; None where another worker has the same.
    """

    stage: int
    dim: int | None
    num_rows: int | None
    tensor: torch.Tensor | None


def join_shards(shards: Sequence[Shard]) -> torch.Tensor:
    """Return a weight of its shards, in the order of the workers; stages that share it have it twice."""
    own = [shard for shard in shards if shard.stage == shards[0].stage]
    tensors = [shard.tensor for shard in own if shard.tensor is not None]
    dim = own[0].dim
    whole = tensors[0] if dim is None else torch.cat(tensors, dim)
    return whole if own[0].num_rows is None else whole[: own[0].num_rows]


def part_of(whole: torch.Tensor, *, size: int, dim: int | None, index: int) -> torch.Tensor:
    """Return the view of a weight that a worker's part is of, without the rows that pad it.

    Args:
        whole: The weight.
        size: Of the part, in ``dim``.
        dim: Dimension in which the weight is spread; None: the worker has it whole.
        index: Number of the part.
    """
    if dim is None:
        return whole
    begin = min(index * size, whole.shape[dim])
    return whole.narrow(dim, begin, min(size, whole.shape[dim] - begin))


@dataclass(frozen=True, slots=True)
class WeightPart:
    """A worker's part of a weight of the checkpoint, in its model.

    Attributes:
        tensor: The part; of a vocabulary, with the rows that pad it.
        module: Of the model, which has the weight.
        dim: In which the workers' parts lie one after the other; None where every worker has the whole.
        num_copies: How many workers have the same part, such as key heads of which there are fewer than workers.
    """

    tensor: torch.Tensor
    module: torch.nn.Module
    dim: int | None
    num_copies: int = 1


def find_parts(
    model: torch.nn.Module, names: Iterable[str], fused: Mapping[str, Sequence[str]]
) -> Iterator[WeightPart | None]:
    """Yield a worker's parts of weights; None for one that the model has not.

    Args:
        model: That of a worker of vLLM or SGLang.
        names: The checkpoint's.
        fused: Layers that the engine computes together, with the checkpoint's names of their parts.
    """
    parameters = dict(model.named_parameters())
    for name in names:
        yield _find_part(model, parameters, name, fused)


def _find_part(
    model: torch.nn.Module,
    parameters: Mapping[str, torch.nn.Parameter],
    name: str,
    fused: Mapping[str, Sequence[str]],
) -> WeightPart | None:
    if name in parameters:
        module = model.get_submodule(name.rpartition(".")[0])
        return WeightPart(parameters[name], module, _dim(module, parameters[name]))
    for layer, parts in fused.items():
        for index, part in enumerate(parts):
            module_name, found, attribute = name.rpartition(f".{part}.")
            whole = parameters.get(f"{module_name}.{layer}.{attribute}") if found else None
            if whole is not None:
                module = model.get_submodule(f"{module_name}.{layer}")
                return _part_of_fused(module, whole, index)
    return None


def _part_of_fused(module: Any, whole: torch.nn.Parameter, index: int) -> WeightPart:
    num_workers = sum(module.output_sizes) // len(whole)
    sizes = [size // num_workers for size in module.output_sizes]
    tensor = whole[sum(sizes[:index]) : sum(sizes[: index + 1])]
    # Query heads are never copied; key and value heads are where there are fewer than workers.
    num_copies = getattr(module, "num_kv_head_replicas", 1) if index else 1
    return WeightPart(tensor, module, _dim(module, whole), num_copies)


def _dim(module: torch.nn.Module, parameter: torch.nn.Parameter) -> int | None:
    # Row-parallel layers are spread in their inputs, all others in their outputs; norms have neither.
    dim: int | None = getattr(parameter, "input_dim" if hasattr(module, "input_is_parallel") else "output_dim", None)
    return dim
