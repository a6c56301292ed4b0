"""Every layout computes what transformers computes, for every family: one engine for all checks of a layout."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.errors import NumericalError
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.models.language.language_model import LanguageModel
from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.train.conformance import (
    EPSILON,
    SEQUENCES,
    Setting,
    Tensors,
    assert_close,
    assert_same,
    batches_of,
    call,
    gradients_of,
    learn,
    loss_pass,
    parameters_of,
    prepared,
    reference,
    share_of,
    tokens_of,
)
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.hybrid_engines.train.test_fsdp_conformance import make_engine as make_fsdp

pytest.importorskip("transformers")
pytest.importorskip("megatron.core")

from tests.unit.hybrid_engines.train.megatron.megatron_engines import make_engine

pytestmark = pytest.mark.timeout(600)
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
SIZES |= {"vocab_size": 129, "num_hidden_layers": 4, "head_dim": 16}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}


def save(folder: Path, family: str) -> Path:
    """Write a random model of a family, unless it is there."""
    import transformers

    path = folder / family
    if path.exists():
        return path
    config, keys = {
        "llama": ("Llama", {"tie_word_embeddings": False}),
        "mistral": ("Mistral", {"tie_word_embeddings": False, "sliding_window": 4}),
        # The padding token is among the tokens: transformers does not train its row of the embeddings.
        "qwen3": ("Qwen3", {"tie_word_embeddings": True, "pad_token_id": 7}),
        "experts": ("Qwen3Moe", {"tie_word_embeddings": False, **EXPERTS}),
    }[family]
    torch.manual_seed(3)
    model = getattr(transformers, f"{config}ForCausalLM")(getattr(transformers, f"{config}Config")(**SIZES, **keys))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the models are."""
    return tmp_path_factory.mktemp("models")


def compute(rank: int, setting: Setting) -> tuple[torch.Tensor, Tensors, list[float], dict[str, float], list[Tensors]]:
    """Return tokens, gradients, metrics and a step's report, and the weights before and after it."""
    engine = prepared(make_engine, setting, rank)
    before = parameters_of(engine)
    (tokens,) = engine.forward(batches_of([SEQUENCES]), Pass(call, tokens_of))
    sums = engine.forward_backward(share_of(engine), loss_pass(engine.world_size))
    gradients, metrics = gradients_of(engine), engine.all_reduce(sums["loss"]).tolist()
    report = engine.step()
    return tokens, gradients, metrics, report, [before, parameters_of(engine)]


LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("qwen3", {"context": 2}),
    ("qwen3", {"tensor": 2, "sequence": True, "recompute": "full"}),
    ("mistral", {"pipeline": 2, "virtual_pipeline": 2}),
    ("experts", {"tensor": 2, "expert_tensor": 2, "sequence": True}),
    ("experts", {"data": 2, "tensor": 2, "expert": 2, "sequence": True}),
]
# Each costs up to twenty seconds of processors, and combines what the ones above show alone.
FURTHER_LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("qwen3", {"data": 2, "recompute": "selective", "overlap_grad_reduce": True}),
    ("qwen3", {"tensor": 2, "pipeline": 2, "sequence": True}),
    ("llama", {"tensor": 2, "sequence": True}),
    ("llama", {"pipeline": 2}),
    ("llama", {"tensor": 2, "context": 2, "sequence": True}),
    ("mistral", {"tensor": 2, "sequence": True}),
    ("mistral", {"context": 2}),
    ("experts", {}),
    ("experts", {"data": 2, "expert": 2}),
    ("experts", {"data": 2, "expert": 2, "context": 2}),
]
ALL_LAYOUTS = [
    *[pytest.param(family, axes, id=f"{family} {axes}") for family, axes in LAYOUTS],
    *[pytest.param(family, axes, id=f"{family} {axes}", marks=pytest.mark.slow) for family, axes in FURTHER_LAYOUTS],
]


@pytest.mark.parametrize(("family", "axes"), ALL_LAYOUTS)
def test_a_layout_computes_what_transformers_computes(folder: Path, family: str, axes: dict[str, Any]) -> None:
    path = save(folder, family)
    engine = {key: axes[key] for key in ("recompute", "overlap_grad_reduce") if key in axes}
    layout = ParallelLayout(**{"data": 1, **{key: value for key, value in axes.items() if key not in engine}})
    setting = Setting(layout, path, model={"add_value_head": True}, engine=engine)
    expected = reference(path)
    found = run_ranks(setting.layout.world_size, compute, setting)
    for tokens, gradients, metrics, report, (before, after) in found:
        assert (tokens - expected.tokens).abs().max() < 1e-5
        assert_close(gradients, expected.gradients, 2e-5)
        assert metrics == pytest.approx(expected.metrics, rel=1e-5)
        norm = torch.stack([gradient.square().sum() for gradient in expected.gradients.values()]).sum().sqrt()
        assert report["grad_norm"] == pytest.approx(float(norm), rel=1e-5)
        assert all(not torch.equal(before[name], after[name]) for name in before)
        assert_same(after, found[0][-1][1])


def differentiate_three(rank: int, setting: Setting) -> Tensors:
    """Return the gradient of three micro-batches, of which two stages of the interleaved schedule need four."""
    engine = prepared(make_engine, setting, rank)
    groups = [SEQUENCES[:2], SEQUENCES[2:4], SEQUENCES[4:]]
    engine.forward_backward(share_of(engine, groups), loss_pass(engine.world_size))
    return gradients_of(engine)


