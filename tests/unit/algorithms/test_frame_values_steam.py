"""STEAM's distances, bins and labels, against tables written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlinf.algorithms.frame_values.steam import SteamValue
from rlinf.config.schema.value import SteamValueLossConfig
from rlinf.data.episode_table import EpisodeTable
from rlinf.errors import DatasetError


def steam(num_bins: int = 4, **keys: Any) -> SteamValue:
    """Return the objective."""
    return SteamValue(SteamValueLossConfig(**keys), num_bins=num_bins)


def table(lengths: list[int], demonstrations: list[bool]) -> EpisodeTable:
    """Return episodes, each in a data set of its own."""
    length = np.array(lengths)
    return EpisodeTable(
        source=np.arange(len(length)),
        start=np.zeros(len(length), np.int64),
        length=length,
        succeeded=np.ones(len(length), bool),
        is_demonstration=np.array(demonstrations),
        solved=np.zeros(length.sum(), bool),
    )


def test_bins_are_equally_wide_and_the_lower_half_goes_back() -> None:
    distances = np.array([-4.0, -3, -2, -1, 1, 2, 3, 4])
    assert steam(4, k=4).bins(distances).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert steam(8, k=4).bins(distances).tolist() == list(range(8))
    assert steam(2, k=4).bins(distances).tolist() == [0] * 4 + [1] * 4
    assert steam(8, k=4).bins(np.array([-9.0, -0.2, 0.2, 2.4, 9.0])).tolist() == [0, 3, 4, 5, 7]


def test_pairs_lie_within_the_episode_in_both_orders_at_all_distances() -> None:
    objective, episodes = steam(8, k=4), table([4, 20], [True, True])
    count = 4_000
    chosen = np.arange(count) % 2
    generator = np.random.default_rng(0)
    places = (generator.random(count) * (episodes.length[chosen] - 1)).astype(np.int64)
    pairs, targets = objective.targets(episodes, chosen, places, (0.0, 0.0), generator)
    distance = pairs[:, 1] - pairs[:, 0]
    assert (pairs >= 0).all()
    assert (pairs < episodes.length[chosen][:, None]).all()
    assert (pairs.min(1) == places).all()
    assert targets.tolist() == objective.bins(distance.astype(float)).tolist()
    long = distance[(chosen == 1) & (places < 10)]
    assert {*long.tolist()} == {-4, -3, -2, -1, 1, 2, 3, 4}
    shares = np.array([(long == step).mean() for step in (-4, -1, 1, 4)])
    assert shares == pytest.approx([1 / 8] * 4, abs=0.03)


def test_quick_episodes_count_for_more_where_the_recipe_wants_it() -> None:
    episodes = table([5, 10, 20], [True] * 3)
    objective = steam(8, k=4, length_scale_percentile=50.0)
    scale = objective.fit(episodes)
    assert scale == (10.0, 0.0)
    chosen, places = np.repeat(np.arange(3), 200), np.zeros(600, np.int64)
    pairs, targets = objective.targets(episodes, chosen, places, scale, np.random.default_rng(0))
    distance = pairs[:, 1] - pairs[:, 0]
    # Twice as far in an episode half as long; never less in one that is longer.
    factor = np.array([2.0, 1.0, 1.0])[chosen]
    assert targets.tolist() == objective.bins(distance * factor).tolist()
    assert steam(8, k=4).fit(episodes) == (0.0, 0.0)


def test_single_frames_have_no_order() -> None:
    with pytest.raises(DatasetError, match="no episode has two frames"):
        steam().fit(table([1, 1], [True, True]))


def test_predictions_are_the_mean_place_of_the_bins() -> None:
    objective = steam(4)
    sure = torch.full((4, 1, 4), -50.0)
    sure[torch.arange(4), 0, torch.arange(4)] = 50.0
    assert objective.predict(sure).flatten().tolist() == pytest.approx([-1.0, -0.5, 0.5, 1.0])
    assert objective.predict(torch.zeros(1, 1, 4)).item() == pytest.approx(0.0)
    assert objective.target_values(torch.tensor([0.0, 2.0])).tolist() == [-1.0, 0.5]


def test_smoothed_labels_bound_the_loss_of_each_member() -> None:
    objective, targets = steam(4, label_smoothing=0.2), torch.tensor([3.0])
    logits = torch.stack([torch.zeros(4), torch.tensor([0.0, 0.0, 0.0, 2.0])]).unsqueeze(0)
    logprobs = logits.log_softmax(-1)
    wanted = torch.tensor([0.05, 0.05, 0.05, 0.85])
    torch.testing.assert_close(objective.losses(logits, targets), -(wanted * logprobs).sum(-1))


def test_frames_are_judged_by_what_follows_within_the_episode() -> None:
    episodes = table([6], [False])
    frames = steam(4, k=4).frames_to_judge(episodes, *episodes.all_frames())
    assert frames.tolist() == [[0, 4], [1, 5], [2, 5], [3, 5], [4, 5], [5, 5]]


def test_the_most_doubtful_member_decides_and_last_frames_are_neutral() -> None:
    episodes = table([2, 3], [True, False])
    values = np.array([[0.5, 0.2], [0.9, 0.9], [-0.1, 0.4], [0.3, 0.3], [-0.8, -0.9]])
    scores, positive = steam(label_mode="threshold", positive_threshold=0.1).advantages(episodes, values, (0.0, 0.0))
    assert scores == pytest.approx([0.2, 0.0, -0.1, 0.3, 0.0])
    # Frames of demonstrations are positive in any case.
    assert positive.tolist() == [True, True, False, True, False]


def test_shares_are_those_of_each_kind_of_data_set() -> None:
    episodes = table([100, 100], [True, False])
    values = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    values[100:] -= 5.0
    positive = steam(rollout_quantile=0.2).advantages(episodes, values, (0.0, 0.0))[1]
    assert (int(positive[:100].sum()), int(positive[100:].sum())) == (100, 20)
    positive = steam(rollout_quantile=0.2, expert_quantile=0.7).advantages(episodes, values, (0.0, 0.0))[1]
    assert (int(positive[:100].sum()), int(positive[100:].sum())) == (70, 20)
