"""Fused tensors have the layout that Megatron-Core's layers expect, and their pieces cover the model."""

from __future__ import annotations

import pytest
import torch

from rlinf.errors import ConfigError
from rlinf.models.fused import Part, Piece, block_of, check_coverage, pieces_of
from rlinf.models.fused.fusion_rules import is_split

GROUPS, QUERIES, HEAD, WIDTH, INNER, EXPERTS = 2, 3, 4, 8, 6, 3
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (11, WIDTH),
    "model.layers.5.self_attn.q_proj.weight": (GROUPS * QUERIES * HEAD, WIDTH),
    "model.layers.5.self_attn.k_proj.weight": (GROUPS * HEAD, WIDTH),
    "model.layers.5.self_attn.v_proj.weight": (GROUPS * HEAD, WIDTH),
    "model.layers.5.self_attn.q_proj.bias": (GROUPS * QUERIES * HEAD,),
    "model.layers.5.self_attn.k_proj.bias": (GROUPS * HEAD,),
    "model.layers.5.self_attn.v_proj.bias": (GROUPS * HEAD,),
    "model.layers.5.self_attn.o_proj.weight": (WIDTH, GROUPS * QUERIES * HEAD),
    "model.layers.5.mlp.gate_proj.weight": (INNER, WIDTH),
    "model.layers.5.mlp.up_proj.weight": (INNER, WIDTH),
    "model.layers.5.mlp.down_proj.weight": (WIDTH, INNER),
    "model.layers.5.mlp.experts.gate_up_proj": (EXPERTS, 2 * INNER, WIDTH),
    "model.layers.5.mlp.experts.down_proj": (EXPERTS, WIDTH, INNER),
    "model.norm.weight": (WIDTH,),
}
ATTENTION, MLP = "decoder.layers.5.self_attention", "decoder.layers.5.mlp"
EXPERT_NAMES = [
    f"{MLP}.experts.local_experts.{e}.linear_{which}.weight" for e in range(EXPERTS) for which in ("fc1", "fc2")
]
FUSED = [
    "embedding.weight",
    "decoder.final_layernorm.weight",
    f"{ATTENTION}.linear_qkv.weight",
    f"{ATTENTION}.linear_qkv.bias",
    f"{ATTENTION}.linear_proj.weight",
    f"{MLP}.linear_fc1.weight",
    f"{MLP}.linear_fc2.weight",
    *EXPERT_NAMES,
]


def numbered(name: str) -> torch.Tensor:
    """Return a tensor whose elements are all different, and different from other tensors'."""
    start = 10_000 * list(SHAPES).index(name)
    size = torch.Size(SHAPES[name])
    return torch.arange(start, start + size.numel()).view(size)


def fuse(name: str, rank: int, size: int, *, tied: bool = False) -> torch.Tensor:
    """Return a rank's fused tensor, made of its pieces."""
    pieces = pieces_of(name, SHAPES, Part(rank, size, HEAD), tied=tied)
    return torch.cat([block_of(numbered(p.name), p).reshape(p.end - p.begin, *p.sizes[1:][-1:]) for p in pieces])


@pytest.mark.parametrize("kind", ["weight", "bias"])
@pytest.mark.parametrize("size", [1, 2])
def test_queries_keys_and_values_of_a_group_lie_together(kind: str, size: int) -> None:
    parts = [numbered(f"model.layers.5.self_attn.{x}_proj.{kind}") for x in "qkv"]
    grouped = [part.view(GROUPS, -1, HEAD, *part.shape[1:]) for part in parts]
    expected = torch.cat(grouped, dim=1).view(-1, *parts[0].shape[1:]).chunk(size)
    for rank in range(size):
        assert torch.equal(fuse(f"{ATTENTION}.linear_qkv.{kind}", rank, size), expected[rank])


@pytest.mark.parametrize("size", [1, 2])
def test_a_rank_has_matching_rows_of_gate_and_up(size: int) -> None:
    gate, up = (numbered(f"model.layers.5.mlp.{x}_proj.weight").chunk(size) for x in ("gate", "up"))
    for rank in range(size):
        assert torch.equal(fuse(f"{MLP}.linear_fc1.weight", rank, size), torch.cat([gate[rank], up[rank]]))
    gates = numbered("model.layers.5.mlp.experts.gate_up_proj")
    for expert in range(EXPERTS):
        gate, up = (half.chunk(size) for half in gates[expert].chunk(2))
        for rank in range(size):
            found = fuse(f"{MLP}.experts.local_experts.{expert}.linear_fc1.weight", rank, size)
            assert torch.equal(found, torch.cat([gate[rank], up[rank]]))


@pytest.mark.parametrize("size", [1, 2])
def test_output_matrices_are_cut_by_columns(size: int) -> None:
    for rank in range(size):
        found = fuse(f"{ATTENTION}.linear_proj.weight", rank, size)
        assert torch.equal(found, numbered("model.layers.5.self_attn.o_proj.weight").chunk(size, dim=1)[rank])
        downs = numbered("model.layers.5.mlp.experts.down_proj")
        found = fuse(f"{MLP}.experts.local_experts.2.linear_fc2.weight", rank, size)
        assert torch.equal(found, downs[2].chunk(size, dim=1)[rank])


def test_the_last_share_of_the_vocabulary_ends_with_padding() -> None:
    shares = [pieces_of("embedding.weight", SHAPES, Part(rank, 4, HEAD))[0] for rank in range(4)]
    assert [(piece.offsets[0], piece.sizes[0], piece.begin, piece.end) for piece in shares] == [
        (0, 3, 0, 3),
        (3, 3, 0, 3),
        (6, 3, 0, 3),
        (9, 2, 0, 2),
    ]


def test_a_tied_head_is_a_copy_of_the_embeddings() -> None:
    assert not pieces_of("head.weight", SHAPES, Part(0, 1, HEAD))
    assert torch.equal(fuse("head.weight", 1, 2, tied=True), fuse("embedding.weight", 1, 2))


@pytest.mark.parametrize("size", [1, 2])
def test_pieces_cover_every_tensor_once(size: int) -> None:
    pieces: list[Piece] = []
    for name in FUSED:
        for rank in range(size if is_split(name) else 1):
            pieces += pieces_of(name, SHAPES, Part(rank, size, HEAD))
    check_coverage(pieces, SHAPES)
    with pytest.raises(ConfigError, match="training_backend=fsdp"):
        check_coverage(pieces[1:], SHAPES)
    with pytest.raises(ConfigError, match=r"model\.embed_tokens\.weight"):
        check_coverage([*pieces, pieces[0]], SHAPES)
    with pytest.raises(ConfigError, match="no rule says"):
        check_coverage([*pieces, Piece("stranger", (0,), (1,), 0, 1)], SHAPES)


def test_norms_are_not_split() -> None:
    assert not is_split("decoder.layers.3.input_layernorm.weight")
    assert is_split(f"{MLP}.linear_fc1.weight")
    assert pieces_of("decoder.layers.3.unknown", SHAPES, Part(0, 1, HEAD)) == []
