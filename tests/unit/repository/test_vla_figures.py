"""The benchmark of vision-language-action policies counts memory and time as a hand, or the process itself, does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import vla_layers, vla_memory, vla_sizes, vla_throughput
from benchmarks.vla_sizes import KINDS, Stack
from rlinf.data.messages.embodied import PolicyOutput
from tests.unit.models.vla.vla_policies import published_names

pytest.importorskip("transformers")
CPU = torch.device("cpu")
PUBLISHED = {
    "openvla": ("openvla_7b", ""),
    "openvla_oft": ("openvla_7b", ""),
    "openpi": ("pi0_3b", ""),
    "openpi_pi05": ("pi05_3b", ""),
    "smolvla": ("smolvla_450m", "model."),
    "gr00t": ("gr00t_n1_5_3b", ""),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


class Block(nn.Module):
    """Keeps its input [4, 8], and the rectified [4, 16]; ``shared`` [4, 8] is kept once for all blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)

    def forward(self, x: torch.Tensor, *, shared: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu()) + x + self.up.weight.sum() * shared


INPUT, HIDDEN = 4 * 8 * 4, 4 * 16 * 4
"""Bytes of float32 [4, 8] and [4, 16]."""


def pass_of(blocks: list[Block]) -> Any:
    """Return a pass over blocks, of an input and something shared that are in memory anyway."""
    given, shared = torch.ones(4, 8), torch.ones(4, 8)

    def call() -> torch.Tensor:
        x, own = given * 1.0, shared * 2.0
        for block in blocks:
            x = block(x, shared=own)
        return x.square()

    return call


def weights_of(blocks: list[Block]) -> list[nn.Parameter]:
    return [parameter for block in blocks for parameter in block.parameters()]


def test_what_a_pass_keeps_is_what_a_hand_counts() -> None:
    blocks = [Block() for _ in range(3)]
    found = vla_memory.saved_bytes(pass_of(blocks), blocks, weights_of(blocks))
    # The rectified numbers are kept by two operations and counted once; weights are there anyway.
    assert [found[block] for block in blocks] == [INPUT + HIDDEN + INPUT, INPUT + HIDDEN, INPUT + HIDDEN]
    assert found[None] == INPUT, "the square keeps the output of the last block"
    assert sum(found.values()) == 5 * INPUT + 3 * HIDDEN


def test_recomputed_layers_keep_what_they_are_given() -> None:
    blocks = [Block() for _ in range(3)]
    with vla_memory.recomputing(blocks):
        found = vla_memory.saved_bytes(pass_of(blocks), blocks, weights_of(blocks), keeps_inputs=True)
        assert pass_of(blocks)().requires_grad
    assert [found[block] for block in blocks] == [2 * INPUT, INPUT, INPUT]
    assert "forward" not in vars(blocks[0])


@pytest.mark.parametrize("keeps_inputs", [False, True])
def test_few_layers_say_what_many_take(keeps_inputs: bool) -> None:
    def count(number: int) -> tuple[list[Block], vla_memory.Found]:
        blocks = [Block() for _ in range(number)]
        call, weights = pass_of(blocks), weights_of(blocks)
        if not keeps_inputs:
            return blocks, vla_memory.saved_bytes(call, blocks, weights)
        with vla_memory.recomputing(blocks):
            return blocks, vla_memory.saved_bytes(call, blocks, weights, keeps_inputs=True)

    blocks, few = count(2)
    _, many = count(7)
    assert vla_memory.at_depth(few, {"toy": Stack(blocks)}, {"toy": 7}) == sum(many.values())


def test_layers_that_take_turns_are_averaged() -> None:
    blocks = [Block() for _ in range(4)]
    found: vla_memory.Found = vla_memory.Counter(dict(zip(blocks, (90, 70, 10, 30), strict=True)))
    # 200 bytes of four layers, and four more of 20 bytes on average.
    assert vla_memory.at_depth(found, {"toy": Stack(blocks, kinds=2)}, {"toy": 8}) == 280


def test_gradients_and_moments_are_those_of_what_is_trained() -> None:
    model = nn.ModuleList([nn.Linear(1000, 2, bias=False), nn.Linear(1000, 3, bias=False, dtype=torch.bfloat16)])
    assert vla_memory.trained_megabytes(model) == {"gradients_megabytes": 0.014, "moments_megabytes": 0.028}
    model[0].requires_grad_(False)
    assert vla_memory.trained_megabytes(model) == {"gradients_megabytes": 0.006, "moments_megabytes": 0.012}


def test_frozen_layers_keep_nothing_for_a_backward_pass() -> None:
    policy = vla_sizes.tiny_policy("openpi")
    _, output = policy.predict_action_batch(vla_sizes.tiny_observations(1), mode="train")
    stacks = vla_sizes.stacks_of("openpi", policy)
    depths = {name: len(stack.layers) for name, stack in stacks.items()}
    before = vla_memory._update(policy, stacks, depths, output.forward_inputs)
    vla_sizes.freeze_prefix("openpi", policy)
    assert not any(p.requires_grad for name in ("siglip", "gemma_2b") for p in stacks[name].layers[0].parameters())
    assert all(p.requires_grad for p in stacks["gemma_300m"].layers[0].parameters())
    alone = vla_memory._update(policy, stacks, depths, output.forward_inputs)
    assert alone["activations_megabytes"] < 0.6 * before["activations_megabytes"]
    assert alone["recomputed_activations_megabytes"] < alone["activations_megabytes"]


