"""Old log-probabilities of the update are the same where ranks share matrices, layers or tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.models import get_model
from rlinf.workers.actor.text_learner import TextLearner
from tests.unit.data.messages.response_samples import batch_of
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.workers.actor.test_text_learner import (
    CORRECTIONS,
    IN_UPDATE,
    SAMPLES,
    assert_same,
    config,
    make_responses,
    train,
)

pytest.importorskip("transformers")
pytest.importorskip("megatron.core")

from rlinf.hybrid_engines.train.megatron.engine import MegatronEngine

pytestmark = pytest.mark.timeout(300)
CASES = {
    "masked": (*IN_UPDATE, *CORRECTIONS["sequence"]),
    "weighted": (*IN_UPDATE, *CORRECTIONS["token"], *SAMPLES, "actor.micro_batch_size=1"),
}
LAYOUTS = {
    "TP2": {"tensor_model_parallel_size": 2},
    "PP2": {"pipeline_model_parallel_size": 2},
    "CP2": {"context_parallel_size": 2},
    "DP2": {},
}


def learn(rank: int, folder: Path, layout: dict[str, int], keys: tuple[str, ...]) -> tuple[torch.Tensor, list[Any]]:
    """Make two steps; return the weights and all metrics."""
    cfg = config(
        folder,
        "actor.training_backend=megatron",
        "~actor.fsdp_config",
        "cluster.cpu_slots_per_node=2",
        "cluster.component_placement={actor: 0-1, rollout: 0, reward: 0}",
        *(f"actor.megatron.{name}={size}" for name, size in layout.items()),
        *keys,
    )
    model, device = get_model(cfg.actor.model, on_meta=True), torch.device("cpu")
    engine = MegatronEngine.of(model, cfg.actor, device=device, rank=rank, world_size=2)
    learner, metrics = TextLearner(engine, cfg=cfg), []
    responses = batch_of(make_responses(folder, noise=0.3))
    for step in (1, 2):
        metrics.append(learner.compute_advantages(responses))
        metrics.append(learner.update(step))
    return torch.cat([tensor.flatten() for _, tensor in engine.export_weights()]), metrics


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "DP2" else name for name in LAYOUTS]
)
def test_old_logprobs_of_the_update_are_those_of_one_rank(tmp_path: Path, name: str) -> None:
    save_tiny(tmp_path)
    for keys in CASES.values():
        expected = train(config(tmp_path, *keys), tmp_path, noise=0.3)
        assert expected[1][1]["rollout/mismatch_k3"] > 0.01
        for found in run_ranks(2, learn, tmp_path, LAYOUTS[name], keys):
            assert_same(found, expected)
