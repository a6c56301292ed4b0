"""The inference group's log-probabilities are the actor's, sync after sync, and training with them is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlinf.errors import WeightSyncError
from rlinf.workers.inference.logprob_worker import LogprobWorker
from tests.unit.hybrid_engines.packing import pack_weights
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.workers.actor.test_text_learner import config, make_answers, make_learner

pytest.importorskip("transformers")

INFERENCE = "+inference={}"
PLACEMENT = "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, tie_word_embeddings=True)
    return folder


def make_worker(folder, *overrides):
    worker = LogprobWorker(config(folder, INFERENCE, PLACEMENT, *overrides), 1)
    worker.init_worker()
    return worker


def sync(learner, worker, version, form="parts"):
    weights = learner.engine.export_weights(form)
    manifest, buckets = pack_weights(weights, version=version, bucket_bytes=1000)
    worker.load(replace(manifest, is_partial=form == "adapters"), iter(buckets).__next__)


def sampled_at(answers, version):
    return [replace(answer, versions=(version,) * len(answer.token_ids)) for answer in answers]


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
def test_log_probabilities_are_the_actors_before_and_after_each_sync(folder, keys):
    cfg = config(folder, INFERENCE, PLACEMENT, *keys)
    learner, worker = make_learner(cfg), make_worker(folder, *keys)
    seen = []
    for step in range(3):
        sync(learner, worker, step, "adapters" if step and cfg.actor.model.is_lora else "parts")
        assert worker.version == step
        answers = sampled_at(make_answers(folder), step)
        expected, _ = learner._evaluate(answers)
        # Groups come one at a time.
        found = [evaluated for first in (0, 4, 8) for evaluated in worker.compute_logprobs(answers[first : first + 4])]
        assert [replace(answer, trainer_logprobs=()) for answer in found] == answers
        for answer, logprobs in zip(found, expected, strict=True):
            torch.testing.assert_close(torch.tensor(answer.trainer_logprobs), logprobs, atol=1e-5, rtol=0)
        learner.compute_advantages(found)
        learner.update(step + 1)
        seen.append(torch.cat(expected))
    assert (seen[2] - seen[0]).abs().max() > 1e-2


def test_training_with_the_group_is_training_without(folder):
    def train(*keys):
        cfg = config(folder, *keys)
        learner, metrics = make_learner(cfg), []
        worker = None if cfg.inference is None else make_worker(folder)
        for step in range(3):
            answers = sampled_at(make_answers(folder, noise=0.1), step)
            if worker is not None:
                sync(learner, worker, step)
                answers = [one for first in (8, 0, 4) for one in worker.compute_logprobs(answers[first : first + 4])]
            metrics.append(learner.compute_advantages(answers) | learner.update(step + 1))
        return metrics

    for found, expected in zip(train(INFERENCE, PLACEMENT), train(), strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_answers_of_other_weights_are_refused(folder):
    learner, worker = make_learner(config(folder)), make_worker(folder)
    answers = sampled_at(make_answers(folder), 0)
    with pytest.raises(WeightSyncError, match="the inference group has version -1"):
        worker.compute_logprobs(sampled_at(answers, -1))
    sync(learner, worker, 1)
    with pytest.raises(WeightSyncError, match="sampled with weights of version 0; the inference group has version 1"):
        worker.compute_logprobs(answers)
    mixed = [*answers[:3], *sampled_at(answers[3:4], 1)]
    with pytest.raises(WeightSyncError, match="version 0, 1; the inference"):
        worker.compute_logprobs(mixed)


def test_adapters_without_what_they_are_added_to_are_refused(folder):
    keys = KINDS["adapters"]
    learner, worker = make_learner(config(folder, *keys)), make_worker(folder, *keys)
    with pytest.raises(WeightSyncError, match="does not have the weights that they are added to"):
        sync(learner, worker, 0, "adapters")


def test_half_an_update_is_never_computed_with(folder):
    learner, worker = make_learner(config(folder)), make_worker(folder)
    sync(learner, worker, 0)
    manifest, buckets = pack_weights(learner.engine.export_weights(), version=1, bucket_bytes=1000)
    damaged = [bucket.clone() for bucket in buckets]
    damaged[-1][0] += 1
    with pytest.raises(WeightSyncError, match="wrong checksum"):
        worker.load(manifest, iter(damaged).__next__)
    for version in (0, 1):
        with pytest.raises(WeightSyncError, match="has version -1"):
            worker.compute_logprobs(sampled_at(make_answers(folder), version))
    worker.load(manifest, iter(buckets).__next__)
    assert len(worker.compute_logprobs(sampled_at(make_answers(folder), 1))) == 12


def test_weights_of_another_model_are_refused(folder):
    worker = make_worker(folder)
    weights = dict(make_learner(config(folder)).engine.export_weights())
    norm = weights.pop("model.norm.weight")
    manifest, buckets = pack_weights(weights.items(), version=0, bucket_bytes=1000)
    with pytest.raises(WeightSyncError, match=r"missing \['model.norm.weight'\], unexpected \[\]"):
        worker.load(manifest, iter(buckets).__next__)
    manifest, buckets = pack_weights({**weights, "model.norm.weight": norm[:1]}.items(), version=0, bucket_bytes=1000)
    with pytest.raises(WeightSyncError, match=r"'model.norm.weight' has shape \(1,\), the model expects \(16,\)"):
        worker.load(manifest, iter(buckets).__next__)
