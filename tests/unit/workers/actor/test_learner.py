"""Metrics of an update: summed over micro-batches and ranks, averaged over optimizer steps."""

from types import SimpleNamespace

import pytest
import torch

from rlinf.workers.actor.learner import EmbodiedLearner, accumulate, metrics_over_ranks, staleness


def engine_of_two_ranks() -> SimpleNamespace:
    """An engine whose other rank holds the same."""
    return SimpleNamespace(
        device=torch.device("cpu"), all_reduce=lambda tensor: 2 * tensor, all_gather=lambda tensor: [tensor, tensor]
    )


def test_pairs_are_added_up() -> None:
    sums = {}
    for total, count in ((1.0, 2.0), (5.0, 1.0)):
        accumulate(sums, {"loss": torch.tensor([total, count])})
    accumulate(sums, {"other": torch.tensor([3.0, 1.0])})
    assert {name: pair.tolist() for name, pair in sums.items()} == {"loss": [6.0, 3.0], "other": [3.0, 1.0]}


def test_metrics_are_means_over_ranks_and_over_optimizer_steps() -> None:
    sums = {"loss": torch.tensor([6.0, 3.0]), "nothing": torch.tensor([0.0, 0.0])}
    steps = [{"grad_norm": 1.0, "lr": 0.1}, {"grad_norm": 3.0, "lr": 0.3}]
    metrics = metrics_over_ranks(engine_of_two_ranks(), sums, steps)
    assert metrics == pytest.approx({"loss": 2.0, "grad_norm": 2.0, "lr": 0.2})


def test_staleness_is_that_of_chunks_that_were_executed() -> None:
    learner = SimpleNamespace(algorithm=SimpleNamespace(staleness_threshold=1))
    executed = torch.tensor([[[True, False], [True, True]], [[True, True], [False, False]]])
    trajectory = SimpleNamespace(versions=torch.tensor([[7, 5], [6, 0]]), executed=executed)
    ages = 7 - EmbodiedLearner.behaviour_versions(learner, trajectory)
    assert staleness(engine_of_two_ranks(), ages) == {"staleness_mean": 1.0, "staleness_max": 2.0}
