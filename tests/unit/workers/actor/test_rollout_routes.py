"""A trainer that replays the routes of the engine computes its log-probabilities, and trains with the same routes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.data.messages.responses import Prompt, ResponseBatch
from rlinf.data.packing import pack_responses
from rlinf.errors import EngineError
from rlinf.hybrid_engines.generation.from_recipe import build_engine
from rlinf.workers.actor.text_learner import TextLearner
from rlinf.workers.actor.text_samples import _placed_routes
from rlinf.workers.inference.logprob_worker import LogprobWorker
from tests.unit.models.tiny_experts import save_tiny_experts
from tests.unit.workers.actor.test_text_learner import config, make_learner

pytest.importorskip("transformers")
REPLAY = (
    "actor.routing_replay=rollout",
    "algorithm.update_epoch=1",
    "actor.global_batch_size=8",
    "data.rollout_batch_size=2",
)
PROMPTS = ((5, 6, 7), (9,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model whose routers can hardly decide."""
    return save_tiny_experts(tmp_path_factory.mktemp("experts"), router_noise=0.01)


@pytest.fixture(scope="module")
def batch(folder: Path) -> ResponseBatch:
    """Return two groups of four responses by the ``hf`` engine, with their routes."""
    cfg: Any = config(folder, *REPLAY)
    engine = build_engine(cfg, device=torch.device("cpu"), rank=0, returns_routes=True)
    params = SamplingParams(temperature=0.8, max_new_tokens=9, n=4, seed=3, ignore_eos=True)

    async def generate() -> list[Sequence[Completion]]:
        await engine.start()
        requests = [
            GenerationRequest(request_id=str(number), prompt_ids=prompt, params=params)
            for number, prompt in enumerate(PROMPTS)
        ]
        results = await asyncio.gather(*map(engine.generate, requests))
        await engine.close()
        return [result.completions for result in results]

    parts = []
    for number, completions in enumerate(asyncio.run(generate())):
        prompt = Prompt(index=number, token_ids=PROMPTS[number], text="")
        part = ResponseBatch.of(prompt, number, completions)
        rewarded = tuple(replace(each, reward=float(each.index % 2)) for each in part.responses)
        parts.append(replace(part, responses=rewarded))
    return ResponseBatch.concat(parts)


def shaken(learner: TextLearner) -> TextLearner:
    """Change routers as another precision does: the same weights of experts, but another choice here and there."""
    with torch.no_grad():
        for parameter in (p for n, p in learner.engine.model.named_parameters() if "gate.weight" in n):
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)), alpha=5e-4)
    return learner


def mismatch(learner: TextLearner, batch: ResponseBatch) -> float:
    """Return the largest difference between the engine's log-probabilities and those that the learner recomputes."""
    learner.compute_advantages(batch)
    assert learner.samples is not None
    found = torch.cat(list(learner.samples.tokens["old_logprobs"]))
    return float((found - batch.logprobs).abs().max())


def planted(batch: ResponseBatch) -> ResponseBatch:
    """Send tokens to other experts than the engine did."""
    assert batch.routes is not None
    return replace(batch, routes=torch.where(batch.routes > 0, batch.routes % 6 + 1, 0))


def test_recomputed_logprobs_are_the_engines(folder: Path, batch: ResponseBatch) -> None:
    assert mismatch(make_learner(config(folder, *REPLAY)), batch) < 1e-5
    assert mismatch(make_learner(config(folder, *REPLAY)), planted(batch)) > 1e-2
    replayed = mismatch(shaken(make_learner(config(folder, *REPLAY))), batch)
    live = mismatch(shaken(make_learner(config(folder, *REPLAY, "actor.routing_replay=none"))), batch)
    assert live > 20 * replayed


@pytest.mark.parametrize("recompute", ["true", "false"])
def test_training_passes_take_the_engines_routes(folder: Path, batch: ResponseBatch, recompute: str) -> None:
    keys = (*REPLAY, f"algorithm.recompute_logprobs={recompute}")
    found = {}
    for name, replay in (("replayed", "rollout"), ("live", "none")):
        learner = make_learner(config(folder, *keys, f"actor.routing_replay={replay}"))
        learner.compute_advantages(batch)
        found[name] = shaken(learner).update(1)
    assert found["replayed"]["actor_approx_kl"] < 1e-5
    assert found["live"]["actor_approx_kl"] > 20 * found["replayed"]["actor_approx_kl"]
    assert found["replayed"]["replayed_share"] == 1
    assert "replayed_share" not in found["live"]


