"""``env_type: world_model``: the rules of dreams, in one that is computed and in one of a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.schema.world_models import WorldModelEnvConfig, world_models
from rlinf.data.datasets.lerobot import LeRobotEpisode, LeRobotWriter
from rlinf.data.datasets.lerobot.writer import WriterOptions
from rlinf.data.messages.embodied import FrameWindow
from rlinf.envs import check_vector_env, make_vector_env
from rlinf.errors import ConfigError, DatasetError, EnvironmentFailure
from rlinf.models.control.success_classifier import ClassifierConfig, SuccessClassifier
from rlinf.models.world.frame_unet import FrameUNet, FrameUNetConfig
from rlinf.models.world.world_model import WorldModel
from rlinf.registry import Registration

SIZE = 16
LENGTHS = (3, 5, 4)
"""Of the recorded episodes; frame ``t`` of episode ``e`` is of the gray 10 (e + 1) + t, its state too."""


class Ramp(WorldModel):
    """Every action makes the frame brighter by as much; 100 is success. Seeds are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.image_size, self.state_dim, self.num_frames = (SIZE, SIZE), 1, 2
        self.action_low, self.action_high = torch.tensor([-5.0]), torch.tensor([60.0])
        self.calls: list[tuple[FrameWindow, torch.Tensor]] = []

    @classmethod
    def load(cls, folder: Path) -> Ramp:
        assert folder.name == "model"
        return cls()

    def imagine(self, past: FrameWindow, actions: torch.Tensor, seeds: torch.Tensor) -> FrameWindow:
        self.calls.append((FrameWindow(past.images.clone(), past.states.clone()), seeds))
        grays = past.states[:, -1:, 0] + actions[..., 0].cumsum(1)
        images = grays.to(torch.uint8)[..., None, None, None].expand(*grays.shape, SIZE, SIZE, 3)
        return FrameWindow(images, grays[..., None])

    def success(self, frames: FrameWindow, tasks: list[str]) -> torch.Tensor:
        assert len(tasks) == len(frames.states)
        return frames.states[..., 0] / 200


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with LeRobotWriter(tmp_path / "recorded", WriterOptions(fps=10)) as writer:
        for number, length in enumerate(LENGTHS):
            grays = 10 * (number + 1) + np.arange(length)
            columns = {
                "observation.images.main": np.broadcast_to(
                    grays[:, None, None, None].astype(np.uint8), (length, SIZE, SIZE, 3)
                ),
                "observation.state": grays[:, None].astype(np.float32),
                "action": np.zeros((length, 1), np.float32),
            }
            writer.add(LeRobotEpisode(columns, f"task {number}"))
    return tmp_path / "recorded"


@pytest.fixture
def config(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorldModelEnvConfig]:
    monkeypatch.setitem(world_models._entries, "ramp", Registration(Ramp))

    def build(**keys: Any) -> WorldModelEnvConfig:
        defaults: dict[str, Any] = {
            "world_model_type": "ramp",
            "model_path": str(recorded.parent / "model"),
            "data_path": str(recorded),
            "total_num_envs": 3,
            "max_episode_steps": 9,
            "max_steps_per_rollout_epoch": 18,
            "use_ordered_reset_state_ids": True,
        }
        return WorldModelEnvConfig(env_type="world_model", **{**defaults, **keys})

    return build


def grays(obs: Any) -> list[int]:
    assert (obs["main_images"] == obs["main_images"][:, :1, :1, :1]).all()
    assert obs["main_images"][:, 0, 0, 0].tolist() == obs["states"][:, 0].tolist()
    return [int(value) for value in obs["states"][:, 0]]


