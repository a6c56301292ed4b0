"""Every loss has the gradient that transformers gives it on one padded batch, where ranks share matrices and tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.algorithms.minibatch import SequenceCost
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.placement.parallel import ParallelLayout
from rlinf.workers.actor.logprobs import MicroBatchPlanner
from rlinf.workers.actor.text_samples import evaluate_tokens, text_denominators, text_loss
from tests.unit.hybrid_engines.train.conformance import Setting, Tensors, gradients_of
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.workers.actor.test_text_gradients import (
    CASES,
    MAX_NEW_TOKENS,
    algorithm,
    difference,
    gradient_by_transformers,
    make_samples,
    value_head,
)

pytest.importorskip("transformers")
pytest.importorskip("megatron.core")

from tests.unit.hybrid_engines.train.megatron.megatron_engines import make_engine

pytestmark = pytest.mark.timeout(300)
SEQUENCE_MEANS = ("actor", {"loss_agg_func": "seq-mean-token-mean"})
LOSSES = [*((name, {}) for name in CASES), SEQUENCE_MEANS]


def differentiate_all(rank: int, setting: Setting) -> list[Tensors]:
    """Return the gradient of every loss, in three or four micro-batches."""
    engine = make_engine(setting, rank)
    head = value_head(torch.float32).state_dict()
    engine.import_weights([(f"value_head.{name}", tensor) for name, tensor in head.items()])
    planner = MicroBatchPlanner(
        engine, SequenceCost(quadratic=0.1), max_tokens=20, max_samples=None, share_prompts=True
    )
    found = []
    for name, keys in LOSSES:
        config = algorithm(name, **keys)
        samples = make_samples(config, torch.float32)
        batches = planner.pack(samples, planner.plan(samples))
        denominators = text_denominators(
            batches,
            max_tokens=MAX_NEW_TOKENS,
            data_parallel_size=engine.world_size,
            all_reduce=engine.all_reduce,
        )
        work = Pass(
            lambda model, batch, config=config: evaluate_tokens(model, batch, algorithm=config),
            lambda result, batch, config=config, denominators=denominators: text_loss(
                result, batch, denominators, algorithm=config
            ),
        )
        engine.forward_backward(batches, work)
        found.append(gradients_of(engine))
        engine.optimizer.zero_grad()
    return found


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(ParallelLayout(data=1, context=2), id="CP2"),
        # Four ranks, which the losses do not know of either.
        pytest.param(ParallelLayout(data=1, tensor=2, context=2, sequence=True), id="TP2 CP2", marks=pytest.mark.slow),
        pytest.param(ParallelLayout(data=2, pipeline=2), id="DP2 PP2", marks=pytest.mark.slow),
    ],
)
def test_losses_know_no_parallelism(tmp_path: Path, layout: ParallelLayout) -> None:
    save_tiny(tmp_path)
    setting = Setting(layout, tmp_path, model={"add_value_head": True})
    ranks = run_ranks(layout.world_size, differentiate_all, setting)
    for number, (name, keys) in enumerate(LOSSES):
        expected = gradient_by_transformers(tmp_path, algorithm(name, **keys), "right", torch.float64)
        for found in ranks:
            assert difference({key: found[number][key] for key in expected}, expected) < 2e-5, name