def test_the_share_counts_trained_tokens_behind_a_known_route(folder: Path, batch: ResponseBatch) -> None:
    assert batch.routes is not None
    routes, lengths = list(torch.split(batch.routes.clone(), batch.sequence_lengths)), batch.lengths
    routes[0][:] = 0
    routes[1][-3:] = 0
    mask = list(batch.split(batch.loss_mask.clone()))
    mask[2][:4] = False
    mask[0][:2] = False
    learner = make_learner(config(folder, *REPLAY))
    learner.compute_advantages(replace(batch, routes=torch.cat(routes), loss_mask=torch.cat(mask)))
    num_trained = sum(lengths) - 6
    # Of the second response, the tokens behind the first two that are unknown.
    expected = (num_trained - (lengths[0] - 2) - 2) / num_trained
    assert learner.update(1)["replayed_share"] == pytest.approx(expected)


def test_balance_needs_no_pass_that_records(folder: Path, batch: ResponseBatch) -> None:
    keys = (*REPLAY, "actor.moe_aux_loss_coeff=0.1", "algorithm.recompute_logprobs=false")
    learner = make_learner(config(folder, *keys))
    learner.compute_advantages(batch)
    assert 0 <= learner.update(1)["expert_load_min"] < 1


def test_old_logprobs_of_the_update_are_replayed_too(folder: Path, batch: ResponseBatch) -> None:
    keys = (*REPLAY, "algorithm.old_logprobs_in_update=true", "actor.global_batch_size=4")
    found = []
    for each in (batch, planted(batch)):
        learner = make_learner(config(folder, *keys))
        learner.compute_advantages(each)
        found.append(learner.update(1)["rollout/mismatch_max_probability_difference"])
    assert found[0] < 1e-5
    assert found[1] > 1e-3


def test_inference_groups_replay(folder: Path, batch: ResponseBatch) -> None:
    placement = "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}"
    worker: Any = LogprobWorker(config(folder, *REPLAY, "+inference={}", placement))
    worker.init_worker()
    found: dict[int, torch.Tensor] = {}

    class Store:
        def fetch(self, group_ids: list[int]) -> ResponseBatch:
            return replace(planted(batch), versions=torch.zeros_like(batch.versions))

        def put_trainer_logprobs(self, group_id: int, logprobs: torch.Tensor) -> None:
            found[group_id] = logprobs

    worker.responses, worker.version = Store(), 0
    worker.compute_logprobs(0)
    learner = make_learner(config(folder, *REPLAY))
    learner.compute_advantages(planted(batch))
    assert learner.samples is not None
    expected = torch.cat(list(learner.samples.tokens["old_logprobs"]))
    assert (found[0] - expected).abs().max() < 1e-5
    assert (found[0] - batch.logprobs).abs().max() > 1e-2


def test_without_any_route_the_model_decides(folder: Path, batch: ResponseBatch) -> None:
    learner = make_learner(config(folder, *REPLAY))
    assert mismatch(learner, replace(batch, routes=None)) < 1e-5
    assert learner.update(1)["replayed_share"] == 0


def test_routes_of_another_model_are_refused(folder: Path, batch: ResponseBatch) -> None:
    assert batch.routes is not None
    learner = make_learner(config(folder, *REPLAY))
    with pytest.raises(EngineError, match=r"routing_replay=rollout.*\[\d+, 2, 2\].*\[\d+, 3, 2\].*Correct the"):
        learner.compute_advantages(replace(batch, routes=batch.routes[:, :2]))


def test_a_shared_prompt_takes_the_first_route_that_is_known() -> None:
    packed, _ = pack_responses([(1, 2)] * 3, [(3,), (4,), (5,)], share_prompts=True)
    routes = [torch.tensor(column).view(3, 1, 1) for column in ([0, 0, 7], [1, 0, 8], [3, 4, 0])]
    placed = _placed_routes(routes, packed)
    assert placed.flatten().tolist() == [1, 4, 7, 8, 0]
