"""What a classifier of success learns from: both kinds of frames, however rare one is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlinf.algorithms.frame_values.success import SuccessValue
from rlinf.config.schema.value import SuccessLossConfig
from rlinf.data.episode_table import EpisodeTable
from rlinf.errors import DatasetError

LENGTH = np.array([10, 30, 20])
# Two frames of the first episode, five of the third, with gaps.
SOLVED = np.zeros(60, bool)
SOLVED[[3, 8, 42, 45, 46, 50, 59]] = True
EPISODES = EpisodeTable(
    source=np.array([0, 0, 1]),
    start=np.array([0, 10, 0]),
    length=LENGTH,
    succeeded=np.array([True, False, True]),
    is_demonstration=np.zeros(3, bool),
    solved=SOLVED,
)


def success(**keys: Any) -> SuccessValue:
    """Return the objective."""
    return SuccessValue(SuccessLossConfig(**keys), num_bins=1)


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_solved_frames_have_their_share_of_every_batch(share: float) -> None:
    count = 20_000
    objective, weights = success(success_share=share), np.array([1.0, 3.0])
    chosen, places = objective.sample(EPISODES, count, weights, np.random.default_rng(0))
    frames, targets = objective.targets(EPISODES, chosen, places, (0.0, 1.0), np.random.default_rng(0))
    solved = SOLVED[np.array([0, 10, 40])[chosen] + places]
    assert (places < LENGTH[chosen]).all()
    assert targets.tolist() == solved.astype(float).tolist()
    assert frames[:, 0].tolist() == places.tolist()
    assert solved.mean() == pytest.approx(share, abs=0.02)
    # Solved frames: 2 of the first data set, 5 of the second, which count three times.
    shares = np.bincount(chosen[solved], minlength=3) / solved.sum()
    assert shares == pytest.approx([2 / 17, 0.0, 15 / 17], abs=0.02)
    others = np.bincount(chosen[~solved], minlength=3) / (~solved).sum()
    assert others == pytest.approx([8 / 83, 30 / 83, 45 / 83], abs=0.02)
    in_first = np.bincount(places[~solved & (chosen == 0)], minlength=10) / (~solved & (chosen == 0)).sum()
    assert in_first == pytest.approx((1 - SOLVED[:10]) / 8, abs=0.03)


def test_both_kinds_are_needed() -> None:
    assert success().fit(EPISODES) == (0.0, 1.0)
    for rows in ([False, True, False],):
        with pytest.raises(DatasetError, match="0 of 30 frames show the task solved; both kinds"):
            success().fit(EPISODES.select(np.array(rows)))
    solved = EpisodeTable(
        source=np.zeros(1, np.int64),
        start=np.zeros(1, np.int64),
        length=np.array([4]),
        succeeded=np.ones(1, bool),
        is_demonstration=np.zeros(1, bool),
        solved=np.ones(4, bool),
    )
    with pytest.raises(DatasetError, match="4 of 4 frames"):
        success().fit(solved)


def test_the_loss_is_that_of_the_probability() -> None:
    logits, targets = torch.tensor([[[0.0]], [[2.0]]]), torch.tensor([1.0, 0.0])
    probability = success().predict(logits)
    assert probability.shape == (2, 1)
    assert probability.flatten().tolist() == pytest.approx([0.5, 1 / (1 + np.exp(-2.0))])
    expected = [-np.log(0.5), -np.log(1 - 1 / (1 + np.exp(-2.0)))]
    assert success().losses(logits, targets).flatten().tolist() == pytest.approx(expected)


def test_likely_successes_are_labelled() -> None:
    values = np.linspace(0, 1, EPISODES.num_frames)[:, None]
    scores, positive = success().advantages(EPISODES, values, (0.0, 1.0))
    assert scores.tolist() == values[:, 0].tolist()
    assert positive.tolist() == (values[:, 0] > 0.5).tolist()
    assert success().frames_to_judge(EPISODES, np.array([0]), np.array([3])).tolist() == [[3]]


def test_agreement_is_counted_at_one_half() -> None:
    predicted, wanted = np.array([0.9, 0.6, 0.4, 0.1, 0.2]), np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    assert success().agreement(predicted, wanted) == pytest.approx({"accuracy": 0.4, "precision": 0.5, "recall": 1 / 3})
    assert success().agreement(np.zeros(2), np.zeros(2)) == {"accuracy": 1.0, "precision": 0.0, "recall": 0.0}


def test_solved_frames_are_not_solved_by_the_sentence_of_another_task() -> None:
    objective, count = success(wrong_sentence_share=0.4), 3000
    tasks, solved = ["a", "b"] * count, np.repeat([1.0, 0.0], count)
    draws = np.random.default_rng(0).random(2 * count)
    told, targets = objective.change_sentences(tasks, solved, ["a", "b", "c", "d"], draws)
    changed = np.array([own != other for own, other in zip(tasks, told, strict=True)])
    assert tasks == ["a", "b"] * count
    assert changed[:count].mean() == pytest.approx(0.4, abs=0.03)
    assert not changed[count:].any()
    assert targets.tolist() == (solved * ~changed).tolist()
    others = [task for task, own in zip(told[:count], tasks, strict=False) if own == "a" and task != "a"]
    assert [others.count(task) / len(others) for task in "bcd"] == pytest.approx([1 / 3] * 3, abs=0.06)


def test_unless_asked_frames_keep_their_sentences() -> None:
    tasks, targets = ["a", "b"], np.ones(2)
    assert success().changed_share == 0.0
    told, same = success().change_sentences(tasks, targets, ["a", "b"], np.zeros(2))
    assert (told, same.tolist()) == (tasks, [1.0, 1.0])


def test_one_sentence_has_no_other() -> None:
    with pytest.raises(DatasetError, match="wrong_sentence_share: received 0.4; the data sets have one sentence, 'a'"):
        success(wrong_sentence_share=0.4).change_sentences(["a"], np.ones(1), ["a"], np.zeros(1))