def test_recorded_fields_are_counted_by_what_they_are() -> None:
    fields = {
        "images.main": torch.zeros(2, 4, 4, 3, dtype=torch.uint8),
        "token_ids": torch.zeros(2, 5, dtype=torch.int32),
        "token_mask": torch.zeros(2, 5, dtype=torch.bool),
        "state": torch.zeros(2, 3),
        "chain": torch.zeros(2, 2, 6),
        "step_ids": torch.zeros(2, dtype=torch.int64),
    }
    output = PolicyOutput(logprobs=torch.zeros(2, 1, 7), values=None, forward_inputs=fields)
    expected = {"images": 48, "tokens": 25, "state": 12, "choice": 56, "logprobs": 28}
    assert vla_memory.recorded_bytes(output) == expected


def test_keys_and_values_are_kept_from_pass_to_pass() -> None:
    sizes = {}
    for kind in ("openvla", "openvla_oft", "openpi"):
        policy = vla_sizes.tiny_policy(kind)
        layers = vla_sizes.stacks_of(kind, policy)[vla_sizes.LANGUAGE[kind]].layers
        observed = vla_sizes.tiny_observations(1)
        sizes[kind] = vla_memory.cache_bytes(policy, observed, num_layers=len(layers), depth=2 * len(layers))
    # Eight layers; 64 patches, 20 tokens of the prompt and the first three of the action, 128 wide, float32.
    assert sizes["openvla"] == 8 * 2 * (64 + 20 + 3) * 128 * 4
    assert sizes["openvla_oft"] == 0
    # One head of 32 numbers, 64 patches and 32 tokens; and once their output, 128 wide.
    assert sizes["openpi"] == (8 * 2 * 32 + 128) * (64 + 32) * 4


def test_what_is_counted_is_what_the_process_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vla_memory, "BATCH", 16)
    found = vla_memory.tiny_memory("smolvla", CPU)
    assert found["counted_over_measured_activations"] == pytest.approx(1.0, abs=0.05)
    # What little there is fills no pages.
    assert found["counted_over_measured_checkpoints"] == pytest.approx(0.9, abs=0.15)
    assert found["counted_over_measured_gradients"] == pytest.approx(0.9, abs=0.15)


@every_kind
def test_truncated_models_have_the_layers_of_the_published_ones(kind: str) -> None:
    with torch.device("meta"):
        whole, few = vla_sizes.full_policy(kind, None), vla_sizes.full_policy(kind, 1)
    name, prefix = PUBLISHED[kind]
    ours = {f"{prefix}{key}": tuple(tensor.shape) for key, tensor in whole.state_dict().items()}
    published = published_names(f"{name}.txt")
    assert ours.items() <= published.items()
    assert not any("layers." in left or "blocks." in left for left in published.keys() - ours.keys())
    for (stack, all_layers), layers in zip(
        vla_sizes.stacks_of(kind, whole).items(), vla_sizes.stacks_of(kind, few).values(), strict=True
    ):
        assert len(layers.layers) == (2 if (kind, stack) == ("smolvla", "smollm2") else layers.kinds)
        for ours_of, theirs in zip(layers.layers, all_layers.layers, strict=False):
            shapes = [[tuple(p.shape) for p in layer.parameters()] for layer in (ours_of, theirs)]
            assert shapes[0] == shapes[1], stack


@every_kind
def test_full_size_models_are_given_what_real_inputs_record(kind: str) -> None:
    with torch.device("meta"):
        full = vla_sizes.full_policy(kind, 1)
    records = [
        full.inputs.record({}, torch.device("meta")),
        vla_sizes.tiny_policy(kind).inputs.record(vla_sizes.tiny_observations(1), CPU),
    ]
    seen = [{(name.partition(".")[0], tensor.dtype, tensor.ndim) for name, tensor in each.items()} for each in records]
    assert seen[0] == seen[1]


def test_a_layers_update_counts_every_call_and_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [Block() for _ in range(3)]
    shared = torch.ones(4, 8)
    cost = {id(blocks[0]): 1.0, id(blocks[1]): 2.0, id(blocks[2]): 4.0}

    def seconds(call: Any, device: torch.device, repeats: int) -> float:
        for block in blocks:
            block.zero_grad()
        call()
        (block,) = [block for block in blocks if block.up.weight.grad is not None]
        return cost[id(block)]

    def evaluate() -> torch.Tensor:
        # The first block sees two images.
        x = blocks[0](torch.ones(4, 8), shared=shared) + blocks[0](torch.zeros(4, 8), shared=shared)
        for block in blocks[1:]:
            x = block(x, shared=shared)
        return x

    monkeypatch.setattr(vla_layers, "seconds", seconds)
    stacks = {"tower": Stack(blocks[:1]), "expert": Stack(blocks[1:], kinds=2)}
    assert vla_layers.layer_updates(stacks, evaluate, CPU) == {"tower": 2.0, "expert": 3.0}


def test_every_kind_is_asked_every_question() -> None:
    names = set(vla_throughput.contenders(CPU))
    assert {f"{part}/{kind}" for part in ("tiny", "layers", "memory", "memory/tiny") for kind in KINDS} <= names
