"""Shards of several devices and stages make the weight that they were cut from."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlinf.hybrid_engines.generation.weight_shards import Shard, WeightPart, find_parts, join_shards, part_of

WHOLE = torch.arange(24.0).view(6, 4)


@pytest.mark.parametrize("dim", [0, 1])
def test_shards_are_joined_in_the_dimension_in_which_they_were_cut(dim: int) -> None:
    shards = [Shard(0, dim, None, part) for part in WHOLE.chunk(2, dim)]
    assert torch.equal(join_shards(shards), WHOLE)


def test_what_all_workers_have_whole_is_taken_once() -> None:
    assert torch.equal(join_shards([Shard(0, None, None, WHOLE)] * 3), WHOLE)


def test_copies_and_padding_are_left_out() -> None:
    first, second = torch.cat([WHOLE, torch.zeros(2, 4)]).chunk(2)
    shards = [Shard(0, 0, 6, first), Shard(0, 0, 6, None), Shard(0, 0, 6, second), Shard(0, 0, 6, None)]
    assert torch.equal(join_shards(shards), WHOLE)


def test_a_weight_that_two_stages_share_is_taken_once() -> None:
    shards = [Shard(stage, 0, None, part) for stage in (0, 1) for part in WHOLE.chunk(2)]
    assert torch.equal(join_shards(shards), WHOLE)


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_are_where_they_are_of_the_whole(dim: int) -> None:
    whole = torch.arange(30.0).view(5, 6)
    parts = [part_of(whole, size=4, dim=dim, index=index) for index in range(3)]
    assert [part.shape[dim] for part in parts] == [4, whole.shape[dim] - 4, 0]
    assert torch.equal(torch.cat(parts, dim), whole)
    parts[1].zero_()
    assert not whole.narrow(dim, 4, 1).any(), "a part is a view"
    assert part_of(whole, size=4, dim=None, index=1) is whole


class Layer(nn.Module):
    """A linear layer of an engine, as one of several workers has it."""

    def __init__(self, rows: int, width: int = 2, **attributes: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(float(rows * width)).view(rows, width))
        self.weight.output_dim, self.weight.input_dim = 0, 1
        vars(self).update(attributes)


def make_model() -> nn.Module:
    """Return the model of one of four workers: eight query heads, two key heads that two workers each have, width 2."""
    model = nn.Module()
    model.attn = nn.Module()
    model.attn.qkv_proj = Layer(4 + 2 + 2, output_sizes=[16, 8, 8], num_kv_head_replicas=2)
    model.attn.o_proj = Layer(4, input_is_parallel=True)
    model.mlp = nn.Module()
    model.mlp.gate_up_proj = Layer(6, output_sizes=[12, 12])
    model.norm = nn.LayerNorm(4)
    return model


FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


@pytest.mark.parametrize(
    ("name", "layer", "rows", "num_copies"),
    [
        ("attn.q_proj.weight", "attn.qkv_proj", slice(0, 4), 1),
        ("attn.k_proj.weight", "attn.qkv_proj", slice(4, 6), 2),
        ("attn.v_proj.weight", "attn.qkv_proj", slice(6, 8), 2),
        ("mlp.gate_proj.weight", "mlp.gate_up_proj", slice(0, 3), 1),
        ("mlp.up_proj.weight", "mlp.gate_up_proj", slice(3, 6), 1),
    ],
)
def test_parts_of_layers_that_are_computed_together_are_found(
    name: str, layer: str, rows: slice, num_copies: int
) -> None:
    model = make_model()
    (part,) = find_parts(model, [name], FUSED)
    assert part is not None
    assert part.module is model.get_submodule(layer)
    assert torch.equal(part.tensor, part.module.weight[rows])
    assert part.tensor.data_ptr() == part.module.weight[rows].data_ptr(), "a part is a view"
    assert (part.dim, part.num_copies) == (0, num_copies)


def test_weights_are_found_by_their_names_with_the_dimension_in_which_they_are_spread() -> None:
    model = make_model()
    missing = ("attn.q_proj.bias", "attn.other_proj.weight", "mlp.q_proj.weight", "q_proj.weight")
    first, *nothing, last = find_parts(model, ["attn.o_proj.weight", *missing, "norm.weight"], FUSED)
    assert first == WeightPart(model.attn.o_proj.weight, model.attn.o_proj, 1)
    assert last == WeightPart(model.norm.weight, model.norm, None)
    assert nothing == [None] * len(missing)
