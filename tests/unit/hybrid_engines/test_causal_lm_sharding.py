"""A language model trains the same whole or sharded, recomputed or not, and is saved whole.

Two ranks are compared with one in ``tests/unit/workers/actor/test_text_gradients.py``.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.data.packing import pack_sequences
from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.train.chunks import stored_tensors, write_state
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.state import training_state
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.hybrid_engines.train.weight_files import open_weights
from rlinf.models import get_model
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

SEQUENCES = [[5, 6, 7, 8, 9, 10], [1, 2], [3, 4, 5, 6, 7, 8, 9, 11, 12, 33], [2, 1, 30]]
KINDS = {
    "tied": ({"tie_word_embeddings": True}, {"add_value_head": True}),
    "untied": ({"tie_word_embeddings": False}, {"add_value_head": True}),
    "adapters": ({"tie_word_embeddings": True}, {"is_lora": True, "lora_rank": 2}),
}


def make_engine(
    folder: Path, *, sharding: str = "no_shard", recompute: bool = False, precision: str = "fp32", keys: Any = None
) -> FSDPEngine:
    torch.manual_seed(0)
    model = get_model(tiny_config(folder, precision=precision, **(keys or {})))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or name.startswith("value_head"):
                parameter.normal_(std=0.1)
    return FSDPEngine(
        model,
        optim=OptimConfig(lr=1e-2),
        fsdp=FSDPConfig(sharding_strategy=sharding, gradient_checkpointing=recompute),
        precision=precision,
        device=torch.device("cpu"),
    )


def loss_fn(result: Any, packed: Any) -> tuple[Any, dict[Any, Any]]:
    loss = -result.logprobs.sum() - 0.1 * result.entropy.sum()
    if result.values is not None:
        loss = loss + result.values.square().sum()
    return loss, {}


LOSS = Pass(lambda model, packed: model(packed, temperature=0.8), loss_fn)
LOGPROBS = Pass(lambda model, packed: model(packed), lambda result, packed: result.logprobs)


def train(engine: FSDPEngine) -> dict[Any, Any]:
    """The weights after two optimizer steps, one micro-batch per sequence."""
    for _ in range(2):
        engine.forward_backward([pack_sequences([sequence]) for sequence in SEQUENCES], LOSS)
        engine.step()
    return {name: tensor.clone() for name, tensor in engine.export_weights()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind, (sizes, _) in KINDS.items():
        save_tiny(folder / kind, **sizes)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recompute", [False, True])
def test_sharding_and_recomputing_change_nothing_on_one_rank(folder: Path, kind: str, recompute: bool) -> None:
    keys = KINDS[kind][1]
    expected = train(make_engine(folder / kind, keys=keys))
    actual = train(make_engine(folder / kind, sharding="full_shard", recompute=recompute, keys=keys))
    assert set(actual) == set(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
    before = dict(get_model(tiny_config(folder / kind)).export(lambda tensor: tensor))
    assert not torch.equal(before["model.layers.0.mlp.up_proj.weight"], expected["model.layers.0.mlp.up_proj.weight"])


@pytest.mark.parametrize("kind", KINDS)
def test_low_precision_keeps_master_weights_and_comes_close(folder: Path, kind: str) -> None:
    keys = KINDS[kind][1]
    full, low = (make_engine(folder / kind, sharding="full_shard", precision=p, keys=keys) for p in ("fp32", "bf16"))
    packed, seen = pack_sequences(SEQUENCES), []
    low.model.lm_head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    expected, actual = (e.forward([packed], LOGPROBS)[0] for e in (full, low))
    assert actual.dtype == torch.float32
    assert seen == [torch.bfloat16]
    assert not torch.equal(actual, expected)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0.3)
    assert all(tensor.dtype == torch.float32 for tensor in train(low).values())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sharding", ["no_shard", "full_shard"])
def test_weights_are_described_as_they_are_exported(folder: Path, kind: str, sharding: str) -> None:
    engine = make_engine(folder / kind, sharding=sharding, keys=KINDS[kind][1])
    exported = [(name, tensor.shape, tensor.dtype) for name, tensor in engine.export_weights()]
    described = {entry.name: entry.tensor for entry in engine.describe_weights()}
    assert exported == [(name, tensor.shape, tensor.dtype) for name, tensor in described.items()]
    assert all(tensor.is_meta for tensor in described.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_engine_continues_bit_for_bit_and_reshards(folder: Path, kind: str, tmp_path: Path) -> None:
    keys = KINDS[kind][1]
    undisturbed = make_engine(folder / kind, keys=keys)
    train(undisturbed)
    undisturbed.save(tmp_path)
    for sharding in ("no_shard", "full_shard"):
        resumed = make_engine(folder / kind, sharding=sharding, keys=keys)
        resumed.load(tmp_path)
        saved = dict(undisturbed.export_weights())
        assert all(torch.equal(saved[name], tensor) for name, tensor in resumed.export_weights()), sharding
    continued = make_engine(folder / kind, keys=keys)
    continued.load(tmp_path)
    a, b = train(undisturbed), train(continued)
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("sharding", ["no_shard", "full_shard"])
@pytest.mark.parametrize("kind", ["tied", "untied"])
def test_weights_of_another_engine_are_taken_over(folder: Path, kind: str, sharding: str) -> None:
    source = make_engine(folder / kind)
    weights = train(source)
    model = get_model(tiny_config(folder / kind)).requires_grad_(False)
    copy = FSDPEngine(
        model,
        optim=None,
        fsdp=FSDPConfig(sharding_strategy=sharding),
        precision="fp32",
        device=torch.device("cpu"),
    )
    packed = pack_sequences(SEQUENCES)

    def logprobs(engine: FSDPEngine) -> torch.Tensor:
        return engine.forward([packed], LOGPROBS)[0]

    before = logprobs(copy)
    copy.import_weights(weights.items())
    torch.testing.assert_close(logprobs(copy), logprobs(source), rtol=0, atol=1e-6)
    assert (logprobs(copy) - before).abs().max() > 1e-3
    for name, tensor in copy.export_weights():
        assert torch.equal(tensor, weights[name])
    for wrong in ({"model.nrm.weight": torch.ones(16)}, {"model.norm.weight": torch.ones(8)}):
        with pytest.raises(WeightSyncError, match="the model has"):
            copy.import_weights(wrong.items())


EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "head_dim": 8}


def save_experts(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.Qwen3MoeConfig(**sizes, **EXPERTS, vocab_size=40, num_hidden_layers=2)
    transformers.Qwen3MoeForCausalLM(config).save_pretrained(folder)


def expert_engine(folder: Path, rank: int = 0, world_size: int = 1) -> FSDPEngine:
    return FSDPEngine(
        get_model(tiny_config(folder), on_meta=True),
        optim=OptimConfig(lr=1e-2),
        fsdp=FSDPConfig(),
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=world_size,
    )


def save_experts_state(rank: int, model: Path, folder: Path, world_size: int) -> dict[str, torch.Tensor]:
    engine = expert_engine(model, rank, world_size)
    weights = train(engine)
    engine.save(folder)
    return weights


def load_experts_state(rank: int, model: Path, folder: Path, world_size: int) -> dict[str, torch.Tensor]:
    engine = expert_engine(model, rank, world_size)
    engine.load(folder)
    return {name: tensor.clone() for name, tensor in engine.export_weights()}


@pytest.mark.parametrize("ranks", [(1, 2), (2, 1)])
def test_experts_are_stored_by_the_names_that_files_give_them(tmp_path: Path, ranks: tuple[int, int]) -> None:
    save_experts(tmp_path / "model")
    saving, loading = ranks
    saved = run_ranks(saving, save_experts_state, tmp_path / "model", tmp_path / "state", saving)[0]
    stored = open_weights(tmp_path / "state").described
    files = open_weights(tmp_path / "model").described
    assert {name: tensor.shape for name, tensor in stored.items()} == {name: t.shape for name, t in files.items()}
    for loaded in run_ranks(loading, load_experts_state, tmp_path / "model", tmp_path / "state", loading):
        for name, tensor in saved.items():
            assert torch.equal(loaded[name], tensor), name
    moments = [f"optimizer.state.{name}.{moment}" for name in files for moment in ("exp_avg", "exp_avg_sq", "step")]
    assert not set(moments) - stored_tensors(tmp_path / "state").keys()


def test_former_checkpoints_with_stacked_experts_and_adapters_still_load(tmp_path: Path, folder: Path) -> None:
    save_experts(tmp_path / "experts")
    models = {"experts": (tmp_path / "experts", {}), "adapters": (folder / "adapters", KINDS["adapters"][1])}
    for kind, (path, keys) in models.items():
        engine = make_engine(path, keys=keys)
        train(engine)
        own = training_state(engine.model, engine._adams(), engine._extra_state(), file_names={})
        write_state(tmp_path / kind / "former", own)
        fresh = make_engine(path, keys=keys)
        fresh.load(tmp_path / kind / "former")
        found, expected = train(fresh), train(engine)
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor), (kind, name)


def test_a_checkpoint_with_adapters_has_the_weights_under_their_own_names(tmp_path: Path, folder: Path) -> None:
    engine = make_engine(folder / "adapters", keys=KINDS["adapters"][1])
    engine.save(tmp_path)
    names = {name for name in open_weights(tmp_path).described if "lora_" not in name}
    assert names == open_weights(folder / "adapters").described.keys()
    engine.load(tmp_path)
