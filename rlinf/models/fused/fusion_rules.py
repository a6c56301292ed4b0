"""The table of fused tensors, for decoders of the families Llama, Mistral, Qwen2, Qwen3 and Qwen3-MoE.

The fused names are those that Megatron-Core's modules give their parameters; layers are counted over all stages. A
fused matrix that several ranks share is cut so that each rank's part is made of whole heads, experts or matching rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlinf.models.fused.pieces import Piece

Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each Hugging Face tensor, by name."""


@dataclass(frozen=True, slots=True)
class Part:
    """Which share of a fused tensor a rank holds.

    Attributes:
        rank: From 0 to ``size - 1``.
        size: Ranks that share the tensor.
        head_dim: Width of an attention head.
    """

    rank: int
    size: int
    head_dim: int


def head_dim(hf: Any) -> int:
    """Return the width of an attention head.

    Args:
        hf: Configuration of transformers.
    """
    return int(getattr(hf, "head_dim", None) or hf.hidden_size // hf.num_attention_heads)


Cut = Callable[[list[str], Shapes, Part, "int | None"], list[Piece]]
"""Called with the Hugging Face names, all shapes, the share and the number of the expert, if any."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a fused tensor consists of.

    Attributes:
        fused: Name pattern, with ``{layer}`` and ``{expert}``.
        names: Patterns of the Hugging Face tensors in it.
        cut: Returns the pieces of a rank.
        is_split: Whether ranks hold different parts; else each holds all of it.
    """

    fused: str
    names: tuple[str, ...]
    cut: Cut
    is_split: bool = True


def whole(names: list[str], shapes: Shapes, part: Part, expert: int | None) -> list[Piece]:
    """Cut nothing: every rank has the tensor."""
    del part, expert
    shape = shapes[names[0]]
    return [Piece(names[0], (0,) * len(shape), shape, 0, shape[0])]


def vocabulary(names: list[str], shapes: Shapes, part: Part, expert: int | None) -> list[Piece]:
    """Cut rows into equal shares, the last of which ends with padding that belongs to no tensor."""
    del expert
    rows, *rest = shapes[names[0]]
    share = vocabulary_share(rows, part.size)
    begin, end = min(rows, part.rank * share), min(rows, (part.rank + 1) * share)
    if begin == end:
        return []
    return [Piece(names[0], (begin, *(0 for _ in rest)), (end - begin, *rest), 0, end - begin)]


def columns(names: list[str], shapes: Shapes, part: Part, expert: int | None) -> list[Piece]:
    """Cut the input features; of a tensor of all experts, those of one."""
    shape = shapes[names[0]]
    rows, width = shape[-2], shape[-1] // part.size
    if expert is not None:
        return [Piece(names[0], (expert, 0, part.rank * width), (1, rows, width), 0, rows)]
    return [Piece(names[0], (0, part.rank * width), (rows, width), 0, rows)]


def qkv(names: list[str], shapes: Shapes, part: Part, expert: int | None) -> list[Piece]:
    """Cut by groups of heads: the queries of a group, its key, its value, then the next group."""
    del expert
    query, key = shapes[names[0]], shapes[names[1]]
    groups = key[0] // part.head_dim
    share = groups // part.size
    heights = (query[0] // groups, part.head_dim, part.head_dim)
    pieces, end = [], 0
    for group in range(part.rank * share, (part.rank + 1) * share):
        for name, height in zip(names, heights, strict=True):
            begin, end = end, end + height
            rest = shapes[name][1:]
            pieces.append(Piece(name, (group * height, *(0 for _ in rest)), (height, *rest), begin, end))
    return pieces


def gate_up(names: list[str], shapes: Shapes, part: Part, expert: int | None) -> list[Piece]:
    """Cut gate and up alike: a rank's rows of the one above its rows of the other."""
    if expert is not None:
        _, rows, width = shapes[names[0]]
        share = rows // 2 // part.size
        starts = (part.rank * share, rows // 2 + part.rank * share)
        return [
            Piece(names[0], (expert, start, 0), (1, share, width), number * share, (number + 1) * share)
            for number, start in enumerate(starts)
        ]
    rows, width = shapes[names[0]]
    share = rows // part.size
    return [
        Piece(name, (part.rank * share, 0), (share, width), number * share, (number + 1) * share)
        for number, name in enumerate(names)
    ]


_LAYER, _HF_LAYER = "decoder.layers.{layer}", "model.layers.{layer}"
_ATTENTION, _HF_ATTENTION = f"{_LAYER}.self_attention", f"{_HF_LAYER}.self_attn"
_EXPERT = f"{_LAYER}.mlp.experts.local_experts.{{expert}}"

RULES = (
    Rule("embedding.weight", ("model.embed_tokens.weight",), vocabulary),
    Rule("head.weight", ("lm_head.weight",), vocabulary),
    Rule("decoder.final_layernorm.weight", ("model.norm.weight",), whole, is_split=False),
    Rule("value_head.weight", ("value_head.weight",), whole, is_split=False),
    Rule("value_head.bias", ("value_head.bias",), whole, is_split=False),
    Rule(f"{_LAYER}.input_layernorm.weight", (f"{_HF_LAYER}.input_layernorm.weight",), whole, is_split=False),
    Rule(
        f"{_LAYER}.pre_mlp_layernorm.weight", (f"{_HF_LAYER}.post_attention_layernorm.weight",), whole, is_split=False
    ),
    Rule(f"{_ATTENTION}.q_layernorm.weight", (f"{_HF_ATTENTION}.q_norm.weight",), whole, is_split=False),
    Rule(f"{_ATTENTION}.k_layernorm.weight", (f"{_HF_ATTENTION}.k_norm.weight",), whole, is_split=False),
    *(
        Rule(f"{_ATTENTION}.linear_qkv.{kind}", tuple(f"{_HF_ATTENTION}.{x}_proj.{kind}" for x in "qkv"), qkv)
        for kind in ("weight", "bias")
    ),
    Rule(f"{_ATTENTION}.linear_proj.weight", (f"{_HF_ATTENTION}.o_proj.weight",), columns),
    Rule(
        f"{_LAYER}.mlp.linear_fc1.weight",
        (f"{_HF_LAYER}.mlp.gate_proj.weight", f"{_HF_LAYER}.mlp.up_proj.weight"),
        gate_up,
    ),
    Rule(f"{_LAYER}.mlp.linear_fc2.weight", (f"{_HF_LAYER}.mlp.down_proj.weight",), columns),
    Rule(f"{_LAYER}.mlp.router.weight", (f"{_HF_LAYER}.mlp.gate.weight",), whole, is_split=False),
    Rule(f"{_EXPERT}.linear_fc1.weight", (f"{_HF_LAYER}.mlp.experts.gate_up_proj",), gate_up),
    Rule(f"{_EXPERT}.linear_fc2.weight", (f"{_HF_LAYER}.mlp.experts.down_proj",), columns),
)
"""Every fused tensor there is; a model has those whose Hugging Face tensors it has."""


def pieces_of(fused: str, shapes: Shapes, part: Part, *, tied: bool = False) -> list[Piece]:
    """Return what a rank's part of a fused tensor consists of.

    Args:
        fused: Its name, layers counted over all stages and experts over all ranks.
        shapes: Shapes of the model's Hugging Face tensors.
        part: The rank's share.
        tied: Whether ``head.weight`` is a copy of the embeddings.

    Returns:
        The pieces; none where no rule or no such Hugging Face tensor exists.
    """
    pattern, numbers = _generalise(fused)
    if tied and fused == "head.weight":
        pattern = "embedding.weight"
    for rule in (rule for rule in RULES if rule.fused == pattern):
        names = [name.format(**numbers) for name in rule.names]
        if all(name in shapes for name in names):
            return rule.cut(names, shapes, part, numbers.get("expert"))
    return []


def is_split(fused: str) -> bool:
    """Return whether tensor-parallel ranks hold different parts of a fused tensor."""
    pattern, _ = _generalise(fused)
    return any(rule.is_split for rule in RULES if rule.fused == pattern)


def vocabulary_share(rows: int, size: int) -> int:
    """Return the rows of embeddings that each of ``size`` ranks has, padding included."""
    return -(-rows // size)


def _generalise(fused: str) -> tuple[str, dict[str, int]]:
    """Return a name as a pattern, and the numbers that were in it."""
    numbers: dict[str, int] = {}
    pattern = fused
    for what, before in (("layer", "layers"), ("expert", "local_experts")):
        match = re.search(rf"\.{before}\.(\d+)\.", pattern)
        if match is not None:
            numbers[what] = int(match.group(1))
            pattern = pattern.replace(match.group(0), f".{before}.{{{what}}}.", 1)
    return pattern, numbers
