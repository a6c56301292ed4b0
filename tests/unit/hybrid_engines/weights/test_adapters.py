"""Adapters travel alone, and an engine's weights are those of the whole export; nothing is taken for granted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rlinf.config.schema.generation import HFGenerationConfig
from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.generation import generation_engines
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.weights.adapters import AdapterMerger, MergingReceiver
from rlinf.hybrid_engines.weights.bucket import Manifest, fill_buckets, plan_buckets
from rlinf.models import get_model
from tests.unit.hybrid_engines.packing import zeros
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

pytest.importorskip("transformers")
pytest.importorskip("peft")

SIZES = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 200}
LORA = {"is_lora": True, "lora_rank": 2, "lora_alpha": 3.0, "lora_target_modules": ["q_proj", "v_proj", "down_proj"]}


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    model = save_tiny(folder, tie_word_embeddings=request.param, **SIZES)
    # Some weights are exact in bfloat16, as in models that were published in it, and some are not.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layers.0" in name:
                parameter.copy_(parameter.bfloat16())
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


class Sender:
    """A model in training."""

    def __init__(self, folder: Path, sharding: str = "no_shard") -> None:
        torch.manual_seed(0)
        self.engine = FSDPEngine(
            get_model(tiny_config(folder, **LORA)),
            optim=OptimConfig(lr=1e-2),
            fsdp=FSDPConfig(sharding_strategy=sharding),
            precision="fp32",
            device=torch.device("cpu"),
        )

    def train(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        state = {name: t.clone() for name, t in self.engine.export_weights("adapters")}
        for tensor in state.values():
            tensor.add_(0.2 * torch.randn(tensor.shape, generator=generator))
        self.engine.import_weights(state.items())

    def pack(self, version: int, form: str) -> tuple[Manifest, list[torch.Tensor]]:
        sent = {entry.name: entry.tensor for entry in self.engine.describe_weights(form)}
        names = [entry.name for entry in self.engine.describe_weights("parts")]
        left_out = [name for name in names if name not in sent]
        manifest = plan_buckets(sent.items(), version=version, bucket_bytes=4000, left_out=left_out)
        return manifest, list(fill_buckets(manifest, self.engine.export_weights(form), zeros))

    def merged(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.engine.export_weights()}


@pytest.fixture
def engine(folder: Path) -> Any:
    engine = generation_engines.get("hf")(
        HFGenerationConfig(rollout_backend="hf"),
        model_path=folder,
        device=torch.device("cpu"),
        precision="fp32",
        seed=0,
        max_context_tokens=32,
    )
    # What it needs of a tokenizer is read with the first answer, which nobody asks for here.
    engine._scheduler.model_runner.load()
    return engine._scheduler


def load(schedule: Any, manifest: Manifest, buckets: Iterator[torch.Tensor]) -> None:
    schedule.begin_update(manifest)
    for index, bucket in enumerate(buckets):
        schedule.load_bucket(index, bucket)
    schedule.commit()


def assert_holds(schedule: Any, expected: dict[str, torch.Tensor]) -> None:
    found = schedule.model_runner.read_weights(list(expected))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=1e-6, rtol=0, msg=name)


@pytest.mark.parametrize("sharding", ["no_shard", "full_shard"])
def test_an_engine_has_the_weights_of_the_whole_export_after_every_sync(
    folder: Path, engine: Any, sharding: str
) -> None:
    sender, merger = Sender(folder, sharding), AdapterMerger(tiny_config(folder, **LORA), bucket_bytes=9000)
    assert not engine.is_synced
    seen = []
    for version in range(4):
        sender.train(version)
        merger.take_all(*sender.pack(version, "trained" if version else "parts"))
        manifest, buckets = merger.pack(is_partial=version > 0)
        names = {entry.name for entry in manifest.entries}
        assert names == (set(sender.merged()) if not version else {n for n in sender.merged() if _is_adapted(n)})
        load(engine, manifest, buckets)
        assert (engine.version, engine.is_synced) == (version, True)
        assert_holds(engine, sender.merged())
        seen.append(sender.merged()["model.layers.1.self_attn.q_proj.weight"])
    assert (seen[0] - seen[3]).abs().max() > 0.1


def _is_adapted(name: str) -> bool:
    return name.endswith(tuple(f"{module}.weight" for module in LORA["lora_target_modules"]))


def test_adapters_are_a_small_part_of_what_travels(tmp_path: Path) -> None:
    save_tiny(tmp_path, hidden_size=256, intermediate_size=512, vocab_size=1000)
    sender = Sender(tmp_path)
    (whole, _), (alone, buckets) = sender.pack(0, "parts"), sender.pack(0, "trained")
    assert sum(bucket.nbytes for bucket in buckets) == sum(alone.bucket_sizes) < 0.05 * sum(whole.bucket_sizes)


def test_a_receiver_that_has_the_parts_can_fill_an_engine_that_lost_its_weights(folder: Path, engine: Any) -> None:
    sender, merger = Sender(folder), AdapterMerger(tiny_config(folder, **LORA), bucket_bytes=9000)
    merger.take_all(*sender.pack(0, "parts"))
    sender.train(1)
    merger.take_all(*sender.pack(1, "trained"))
    load(engine, *merger.pack(is_partial=False))
    assert_holds(engine, sender.merged())


def test_weights_of_another_model_are_refused_when_they_are_merged(folder: Path) -> None:
    model = nn.Linear(2, 2)
    before = [parameter.clone() for parameter in model.parameters()]
    receiver = MergingReceiver(model, tiny_config(folder, **LORA))
    with pytest.raises(WeightSyncError, match=r"do not match the model: missing \['bias', 'weight'\]"):
        receiver.load(*Sender(folder).pack(0, "parts"))
    assert receiver.version == -1
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True))


def test_a_partial_update_without_a_complete_one_is_refused(folder: Path, engine: Any) -> None:
    sender, merger = Sender(folder), AdapterMerger(tiny_config(folder, **LORA), bucket_bytes=9000)
    merger.take_all(*sender.pack(0, "parts"))
    merger.take_all(*sender.pack(0, "trained"))
    manifest, _ = merger.pack(is_partial=True)
    with pytest.raises(WeightSyncError, match="does not have the weights that stay .* Send all weights first"):
        engine.begin_update(manifest)
    # One that has begun a complete update, and not ended it, has them no more either.
    load(engine, *merger.pack(is_partial=False))
    engine.begin_update(merger.pack(is_partial=False)[0])
    with pytest.raises(WeightSyncError, match="Send all weights first"):
        engine.begin_update(manifest)


def test_a_receiver_refuses_adapters_of_what_it_does_not_have(folder: Path) -> None:
    sender, merger = Sender(folder), AdapterMerger(tiny_config(folder, **LORA), bucket_bytes=9000)
    with pytest.raises(WeightSyncError, match="Send all weights first"):
        merger.begin(sender.pack(0, "trained")[0])
    manifest, buckets = sender.pack(0, "parts")
    merger.take_all(manifest, buckets)
    adapters, _ = sender.pack(1, "trained")
    with pytest.raises(WeightSyncError, match="missing"):
        merger.begin(replace(adapters, entries=adapters.entries[1:]))
    # A bucket that is lost leaves the receiver without parts that belong together.
    merger.begin(sender.pack(1, "trained")[0])
    with pytest.raises(WeightSyncError, match="missing: 0"):
        merger.finish()
    with pytest.raises(WeightSyncError, match="Send all weights first"):
        merger.begin(sender.pack(2, "trained")[0])
    merger.take_all(*sender.pack(2, "parts"))
    assert merger.version == 2
