"""The inference group's log-probabilities are the actor's, sync after sync, and training with them is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from rlinf.data.messages.responses import ResponseBatch
from rlinf.errors import WeightSyncError
from rlinf.workers.actor.text_learner import TextLearner
from rlinf.workers.inference.logprob_worker import LogprobWorker
from tests.unit.data.messages.response_samples import batch_of
from tests.unit.hybrid_engines.packing import pack_weights
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.workers.actor.test_text_learner import config, make_learner, make_responses

pytest.importorskip("transformers")

INFERENCE = "+inference={}"
PLACEMENT = "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, tie_word_embeddings=True)
    return folder


def make_worker(folder: Path, *overrides: str) -> Any:
    worker = LogprobWorker(config(folder, INFERENCE, PLACEMENT, *overrides))
    worker.init_worker()
    return worker


def sync(learner: TextLearner, worker: Any, version: int, form: str = "parts") -> None:
    weights = learner.engine.export_weights(form)
    manifest, buckets = pack_weights(weights, version=version, bucket_bytes=1000)
    sent = {entry.name for entry in manifest.entries}
    whole = [entry.name for entry in learner.engine.describe_weights("parts")]
    worker.load(replace(manifest, left_out=tuple(name for name in whole if name not in sent)), buckets)


class Store:
    """Keeps the groups of a batch, as the reward group does."""

    def __init__(self, samples: list[Any]) -> None:
        self.groups = {}
        for sample in samples:
            self.groups.setdefault(sample.group_id, []).append(sample)
        self.groups = {number: batch_of(part) for number, part in self.groups.items()}

    def fetch(self, group_ids: list[int]) -> ResponseBatch:
        return ResponseBatch.concat([self.groups[number] for number in group_ids])

    def put_trainer_logprobs(self, group_id: Any, logprobs: Any) -> None:
        self.groups[group_id] = replace(self.groups[group_id], trainer_logprobs=logprobs)


def computed(worker: Any, samples: list[Any], order: tuple[int, int, int] = (0, 1, 2)) -> ResponseBatch:
    """Return what the worker makes of samples, which come group by group."""
    worker.responses = Store(samples)
    for group_id in order:
        worker.compute_logprobs(group_id)
    return worker.responses.fetch([0, 1, 2])


def sampled_at(samples: list[Any], version: int) -> list[Any]:
    return [replace(sample, versions=(version,) * len(sample.token_ids)) for sample in samples]


KINDS = {
    "whole": (),
    "sharded": ("actor.fsdp_config.sharding_strategy=full_shard",),
    "small passes": ("inference.max_tokens_per_mbs=16",),
    "one by one": (
        "runner.enable_dynamic_batch_size=false",
        "~runner.max_tokens_per_mbs",
        "inference.micro_batch_size=1",
    ),
    "adapters": ("actor.model.is_lora=true", "actor.model.lora_rank=4"),
}


@pytest.mark.parametrize("keys", KINDS.values(), ids=KINDS)
def test_log_probabilities_are_the_actors_before_and_after_each_sync(folder: Path, keys: tuple[str, ...]) -> None:
    cfg = config(folder, INFERENCE, PLACEMENT, *keys)
    learner, worker = make_learner(cfg), make_worker(folder, *keys)
    seen = []
    for step in range(3):
        sync(learner, worker, step, "trained" if step and cfg.actor.model.is_lora else "parts")
        assert worker.version == step
        samples = sampled_at(make_responses(folder), step)
        expected = learner._evaluate(batch_of(samples)).logprobs
        found = computed(worker, samples)
        assert found.responses == batch_of(samples).responses
        torch.testing.assert_close(found.trainer_logprobs, torch.cat(expected), atol=1e-5, rtol=0)
        learner.compute_advantages(found)
        learner.update(step + 1)
        seen.append(torch.cat(expected))
    assert (seen[2] - seen[0]).abs().max() > 1e-2


def test_training_with_the_group_is_training_without(folder: Path) -> None:
    def train(*keys: str) -> list[Any]:
        cfg = config(folder, *keys)
        learner, metrics = make_learner(cfg), []
        worker = None if cfg.inference is None else make_worker(folder)
        for step in range(3):
            samples = sampled_at(make_responses(folder, noise=0.1), step)
            batch = batch_of(samples)
            if worker is not None:
                sync(learner, worker, step)
                batch = computed(worker, samples, order=(2, 0, 1))
            metrics.append(learner.compute_advantages(batch) | learner.update(step + 1))
        return metrics

    for found, expected in zip(train(INFERENCE, PLACEMENT), train(), strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_answers_of_other_weights_are_refused(folder: Path) -> None:
    learner, worker = make_learner(config(folder)), make_worker(folder)
    samples = sampled_at(make_responses(folder), 0)
    with pytest.raises(WeightSyncError, match="the inference group has version -1"):
        computed(worker, sampled_at(samples, -1))
    sync(learner, worker, 1)
    with pytest.raises(WeightSyncError, match="sampled with weights of version 0; the inference group has version 1"):
        computed(worker, samples)
    mixed = [*samples[:3], *sampled_at(samples[3:], 1)]
    with pytest.raises(WeightSyncError, match="version 0, 1; the inference"):
        computed(worker, mixed)
    later = [*sampled_at(samples[:3], 1), *sampled_at(samples[3:], 2)]
    with pytest.raises(WeightSyncError, match="version 1, 2; the inference"):
        computed(worker, later)


def test_adapters_without_what_they_are_added_to_are_refused(folder: Path) -> None:
    keys = KINDS["adapters"]
    learner, worker = make_learner(config(folder, *keys)), make_worker(folder, *keys)
    with pytest.raises(WeightSyncError, match="does not have the weights that stay as they are"):
        sync(learner, worker, 0, "trained")


def test_a_damaged_update_leaves_the_weights_as_they_are(folder: Path) -> None:
    learner, worker = make_learner(config(folder)), make_worker(folder)
    sync(learner, worker, 0)
    manifest, buckets = pack_weights(learner.engine.export_weights(), version=1, bucket_bytes=1000)
    damaged = [bucket.clone() for bucket in buckets]
    damaged[-1][0] += 1
    with pytest.raises(WeightSyncError, match="wrong checksum"):
        worker.load(manifest, damaged)
    before = computed(worker, sampled_at(make_responses(folder), 0))
    assert len(before.trainer_logprobs) == len(before.token_ids)
    with pytest.raises(WeightSyncError, match="has version 0"):
        computed(worker, sampled_at(make_responses(folder), 1))
    worker.load(manifest, buckets)
    found = computed(worker, sampled_at(make_responses(folder), 1))
    assert len(found.trainer_logprobs) == len(found.token_ids)


def test_half_an_update_is_never_computed_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, worker = make_learner(config(folder)), make_worker(folder)
    sync(learner, worker, 0)
    manifest, buckets = pack_weights(learner.engine.export_weights(), version=1, bucket_bytes=1000)

    def fail(weights: object) -> NoReturn:
        raise WeightSyncError("no memory")

    with monkeypatch.context() as broken:
        broken.setattr(worker.engine, "import_weights", fail)
        with pytest.raises(WeightSyncError, match="no memory"):
            worker.load(manifest, buckets)
    for version in (0, 1):
        with pytest.raises(WeightSyncError, match="has version -1"):
            computed(worker, sampled_at(make_responses(folder), version))
    worker.load(manifest, buckets)
    assert len(computed(worker, sampled_at(make_responses(folder), 1)).trainer_logprobs)


def test_weights_of_another_model_are_refused(folder: Path) -> None:
    worker = make_worker(folder)
    weights = dict(make_learner(config(folder)).engine.export_weights())
    norm = weights.pop("model.norm.weight")
    manifest, buckets = pack_weights(weights.items(), version=0, bucket_bytes=1000)
    with pytest.raises(WeightSyncError, match=r"missing \['model.norm.weight'\], unexpected \[\]"):
        worker.load(manifest, buckets)
    manifest, buckets = pack_weights({**weights, "model.norm.weight": norm[:1]}.items(), version=0, bucket_bytes=1000)
    with pytest.raises(WeightSyncError, match=r"'model.norm.weight' has shape \(1,\), the model expects \(16,\)"):
        worker.load(manifest, buckets)


def compute_on_rank(rank: int, folder: Path, weights: list[tuple[str, torch.Tensor]], samples: list[Any]) -> Any:
    """Return what a rank of two that share a model leaves with the reward group, and how much of a weight it holds."""
    keys = ("inference.shard_model=true", "actor.fsdp_config.sharding_strategy=full_shard")
    placement = "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: '0:0-1'}"
    worker: Any = LogprobWorker(config(folder, INFERENCE, placement, *keys))
    worker._rank, worker._world_size = rank, 2
    worker.init_worker()
    manifest, buckets = pack_weights(iter(weights), version=0, bucket_bytes=1000)
    worker.load(manifest, buckets)
    assert (worker.engine.rank, worker.engine.world_size) == (rank, 2)
    parameter = next(iter(worker.engine.model.parameters()))
    return computed(worker, samples).trainer_logprobs, parameter.to_local().numel() / parameter.numel()


def test_ranks_that_share_a_model_compute_the_actors_log_probabilities_together(folder: Path) -> None:
    learner = make_learner(config(folder, INFERENCE, PLACEMENT))
    samples = sampled_at(make_responses(folder), 0)
    expected = learner._evaluate(batch_of(samples)).logprobs
    weights = [(name, tensor.clone()) for name, tensor in learner.engine.export_weights("parts")]
    (found, share), (left, other_share) = run_ranks(2, compute_on_rank, folder, weights, samples)
    torch.testing.assert_close(found, torch.cat(expected), atol=1e-5, rtol=0)
    assert left is None, "one rank answers"
    assert (share, other_share) == (0.5, 0.5)
