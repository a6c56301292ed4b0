"""Fine-tuning on frames with labels: which of them are learned with the word for theirs, on any number of ranks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.schema.algorithm import EmbodiedAlgorithmConfig, NoAdvantageConfig, SupervisedLossConfig
from rlinf.config.schema.data import LeRobotDataConfig, MixtureEntryConfig
from rlinf.config.schema.env import EnvSectionConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.schema.runner import RunnerConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.config.schema.vla import GuidanceConfig, PiConfig
from rlinf.data.datasets.lerobot.labels import write_advantages
from rlinf.errors import DatasetError
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_policy
from rlinf.workers.actor.frame_learner import FrameLearner
from tests.unit.data.frame_sets import LENGTHS, frame_set, stream
from toolkits.vla.make_tiny import TinyShape, write_tiny_pi

pytest.importorskip("transformers")
SIZE = 16
EPISODES = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
FRAMES = np.concatenate([np.arange(length) for length in LENGTHS])
POSITIVE = np.arange(len(FRAMES)) % 3 == 0
WORDS = ("task 0", "task 1", "Advantage: positive", "Advantage: negative")


def labelled(root: Path, positive: Any = POSITIVE) -> Path:
    """Write a data set with labels of the name ``tag``."""
    if not root.exists():
        frame_set(root, scale=0.1)
        write_advantages(root, "tag", EPISODES, FRAMES, positive, positive.astype(float))
    return root


def make_learner(
    tmp_path: Path, *, rank: int = 0, world_size: int = 1, micro: int = 4, tag: str | None = "tag", **guidance: Any
) -> FrameLearner:
    """Return a learner of frames whose labels are known."""
    folder, data = tmp_path / "pi", labelled(tmp_path / "frames")
    cfg = PiConfig(
        model_type="openpi",
        model_path=str(folder),
        action_dim=2,
        state_dim=2,
        num_action_chunks=2,
        horizon=3,
        num_steps=2,
        variant="pi0",
        noise_method="flow_ode",
        max_prompt_length=12,
        guidance=GuidanceConfig(**guidance),
    )
    if not folder.exists():
        write_tiny_pi(folder, TinyShape(image_size=16, patch_size=8, action_dim=2, state_dim=2, words=WORDS), cfg)
    torch.manual_seed(0)
    actor = ActorConfig(
        model=cfg,
        optim=OptimConfig(lr=3e-3),
        global_batch_size=SIZE,
        micro_batch_size=micro,
        seed=3,
        fsdp_config=FSDPConfig(sharding_strategy="no_shard"),
    )
    make_engine = partial(FSDPEngine.of, actor=actor, device=torch.device("cpu"), rank=0, world_size=1)
    recipe = EmbodiedConfig(
        runner=RunnerConfig(task_type="offline"),
        algorithm=EmbodiedAlgorithmConfig(
            adv_type="none",
            loss_type="none",
            update_epoch=2,
            advantage=NoAdvantageConfig(),
            loss=SupervisedLossConfig(),
        ),
        actor=actor,
        env=EnvSectionConfig(),
        data=LeRobotDataConfig(format="lerobot", path=str(data), advantage_tag=tag),
    )
    learner = FrameLearner.build(get_policy(cfg), make_engine, cfg=recipe)
    learner.engine.rank, learner.engine.world_size = rank, world_size
    return learner


def prompts(learner: FrameLearner, number: int) -> tuple[list[str], list[bool], list[bool]]:
    """Return the sentences of a batch as they are learned, and labels and choices."""
    assert learner.frames is not None
    parts = learner.frames.micro_batches(number)
    tokenizer = learner.policy.inputs._tokenizer  # type: ignore[union-attr]
    ids = torch.cat([part["token_ids"] for part in parts])
    mask = torch.cat([part["token_mask"] for part in parts])
    text = [tokenizer.decode(row[there].tolist()) for row, there in zip(ids, mask, strict=True)]
    labels = torch.cat([part["labels"] for part in parts])
    return text, labels[:, 0].tolist(), labels[:, 1].tolist()


def test_labels_are_those_of_the_sampled_frames(tmp_path: Path) -> None:
    first, second = labelled(tmp_path / "first"), labelled(tmp_path / "second", ~POSITIVE)
    frames = stream(first, advantage_tag="tag", mixture=[MixtureEntryConfig(path=str(second))])
    sources, indices = frames.sample(5, SIZE)
    batch = frames.read(5, SIZE, slice(4, 12))
    expected = np.where(sources == 0, POSITIVE[indices], ~POSITIVE[indices])[4:12]
    assert batch.is_positive is not None
    assert batch.is_positive.tolist() == expected.tolist()
    assert {*sources[4:12].tolist()} == {0, 1}
    assert stream(first).read(5, SIZE, slice(0, 4)).is_positive is None
    with pytest.raises(DatasetError, match="advantages_other.parquet"):
        stream(first, advantage_tag="other")


@pytest.mark.parametrize("positive_only", [True, False])
def test_sentences_say_the_label_of_the_frames_that_are_chosen(positive_only: bool, tmp_path: Path) -> None:
    learner = make_learner(tmp_path, unconditional_prob=0.3, positive_only_conditional=positive_only)
    found = [prompts(learner, number) for number in range(4)]
    text, positive, said = (sum((part[index] for part in found), []) for index in range(3))  # type: ignore[arg-type]
    for sentence, good, is_said in zip(text, positive, said, strict=True):
        assert (": positive" in sentence) == (is_said and good)
        assert (": negative" in sentence) == (is_said and not good)
    of_negative = [is_said for good, is_said in zip(positive, said, strict=True) if not good]
    of_positive = [is_said for good, is_said in zip(positive, said, strict=True) if good]
    assert 0.4 < np.mean(of_positive) < 0.95
    assert any(of_negative) != positive_only


def test_choices_are_those_of_the_batch_on_any_number_of_ranks(tmp_path: Path) -> None:
    whole = prompts(make_learner(tmp_path, micro=SIZE, unconditional_prob=0.5), 3)
    halves = [prompts(make_learner(tmp_path, rank=rank, world_size=2, unconditional_prob=0.5), 3) for rank in (0, 1)]
    assert [first + second for first, second in zip(*halves, strict=True)] == list(whole)
    # Which frames are chosen does not depend on their labels here, and differs from batch to batch.
    free = make_learner(tmp_path, unconditional_prob=0.5, positive_only_conditional=False)
    assert prompts(free, 3)[2] != prompts(free, 4)[2]


def test_metrics_tell_both_kinds_of_frames_apart(tmp_path: Path) -> None:
    learner = make_learner(tmp_path, unconditional_prob=0.5)
    found = [prompts(learner, number) for number in (0, 1)]
    positive = [label for part in found for label in part[1]]
    said = [label for part in found for label in part[2]]
    metrics = learner.update(1)
    assert metrics["positive_frames"] == pytest.approx(np.mean(positive))
    assert metrics["conditional_frames"] == pytest.approx(np.mean(said))
    low, high = sorted((metrics["conditional_loss"], metrics["unconditional_loss"]))
    assert low < metrics["imitation_loss"] < high


def test_frames_without_labels_are_learned_as_before(tmp_path: Path) -> None:
    learner = make_learner(tmp_path, tag=None)
    assert learner.frames is not None
    assert "labels" not in learner.frames.micro_batches(0)[0]
    assert "positive_frames" not in learner.update(1)
