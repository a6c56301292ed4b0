"""Inference ranks that are spread as the actor is under Megatron-Core: its log-probabilities, in weights' memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.errors import AlgorithmError, WeightSyncError
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.train_engine import Pass, TrainEngine
from rlinf.models import get_model
from rlinf.workers.actor.text_learner import TextLearner
from rlinf.workers.inference.logprob_worker import LogprobWorker
from tests.unit.data.messages.response_samples import batch_of
from tests.unit.hybrid_engines.packing import pack_weights
from tests.unit.hybrid_engines.train.conformance import save_model
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.workers.actor.test_text_learner import config, make_learner, make_responses
from tests.unit.workers.inference.test_logprob_worker import computed, sampled_at

pytest.importorskip("transformers")
pytest.importorskip("megatron.core")

from rlinf.hybrid_engines.train.megatron.engine import MegatronEngine

pytestmark = pytest.mark.timeout(300)
Weights = list[tuple[str, torch.Tensor]]
LAYOUTS = {
    "TP2": {"tensor_model_parallel_size": 2},
    "PP2": {"pipeline_model_parallel_size": 2},
    "PP2 VPP2": {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2},
    "CP2": {"context_parallel_size": 2},
    "DP2": {},
    "EP2": {"expert_model_parallel_size": 2},
}
SLOW = ("PP2 VPP2", "CP2", "DP2", "EP2")
CASES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in LAYOUTS]


def spread(folder: Path, layout: dict[str, int]) -> Any:
    """Return a recipe whose actor and inference group have two ranks each, that share a model."""
    return config(
        folder,
        "actor.training_backend=megatron",
        "~actor.fsdp_config",
        "+inference={shard_model: true}",
        "cluster.cpu_slots_per_node=2",
        "cluster.component_placement={actor: 0-1, rollout: 0, reward: 0, inference: 0-1}",
        *(f"actor.megatron.{name}={size}" for name, size in layout.items()),
    )


def evaluate_by_actor(
    rank: int, folder: Path, layout: dict[str, int], weights: Weights, samples: list[Any]
) -> tuple[torch.Tensor, Weights]:
    """Return the log-probabilities of an engine that trains, and the weights that it sends."""
    cfg = spread(folder, layout)
    model, device = get_model(cfg.actor.model, on_meta=True), torch.device("cpu")
    engine = MegatronEngine.of(model, cfg.actor, device=device, rank=rank, world_size=2)
    assert all(parameter.requires_grad for chunk in engine.chunks for parameter in chunk.parameters())
    engine.import_weights(weights)
    found = TextLearner(engine, cfg=cfg)._evaluate(batch_of(samples)).logprobs
    return torch.cat(list(found)), list(engine.export_weights("parts"))


@dataclass(frozen=True)
class Seen:
    """What a test sees of an inference rank.

    Attributes:
        logprobs: What it leaves with the reward group; None on all ranks but one.
        remembered: The same with remembered weights, after others have been loaded.
        returned: The same after the weights were in host memory.
        exported: Weights that the rank holds after the first update, made whole.
        num_elements: Of its parameters, and of the memory that its engine says it holds.
        on_device: Bytes of its parameters while they are in host memory.
        needs_gradient: Whether a parameter requires a gradient.
        num_buffers: Of Megatron-Core's buffers of weights and gradients.
        errors: Messages of what an engine without an optimizer refuses.
    """

    logprobs: torch.Tensor | None
    remembered: torch.Tensor | None
    returned: torch.Tensor | None
    exported: Weights
    num_elements: tuple[int, int]
    on_device: int
    needs_gradient: bool
    num_buffers: int
    errors: list[str]


def refused(engine: TrainEngine, folder: Path) -> list[str]:
    """Return the messages of everything that needs an optimizer."""
    never: Any = Pass.whole(lambda model, batch: pytest.fail("the model was called"))
    calls: list[Any] = [
        lambda: engine.forward_backward([torch.zeros(1)], never),
        engine.step,
        lambda: engine.save(folder / "checkpoint"),
        lambda: engine.load(folder / "checkpoint"),
    ]
    messages = []
    for call in calls:
        with pytest.raises(AlgorithmError) as caught:
            call()
        messages.append(str(caught.value))
    return messages


def compute_on_rank(rank: int, folder: Path, layout: dict[str, int], weights: Weights, samples: list[Any]) -> Seen:
    """Return what becomes of an inference rank that gets weights, others, and then the first again."""
    worker: Any = LogprobWorker(spread(folder, layout))
    worker._rank, worker._world_size = rank, 2
    worker.init_worker()
    engine: MegatronEngine = worker.engine
    parameters = [parameter for chunk in engine.chunks for parameter in chunk.parameters()]
    worker.load(*pack_weights(iter(weights), version=0, bucket_bytes=1000))
    logprobs, exported = computed(worker, samples).trainer_logprobs, list(engine.export_weights("parts"))
    engine.remember("first")
    zeros = [(name, torch.zeros_like(tensor)) for name, tensor in weights]
    worker.load(*pack_weights(iter(zeros), version=0, bucket_bytes=1000))
    with engine.weights_of("first"):
        remembered = computed(worker, samples).trainer_logprobs
    worker.load(*pack_weights(iter(weights), version=0, bucket_bytes=1000))
    # What ``offload`` does where there is a device.
    engine.host.take(engine._buffers())
    on_device = sum(parameter.untyped_storage().size() for parameter in parameters)
    engine.onload()
    return Seen(
        logprobs,
        remembered,
        computed(worker, samples).trainer_logprobs,
        exported,
        (sum(parameter.numel() for parameter in parameters), sum(held.numel() for held in engine.held_weights())),
        on_device,
        any(parameter.requires_grad for parameter in parameters),
        sum(len(chunk.buffers) + len(chunk.expert_parallel_buffers) for chunk in engine.chunks),
        refused(engine, folder),
    )


@pytest.mark.parametrize("name", CASES)
def test_ranks_compute_what_the_actor_and_fsdp_do_in_the_memory_of_weights(tmp_path: Path, name: str) -> None:
    if name == "EP2":
        save_model(tmp_path, tied=False, experts=True)
    else:
        save_tiny(tmp_path, tie_word_embeddings=True, num_hidden_layers=4)
    learner = make_learner(config(tmp_path))
    learner.compute_advantages(batch_of(make_responses(tmp_path, noise=0.1)))
    learner.update(1)  # other weights than those that ranks read from files
    samples = sampled_at(make_responses(tmp_path), 0)
    expected = torch.cat(list(learner._evaluate(batch_of(samples)).logprobs))
    trained = [(key, tensor.clone()) for key, tensor in learner.engine.export_weights("parts")]
    (by_actor, sent), _ = run_ranks(2, evaluate_by_actor, tmp_path, LAYOUTS[name], trained, samples)
    torch.testing.assert_close(by_actor, expected, atol=1e-5, rtol=0)

    ranks = run_ranks(2, compute_on_rank, tmp_path, LAYOUTS[name], sent, samples)
    first, other = ranks
    for found in (first.logprobs, first.remembered, first.returned):
        torch.testing.assert_close(found, by_actor, atol=1e-5, rtol=0)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert (other.logprobs, other.remembered, other.returned) == (None, None, None), "one rank answers"
    for seen in ranks:
        assert [key for key, _ in seen.exported] == [key for key, _ in sent]
        assert all(torch.equal(tensor, dict(sent)[key]) for key, tensor in seen.exported)
        assert seen.num_elements[0] == seen.num_elements[1] > 0
        assert (seen.on_device, seen.needs_gradient, seen.num_buffers) == (0, False, 0)
        assert len(seen.errors) == 4
        assert all("built with trains=True" in message for message in seen.errors), seen.errors


def test_fsdp_without_an_optimizer_says_so(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    cfg = config(tmp_path)
    model = get_model(cfg.actor.model, on_meta=True)
    engine = FSDPEngine.of(model, cfg.actor, device=torch.device("cpu"), rank=0, world_size=1, trains=False)
    assert not any(parameter.requires_grad for parameter in engine.model.parameters())
    assert all("built with trains=True" in message for message in refused(engine, tmp_path))


def load_other_weights(rank: int, folder: Path, layout: dict[str, int]) -> str:
    """Return what an inference rank says of a tensor that the model does not have."""
    worker: Any = LogprobWorker(spread(folder, layout))
    worker._rank, worker._world_size = rank, 2
    worker.init_worker()
    with pytest.raises(WeightSyncError) as caught:
        worker.engine.import_weights([("model.norm.weight", torch.zeros(3))])
    return str(caught.value)


@pytest.mark.slow
def test_weights_of_another_model_are_refused_on_all_ranks(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    for message in run_ranks(2, load_other_weights, tmp_path, LAYOUTS["PP2"]):
        assert "'model.norm.weight' has shape (3,), the model has shape (16,)" in message


def test_a_rank_alone_holds_the_whole_model(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    learner = make_learner(config(tmp_path))
    samples = sampled_at(make_responses(tmp_path), 0)
    expected = torch.cat(list(learner._evaluate(batch_of(samples)).logprobs))
    weights = [(key, tensor.clone()) for key, tensor in learner.engine.export_weights("parts")]
    (found,) = run_ranks(1, compute_alone, tmp_path, weights, samples)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def compute_alone(rank: int, folder: Path, weights: Weights, samples: list[Any]) -> torch.Tensor:
    """Return what the second of two inference ranks computes that hold the whole model each."""
    worker: Any = LogprobWorker(
        config(
            folder,
            "actor.training_backend=megatron",
            "~actor.fsdp_config",
            "+inference={}",
            "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: '0:0-1'}",
        )
    )
    worker._rank, worker._world_size = rank + 1, 2
    worker.init_worker()
    worker.load(*pack_weights(iter(weights), version=0, bucket_bytes=1000))
    found: torch.Tensor = computed(worker, samples).trainer_logprobs
    return found
