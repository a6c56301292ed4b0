"""Metrics of an update: summed over micro-batches and ranks, averaged over optimizer steps."""

from types import SimpleNamespace

import pytest
import torch

from rlinf.workers.actor.learner import EmbodiedLearner, metrics_over_ranks, staleness


def engine_of_two_ranks() -> SimpleNamespace:
    """An engine whose other rank holds the same."""
    return SimpleNamespace(
        device=torch.device("cpu"), all_reduce=lambda tensor: 2 * tensor, all_gather=lambda tensor: [tensor, tensor]
    )


def test_metrics_are_means_over_ranks_and_over_optimizer_steps() -> None:
    sums = {"loss": torch.tensor([6.0, 3.0]), "nothing": torch.tensor([0.0, 0.0])}
    steps = [{"grad_norm": 1.0, "lr": 0.1}, {"grad_norm": 3.0, "lr": 0.3}]
    metrics = metrics_over_ranks(engine_of_two_ranks(), sums, steps)
    assert metrics == pytest.approx({"loss": 2.0, "grad_norm": 2.0, "lr": 0.2})


def test_the_largest_over_ranks_is_no_mean() -> None:
    largest = torch.tensor([0.2, 1.0], dtype=torch.float64)
    engine = engine_of_two_ranks()
    engine.all_gather = lambda tensor: [tensor, torch.stack((2 * tensor[0], tensor[1]))]
    assert metrics_over_ranks(engine, {"mismatch_max_probability_difference": largest}) == pytest.approx(
        {"mismatch_max_probability_difference": 0.4}
    )


def test_staleness_is_that_of_chunks_that_were_executed() -> None:
    learner = SimpleNamespace(algorithm=SimpleNamespace(staleness_threshold=1))
    executed = torch.tensor([[[True, False], [True, True]], [[True, True], [False, False]]])
    trajectory = SimpleNamespace(versions=torch.tensor([[7, 5], [6, 0]]), executed=executed)
    ages = 7 - EmbodiedLearner.behaviour_versions(learner, trajectory)
    assert staleness(engine_of_two_ranks(), ages) == {"staleness_mean": 1.0, "staleness_max": 2.0}
