"""How the parts that env workers collect become one data set, in training over several runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.datasets.lerobot import LeRobotDataset, check_dataset
from rlinf.data.datasets.lerobot.format import LeRobotEpisode
from rlinf.data.datasets.lerobot.writer import LeRobotWriter, WriterOptions
from rlinf.errors import DatasetError
from rlinf.runners import collection
from rlinf.runners.collection import training_episodes

MakeRecipe = Callable[[], EmbodiedConfig]


@pytest.fixture
def make(tmp_path: Path) -> MakeRecipe:
    overrides = ["env.train.data_collection.enabled=true", f"env.train.data_collection.save_dir={tmp_path}/dataset"]
    cfg = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", [*overrides, f"runner.logger.log_path={tmp_path}"]))
    assert isinstance(cfg, EmbodiedConfig)
    return lambda: cfg


@pytest.fixture
def resume(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    """Let runs continue from the checkpoint of a step."""

    def at(step: int) -> None:
        monkeypatch.setattr(collection, "find_checkpoint", lambda cfg: tmp_path)
        monkeypatch.setattr(collection, "checkpoint_step", lambda path: step)

    return at


def collect(cfg: EmbodiedConfig, *steps: int, envs: int = 2) -> None:
    """Write a part of each env worker and step: one episode, of which every number says where it is from."""
    for step in steps:
        for first in range(envs):
            root = Path(str(cfg.env.train.data_collection.save_dir)) / f"part_{first:06d}_step_{step:06d}"
            with LeRobotWriter(root, WriterOptions(fps=10)) as writer:
                writer.add(LeRobotEpisode({"action": np.full((2, 1), 10.0 * step + first, np.float32)}, "task"))


def die(cfg: EmbodiedConfig, *steps: int) -> None:
    """Run until the driver is killed, which runs nothing that stands behind its last step."""
    run = training_episodes(cfg)
    collect(run.__enter__(), *steps)


def episodes(root: Path) -> list[int]:
    check_dataset(root)
    dataset = LeRobotDataset(root)
    return [int(dataset.episode(number).columns["action"][0, 0]) for number in range(dataset.num_episodes)]


def test_steps_are_joined_in_their_order(make: MakeRecipe, tmp_path: Path) -> None:
    with training_episodes(make()) as cfg:
        collect(cfg, 2, 1)
    assert episodes(tmp_path / "dataset") == [10, 11, 20, 21]
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]


def test_a_run_that_was_killed_is_continued_from_its_checkpoint(
    make: MakeRecipe, resume: Callable[[int], None], tmp_path: Path
) -> None:
    die(make(), 1, 2, 3)
    assert not (tmp_path / "dataset").exists()
    resume(2)
    with training_episodes(make()) as cfg:
        collect(cfg, 3, 4, envs=1)  # fewer workers than before
    assert episodes(tmp_path / "dataset") == [10, 11, 20, 21, 30, 40]


def test_a_run_that_had_ended_goes_on(make: MakeRecipe, resume: Callable[[int], None], tmp_path: Path) -> None:
    with training_episodes(make()) as cfg:
        collect(cfg, 1, 2)
    resume(2)
    for last in (3, 4):
        with training_episodes(make()) as cfg:
            collect(cfg, last, envs=1)
        resume(last)
    assert episodes(tmp_path / "dataset") == [10, 11, 20, 21, 30, 40]


def test_episodes_that_would_be_made_again_are_refused(
    make: MakeRecipe, resume: Callable[[int], None], tmp_path: Path
) -> None:
    with training_episodes(make()) as cfg:
        collect(cfg, 1, 2)
    for step in (None, 1):
        if step is not None:
            resume(step)
        with pytest.raises(DatasetError, match="would make again. Move it away"), training_episodes(make()):
            pass
    assert episodes(tmp_path / "dataset") == [10, 11, 20, 21]


def test_what_another_run_has_left_is_not_taken_over(make: MakeRecipe, tmp_path: Path) -> None:
    die(make(), 1, 2)
    with training_episodes(make()) as cfg:
        collect(cfg, 1, envs=1)
    assert episodes(tmp_path / "dataset") == [10]


def test_training_without_any_episode_to_keep_makes_none(make: MakeRecipe, tmp_path: Path, caplog: Any) -> None:
    with training_episodes(make()):
        pass
    assert not list(tmp_path.iterdir())
    assert "no episode has ended; there is no data set" in caplog.text
