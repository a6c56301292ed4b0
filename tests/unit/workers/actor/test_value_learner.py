"""Models learn to judge frames, ranks share a batch, and labels are those of the formulas."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_toys import assert_same, losses_of_rank, weights
from value_toys import LENGTHS, SUCCEEDED, make_value_learner, recorded

from rlinf.config.schema.data import AugmentationConfig
from rlinf.config.schema.runner import RunnerConfig
from rlinf.config.schema.value import FrameSourceConfig, SuccessLossConfig
from rlinf.data.datasets.lerobot import LeRobotDataset, LeRobotEpisode, LeRobotWriter
from rlinf.data.datasets.lerobot.labels import read_advantages
from rlinf.data.datasets.lerobot.writer import WriterOptions
from rlinf.data.value_frames import ValueFrames
from rlinf.errors import AlgorithmError, DatasetError
from rlinf.models.control.frame_classifier import CLASSIFIER_FILE
from rlinf.models.control.success_classifier import TASK_WORDS, SuccessClassifier
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor.value_learner import ValueLearner
from tests.ranks import run_ranks

pytest.importorskip("transformers")
KINDS = ["recap_value", "steam_value"]
both = pytest.mark.parametrize("kind", KINDS)


@both
def test_the_loss_falls_and_predictions_follow_what_images_say(kind: str, tmp_path: Path) -> None:
    held_out = [FrameSourceConfig(path=str(recorded(tmp_path / "held_out")), type="rollout")]
    learner = make_value_learner(tmp_path, kind, val=held_out, model_keys={"num_bins": 8})
    before = learner.evaluate(None)
    metrics = [learner.update(step) for step in range(1, 26)]
    after = learner.evaluate(None)
    # Before, all bins are equally likely.
    assert before["loss"] == pytest.approx(np.log(8), rel=1e-4)
    assert before["rank_correlation"] == 0.0
    assert after["loss"] < 0.85 * before["loss"]
    assert after["error"] < 0.75 * before["error"]
    assert after["rank_correlation"] > 0.7
    assert metrics[0]["frames"] == 2 * sum(LENGTHS)


@both
def test_micro_batches_and_ranks_share_one_loss(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_value_learner(tmp_path, kind).update(1)

    def losses(rank: int, world_size: int, micro: int) -> float:
        learner = make_value_learner(tmp_path, kind, micro=micro, model_keys={"ensemble_size": 2})
        torch.manual_seed(1)
        with torch.no_grad():
            for name, parameter in learner.model.named_parameters():
                if learner.model.is_value_parameter(name):
                    parameter.normal_()
        return losses_of_rank(learner, 4, rank, world_size, monkeypatch)[0]

    whole = losses(0, 1, 16)
    assert losses(0, 1, 4) == pytest.approx(whole, rel=1e-5)
    assert (losses(0, 2, 8) + losses(1, 2, 8)) / 2 == pytest.approx(whole, rel=1e-5)


@both
def test_half_precision_learns_nearly_the_same(kind: str, tmp_path: Path) -> None:
    single, half = (make_value_learner(tmp_path, kind, precision=precision) for precision in ("fp32", "bf16"))
    expected, found = (learner.update(1)["value_loss"] for learner in (single, half))
    assert found == pytest.approx(expected, rel=0.02)
    assert found != expected


def test_members_learn_by_themselves(tmp_path: Path) -> None:
    alone = make_value_learner(tmp_path, "recap_value")
    pair = make_value_learner(tmp_path, "recap_value", model_keys={"ensemble_size": 2})
    before = weights(pair)["members.1.head.0.weight"]
    gradients = []
    for learner in (alone, pair):
        learner.engine.step = lambda optimizer="policy": {}  # type: ignore[method-assign]
        learner.update_once(0)
        gradients.append({name: p.grad for name, p in learner.model.named_parameters() if p.grad is not None})
    assert torch.equal(before, weights(pair)["members.1.head.0.weight"])
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-6)
    assert gradients[1]["members.1.head.2.weight"].abs().max() > 0


@both
def test_a_resumed_learner_makes_the_same_updates(kind: str, tmp_path: Path) -> None:
    learner = make_value_learner(tmp_path, kind)
    learner.update(1)
    learner.save(tmp_path / "saved")
    expected = learner.update(2)
    again = make_value_learner(tmp_path, kind)
    again.load(tmp_path / "saved")
    assert again.update(2) == expected
    assert_same(weights(again), weights(learner), atol=0, rtol=0)


def test_the_scale_travels_with_the_weights(tmp_path: Path) -> None:
    learner = make_value_learner(tmp_path, "recap_value")
    # A failure of nine steps costs eight and ten.
    assert learner.scale == (-18.0, 0.0)
    learner.save(tmp_path / "saved")
    other = make_value_learner(
        tmp_path, "recap_value", runner=RunnerConfig(task_type="value", ckpt_path="elsewhere"), max_episodes=1
    )
    assert other.scale == (0.0, 0.0)
    other.load(tmp_path / "saved")
    assert other.scale == (-18.0, 0.0)


def values_of(learner: ValueLearner) -> np.ndarray:
    """Return what the model says of each frame, one by one."""
    frames, episodes = learner.frames, learner.frames.episodes
    chosen, places = episodes.all_frames()
    judged = learner.objective.frames_to_judge(episodes, chosen, places)
    found = []
    with torch.no_grad():
        for row in range(len(chosen)):
            shown = frames.read(episodes, chosen[[row]], judged[[row]])
            found.append(learner.objective.predict(learner.model(learner.model.record(shown.images, shown.tasks))))
    return torch.cat(found).double().numpy()


@both
def test_labels_are_the_advantages_of_every_frame_in_its_own_data_set(kind: str, tmp_path: Path) -> None:
    learner = make_value_learner(tmp_path, kind, model_keys={"ensemble_size": 2})
    for step in (1, 2):
        learner.update(step)
    found = learner.label("tag")
    episodes = learner.frames.episodes
    advantages, positive = learner.objective.advantages(episodes, values_of(learner), learner.scale)
    total = sum(LENGTHS)
    for number, name in enumerate(("rollouts", "demonstrations")):
        labels, scores = read_advantages(LeRobotDataset(tmp_path / name), "tag")
        rows = slice(number * total, (number + 1) * total)
        np.testing.assert_allclose(scores, advantages[rows], atol=1e-5)
        assert labels.tolist() == positive[rows].tolist()
    assert found == {"frames": 2 * total, "positive": pytest.approx(positive.mean())}
    assert 0 < positive.mean() < 1


def label_as_rank(rank: int, folder: Path, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    learner = make_value_learner(folder, "recap_value", rank=rank, world_size=2, micro=4)
    learner.update(1)
    learner.label("ranks")


def test_ranks_label_together_what_one_would(tmp_path: Path) -> None:
    alone = make_value_learner(tmp_path, "recap_value")
    alone.update(1)
    alone.label("alone")
    run_ranks(label_as_rank, tmp_path, find_free_port())
    for name in ("rollouts", "demonstrations"):
        dataset = LeRobotDataset(tmp_path / name)
        np.testing.assert_allclose(
            read_advantages(dataset, "ranks")[1], read_advantages(dataset, "alone")[1], atol=1e-5
        )


def test_only_successes_are_learned_from_and_all_is_labelled(tmp_path: Path) -> None:
    learner = make_value_learner(tmp_path, "recap_value", only_success=True)
    # All of the demonstrations, by their type; the rollouts without the failure.
    assert learner.learned.length.tolist() == [6, 4, 6, 9, 4]
    assert learner.scale == (-8.0, 0.0)
    assert learner.label("tag")["frames"] == 2 * sum(LENGTHS)


def test_success_is_what_the_data_set_says(tmp_path: Path) -> None:
    for name in ("next.success", "is_success"):
        source = FrameSourceConfig(path=str(recorded(tmp_path / name, success=name)), type="rollout")
        frames = ValueFrames([source], image_keys=["main_images"])
        assert frames.episodes.succeeded.tolist() == list(SUCCEEDED)
        both_kinds = ValueFrames([source, replace(source, type="sft")], image_keys=["main_images"]).episodes
        assert both_kinds.succeeded.tolist() == [*SUCCEEDED, True, True, True]
        assert both_kinds.is_demonstration.tolist() == [False] * 3 + [True] * 3
    silent = FrameSourceConfig(path=str(recorded(tmp_path / "silent", success=None)), type="rollout")
    with pytest.raises(DatasetError, match="does not say which episodes succeeded.*type: sft"):
        ValueFrames([silent], image_keys=["main_images"])
    with pytest.raises(DatasetError, match=r"no observation.images.wrist; its cameras are observation.images.main"):
        ValueFrames([replace(silent, type="sft")], image_keys=["wrist_images"])


def test_frames_show_their_images_and_sentences(tmp_path: Path) -> None:
    sources = [FrameSourceConfig(path=str(recorded(tmp_path / name))) for name in ("first", "second")]
    frames = ValueFrames(sources, image_keys=["main_images"])
    chosen, places = np.array([4, 0, 1]), np.array([[8, 0], [5, 1], [2, 3]])
    shown = frames.read(frames.episodes, chosen, places)
    pixels = [images["main_images"][:, 0, 0, 0].tolist() for images in shown.images]
    assert pixels == [[80, 150, 20], [0, 110, 30]]
    assert shown.tasks == ["task 1", "task 0", "task 1"]
    assert frames.episodes.length.tolist() == [*LENGTHS, *LENGTHS]
    short = ValueFrames(sources, image_keys=["main_images"], max_episodes=2)
    assert short.episodes.length.tolist() == [6, 9, 6, 9]


def test_a_classifier_learns_which_frames_are_solved_and_is_published(tmp_path: Path) -> None:
    # Frames after the fourth show the task solved, as they are brighter.
    source = recorded(tmp_path / "solved", solved_after=3)
    learner = make_value_learner(
        tmp_path,
        "success",
        path=str(source),
        mixture=[],
        val=[FrameSourceConfig(path=str(source), type="rollout")],
        augmentation=AugmentationConfig(),
    )
    expected = [place >= 4 and number != 1 for number, length in enumerate(LENGTHS) for place in range(length)]
    assert learner.frames.episodes.solved.tolist() == expected
    for step in range(1, 21):
        metrics = learner.update(step)
    assert metrics["value_error"] < 0.15
    measured = learner.evaluate(None)
    assert [measured[name] for name in ("accuracy", "precision", "recall")] == [1.0, 1.0, 1.0]
    found = learner.label("solved")
    labels, _ = read_advantages(LeRobotDataset(source), "solved")
    assert labels.tolist() == expected
    assert found["frames"] == sum(LENGTHS)
    learner.publish(tmp_path / "checkpoint")
    classifier = SuccessClassifier.load(tmp_path / "checkpoint" / CLASSIFIER_FILE)
    shown = learner.frames.read(learner.frames.episodes, np.array([0, 0]), np.array([[0], [5]]))
    assert (classifier(shown.images[0]) > 0).tolist() == [False, True]


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_a_classifier_learns_whose_task_is_solved(tmp_path: Path, share: float) -> None:
    """The end of an episode is red or green, as its sentence says; which is not seen before."""
    paths = []
    for name, number in (("learned", 12), ("held_out", 4)):
        paths.append(tmp_path / name)
        with LeRobotWriter(paths[-1], WriterOptions(fps=10)) as writer:
            for episode in range(number):
                images = np.full((8, 16, 16, 3), 60 + 5 * episode, np.uint8)
                images[4:, 4:12, 4:12, episode % 2] = 250
                columns = {
                    "observation.images.main": images,
                    "action": np.zeros((8, 2), np.float32),
                    "next.success": np.arange(8)[:, None] >= 3,
                }
                writer.add(LeRobotEpisode(columns, f"make it {('red', 'green')[episode % 2]}"))
    learner = make_value_learner(
        tmp_path,
        "success",
        path=str(paths[0]),
        mixture=[],
        val=[FrameSourceConfig(path=str(paths[1]), type="rollout")],
        augmentation=AugmentationConfig(),
        model_keys={"words": ["make", "it", "red", "green"]},
        loss=SuccessLossConfig(wrong_sentence_share=share),
    )
    for step in range(1, 31):
        learner.update(step)
    measured = learner.evaluate(None)
    assert measured["accuracy"] > 0.95
    learner.publish(tmp_path / "checkpoint")
    classifier = SuccessClassifier.load(tmp_path / "checkpoint" / CLASSIFIER_FILE)
    shown = learner.val.read(learner.val.episodes, np.array([0, 1]), np.array([[6], [6]]))
    right = (classifier({**shown.images[0], "task_descriptions": shown.tasks}) > 0).tolist()
    wrong = (classifier({**shown.images[0], "task_descriptions": shown.tasks[::-1]}) > 0).tolist()
    assert right == [True, True]
    if share:
        assert measured["wrong_sentences_refused"] > 0.95
        assert wrong == [False, False]
    else:
        # Nothing says then that a sentence could be wrong.
        assert "wrong_sentences_refused" not in measured
        assert wrong == [True, True]


def test_a_batch_has_the_same_sentences_on_any_number_of_ranks(tmp_path: Path) -> None:
    alone, halves = ([row for rank in range(size) for row in sentences_of(tmp_path, rank, size)] for size in (1, 2))
    assert alone == halves
    # Episodes 0 and 2, which are solved, are of task 0: with the words of task 1 their frames are not.
    assert {(words, target) for words, target in alone if target} == {("task 0", 1.0)}
    assert ("task 1", 0.0) in alone
    assert len(alone) == 16


def sentences_of(tmp_path: Path, rank: int, world_size: int) -> list[tuple[str, float]]:
    """Return the sentences and targets of a rank's part of the first batch."""
    learner = make_value_learner(
        tmp_path,
        "success",
        rank=rank,
        world_size=world_size,
        micro=16 // world_size,
        path=str(recorded(tmp_path / "solved", solved_after=3)),
        mixture=[],
        model_keys={"words": ["task", "0", "1"]},
        loss=SuccessLossConfig(wrong_sentence_share=0.5),
    )
    told: list[tuple[str, float]] = []

    def keep(batches: list[dict[str, torch.Tensor]], _: Any) -> dict[str, Any]:
        for rows in batches:
            sentences = [f"task {number - 2}" for _, number in rows[TASK_WORDS].tolist()]
            told.extend(zip(sentences, rows["targets"].tolist(), strict=True))
        return {}

    learner.engine.forward_backward = keep  # type: ignore[assignment]
    learner.engine.step = lambda _: {}  # type: ignore[assignment]
    learner.update_once(0)
    return told


def test_models_without_another_form_publish_nothing(tmp_path: Path) -> None:
    make_value_learner(tmp_path, "recap_value").publish(tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


def test_rollouts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AlgorithmError, match="task_type=value"):
        make_value_learner(tmp_path, "recap_value").compute_advantages(None)