def test_padding_of_the_interleaved_schedule_counts_nowhere(folder: Path) -> None:
    path = save(folder, "mistral")
    layout = ParallelLayout(data=1, pipeline=2, virtual_pipeline=2)
    setting = Setting(layout, path, model={"add_value_head": True})
    for gradients in run_ranks(2, differentiate_three, setting):
        assert_close(gradients, reference(path).gradients, 2e-5)


def differentiate_alone(rank: int, setting: Setting) -> Tensors:
    """Return the gradient where one replica has all samples, and the other padding."""
    engine = prepared(make_engine, setting, rank)
    engine.forward_backward(share_of(engine, [SEQUENCES]), loss_pass(engine.world_size))
    return gradients_of(engine)


def test_experts_learn_from_samples_of_one_replica(folder: Path) -> None:
    path = save(folder, "experts")
    setting = Setting(ParallelLayout(data=2, expert=2), path, model={"add_value_head": True})
    for gradients in run_ranks(2, differentiate_alone, setting):
        assert_close(gradients, reference(path).gradients, 2e-5)


def spoil(rank: int, setting: Setting) -> tuple[bool, bool]:
    """Return whether a gradient of the first rank that is not finite is an error here, and no weight changes."""
    engine = prepared(make_engine, setting, rank)
    before = parameters_of(engine)
    engine.forward_backward(share_of(engine), loss_pass(engine.world_size))
    if rank == 0:
        engine.chunks[0].buffers[0].grad_data[0] = math.nan
    try:
        engine.step()
    except NumericalError:
        return True, all(torch.equal(before[name], tensor) for name, tensor in parameters_of(engine).items())
    return False, False


def test_a_gradient_that_is_not_finite_on_one_stage_stops_all(folder: Path) -> None:
    setting = Setting(ParallelLayout(data=1, pipeline=2), save(folder, "qwen3"))
    assert run_ranks(2, spoil, setting) == [(True, True)] * 2


def take_steps(rank: int, setting: Setting, steps: int) -> tuple[Tensors, int]:
    """Return this rank's copies of the tied embeddings after some steps, and the parameters of all layers."""
    engine = make_engine(setting, rank)
    for _ in range(steps):
        engine.forward_backward(share_of(engine), loss_pass(engine.world_size))
        engine.step()
    copies = {name: engine.shards.fused[name].detach().clone() for name in engine.shards.fused if "layers" not in name}
    assert isinstance(engine.model, LanguageModel)
    return copies, engine.model.num_layer_parameters


def test_copies_of_tied_embeddings_stay_equal_over_stages(folder: Path) -> None:
    path = save(folder, "qwen3")
    setting = Setting(ParallelLayout(data=1, pipeline=2), path, optim={"lr": 1e-2})
    (first, one), (last, other) = run_ranks(2, take_steps, setting, 5)
    assert torch.equal(first["embedding.weight"], last["head.weight"])
    layers = [gradient for name, gradient in reference(path).gradients.items() if "layers" in name]
    assert one == other == sum(gradient.numel() for gradient in layers)


def go_on(rank: int, setting: Setting, source: Path, steps: int, target: Path | None = None) -> Tensors:
    """Load a checkpoint, make steps, and write another; return the parameters."""
    return learn(rank, make_engine, setting, steps, source, target)[0]


def test_a_run_goes_on_from_fsdp_over_layouts_and_back(folder: Path, tmp_path: Path) -> None:
    path, keys = save(folder, "experts"), {"optim": {"lr": 1e-3, "adam_eps": EPSILON}}
    one = Setting(ParallelLayout(data=1), path, **keys)
    spread = Setting(ParallelLayout(data=2, expert=2), path, **keys)
    stages = Setting(ParallelLayout(data=1, tensor=2, expert_tensor=2, sequence=True), path, **keys)
    (expected, _), *_ = run_ranks(1, learn, make_fsdp, one, 4)
    run_ranks(1, learn, make_fsdp, one, 1, None, tmp_path / "fsdp")
    run_ranks(2, go_on, spread, tmp_path / "fsdp", 1, tmp_path / "experts")
    run_ranks(2, go_on, stages, tmp_path / "experts", 1, tmp_path / "tensor")
    (found, _), *_ = run_ranks(1, learn, make_fsdp, one, 1, tmp_path / "tensor")
    assert_close(found, expected, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "axes",
    [
        {"tensor": 2, "sequence": True},
        {"pipeline": 2},
        {"context": 2},
        {"tensor": 2, "pipeline": 2, "sequence": True},
        {"data": 2, "tensor": 2},
    ],
    ids=str,
)
def test_checkpoints_of_either_engine_go_on_under_the_other(folder: Path, tmp_path: Path, axes: dict[str, Any]) -> None:
    # The fast test above goes around once, with experts; here is every dense layout, both ways.
    keys: dict[str, Any] = {
        "folder": save(folder, "qwen3"),
        "model": {"add_value_head": True},
        "optim": {"lr": 1e-3, "adam_eps": EPSILON},
    }
    sharded = Setting(layout=ParallelLayout(data=2), sharded=True, **keys)
    spread = Setting(layout=ParallelLayout(**{"data": 1, **axes}), **keys)
    ranks = spread.layout.world_size
    expected, _ = run_ranks(2, learn, make_fsdp, sharded, 3)[0]
    run_ranks(2, learn, make_fsdp, sharded, 1, None, tmp_path / "fsdp")
    for found, _ in run_ranks(ranks, learn, make_engine, spread, 2, tmp_path / "fsdp"):
        assert_close(found, expected, 1e-5)
    run_ranks(ranks, learn, make_engine, spread, 1, None, tmp_path / "megatron")
    for found, _ in run_ranks(2, learn, make_fsdp, sharded, 2, tmp_path / "megatron"):
        assert_close(found, expected, 1e-5)