def test_episodes_begin_where_recorded_ones_do_and_follow_the_actions(config: Callable[..., Any]) -> None:
    with make_vector_env(config(auto_reset=False), num_envs=3) as env:
        obs = env.reset(0)
        assert grays(obs) == [10, 20, 30]
        assert obs["task_descriptions"] == ["task 0", "task 1", "task 2"]
        step = env.chunk_step(torch.tensor([[[1.0], [2.0]], [[0.0], [-1.0]], [[60.0], [70.0]]]))
        assert grays(step.obs) == [13, 19, 150]  # actions are clipped to what the model knows
        assert step.rewards.tolist() == [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
        assert step.terminations.tolist() == [[False, False], [False, False], [False, True]]


def test_success_ends_an_episode_in_mid_chunk(config: Callable[..., Any]) -> None:
    with make_vector_env(config(auto_reset=False), num_envs=3) as env:
        env.reset(0)
        step = env.chunk_step(torch.tensor([[[60.0], [60.0], [1.0]], [[0.0]] * 3, [[0.0]] * 3]))
        assert step.executed.tolist() == [[True, True, False], [True] * 3, [True] * 3]
        assert step.rewards[0].tolist() == [0.0, 1.0, 0.0]
        assert step.episodes[0]["success_once"] == 1.0
        assert step.final_obs is not None
        assert grays(step.final_obs) == [130]
        again = env.chunk_step(torch.full((3, 1, 1), 2.0))
        assert grays(again.obs) == [130, 22, 32]
        assert env._states[0, :, 0].tolist() == [70.0, 130.0]  # what follows the end was not seen


def test_the_threshold_says_what_success_is(config: Callable[..., Any]) -> None:
    with make_vector_env(config(success_threshold=0.1), num_envs=3) as env:
        env.reset(0)
        # 20 and 30 of 200 are solved from the start, which is no success; 0.1 has to be risen to.
        assert not env.chunk_step(torch.zeros(3, 1, 1)).terminations.any()
        step = env.chunk_step(torch.full((3, 1, 1), 10.0))
        assert step.terminations[:, 0].tolist() == [True, False, False]


def test_success_is_a_rise_to_the_threshold(config: Callable[..., Any]) -> None:
    with make_vector_env(config(success_threshold=0.1, ignore_terminations=True), num_envs=3) as env:
        env.reset(0)
        moves = torch.tensor([[5.0, 5.0, 0.0, -5.0, 5.0], [0.0, -5.0, 5.0, 0.0, 0.0], [0.0] * 5])
        step = env.chunk_step(moves.unsqueeze(-1))
        assert step.rewards.tolist() == [[0.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0, 0.0], [0.0] * 5]


def test_a_chunk_is_one_call_that_sees_the_past(config: Callable[..., Any]) -> None:
    with make_vector_env(config(), num_envs=3) as env:
        env.reset(0)
        for _ in range(2):
            env.chunk_step(torch.ones(3, 2, 1))
        first, second = env.model.calls
        assert first[0].states[..., 0].tolist() == [[10, 10], [20, 20], [30, 30]]
        assert second[0].states[..., 0].tolist() == [[11, 12], [21, 22], [31, 32]]
        seeds = torch.cat([first[1], second[1]], 1)
        assert len(set(seeds.flatten().tolist())) == 12
        env.reset(0)
        env.chunk_step(torch.ones(3, 4, 1))
        assert torch.equal(env.model.calls[-1][1], seeds)


def test_any_frame_may_be_the_first(config: Callable[..., Any]) -> None:
    with make_vector_env(config(start_frames="any", use_ordered_reset_state_ids=False), num_envs=3) as env:
        starts = {gray for epoch in range(60) for gray in grays(env.reset(epoch))}
        env.chunk_step(torch.zeros(3, 1, 1))
        past = env.model.calls[-1][0].states[..., 0]
    assert starts == {10 * (number + 1) + frame for number, length in enumerate(LENGTHS) for frame in range(length)}
    assert all(after - before in (0, 1) for before, after in past.tolist())
    assert all((after == before) == (after % 10 == 0) for before, after in past.tolist())


def test_success_depends_on_the_sentence_that_a_frame_was_recorded_with(config: Callable[..., Any]) -> None:
    """The first task is solved from 15 on, the second from 29 on, and both begin below."""

    def judge(frames: FrameWindow, tasks: list[str]) -> torch.Tensor:
        needed = torch.tensor([{"task 0": 15.0, "task 1": 29.0, "task 2": 250.0}[task] for task in tasks])
        return (frames.states[..., 0] >= needed[:, None]).float()

    with make_vector_env(config(ignore_terminations=True), num_envs=3) as env:
        env.model.success = judge
        env.reset(0)
        step = env.chunk_step(torch.tensor([[4.0, 4.0, 4.0, 4.0]] * 3).unsqueeze(-1))
        assert step.rewards.tolist() == [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0] * 4]
        assert step.obs["task_descriptions"] == ["task 0", "task 1", "task 2"]


def test_a_group_has_one_start_and_one_sentence(config: Callable[..., Any]) -> None:
    keys = {"start_frames": "any", "use_ordered_reset_state_ids": False, "group_size": 3, "total_num_envs": 9}
    seen = set()
    with make_vector_env(config(**keys), num_envs=9) as env:
        for epoch in range(8):
            obs = env.reset(epoch)
            tasks, starts = obs["task_descriptions"], grays(obs)
            for first in (0, 3, 6):
                assert len(set(tasks[first : first + 3])) == len(set(starts[first : first + 3])) == 1
            assert tasks == [f"task {start // 10 - 1}" for start in starts]
            seen.update(tasks)
    assert seen == {"task 0", "task 1", "task 2"}


def test_tasks_that_the_model_cannot_judge_are_refused_at_the_start(
    config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def check(self: Ramp, tasks: list[str]) -> None:
        asked.extend(tasks)
        raise ConfigError("no such task")

    monkeypatch.setattr(Ramp, "check_tasks", check)
    with pytest.raises(ConfigError, match="no such task"):
        make_vector_env(config(), num_envs=3)
    assert sorted(asked) == ["task 0", "task 1", "task 2"]


def test_a_dream_is_cut_off_after_its_steps(config: Callable[..., Any]) -> None:
    with make_vector_env(config(max_episode_steps=3, auto_reset=False), num_envs=3) as env:
        env.reset(0)
        step = env.chunk_step(torch.zeros(3, 5, 1))
    assert step.truncations.tolist() == [[False, False, True, False, False]] * 3
    assert not step.terminations.any()
    assert step.executed.sum(1).tolist() == [3, 3, 3]


def test_offloading_moves_the_network(config: Callable[..., Any]) -> None:
    moved: list[Any] = []
    with make_vector_env(config(enable_offload=True), num_envs=3) as env:
        env.device = "meta"
        env.model.to = moved.append
        env.offload()
        assert [str(device) for device in moved] == ["cpu"]
        env.onload()
        assert [str(device) for device in moved] == ["cpu", "meta"]


def test_videos_show_the_dream_enlarged(config: Callable[..., Any]) -> None:
    with make_vector_env(config(), num_envs=3) as env:
        env.reset(0)
        frames = env.render_idx([0, 2])
    assert frames is not None
    assert [frame.shape for frame in frames] == [(192, 192, 3)] * 2
    assert [int(frame.max()) for frame in frames] == [10, 30]


def test_a_network_conforms(config: Callable[..., Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = FrameUNet(FrameUNetConfig(image_size=(SIZE, SIZE), action_dim=1, state_dim=1, num_frames=2, width=4))
    network.classifier = SuccessClassifier(ClassifierConfig(image_size=(SIZE, SIZE)))
    network.save(tmp_path / "model")
    cfg = config(world_model_type="frame_unet", start_frames="any", use_ordered_reset_state_ids=False, group_size=3)
    with make_vector_env(cfg, num_envs=3) as env:
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=3))


@pytest.mark.parametrize("missing", ["observation.images.main", "observation.state"])
def test_a_data_set_of_other_cameras_is_refused(
    config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    sizes = {"observation.images.main": {"image_size": (32, 32)}, "observation.state": {"state_dim": 4}}[missing]
    monkeypatch.setattr(Ramp, "load", classmethod(lambda cls, _: _changed(cls(), **sizes)))
    with pytest.raises(ConfigError, match=rf"{missing}.*looks at"):
        make_vector_env(config(), num_envs=3)


def test_a_data_set_must_be_there(config: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(DatasetError):
        make_vector_env(config(data_path=str(tmp_path / "none")), num_envs=3)


def test_failures_of_the_model_name_the_environments(config: Callable[..., Any]) -> None:
    with make_vector_env(config(), num_envs=3) as env:
        env.reset(0)
        env.model.success = lambda *_: 1 / 0
        with pytest.raises(EnvironmentFailure, match="while it imagined a chunk"):
            env.chunk_step(torch.zeros(3, 1, 1))


def _changed(model: Ramp, **sizes: Any) -> Ramp:
    for name, value in sizes.items():
        setattr(model, name, value)
    return model
