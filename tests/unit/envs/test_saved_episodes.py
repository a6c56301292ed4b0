"""Episodes that had not ended are saved, and continued by other instances, as if nothing had been."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from batch_env import BatchEnv, make_config, make_single

from rlinf.checkpoint.tree_file import load_tree, save_tree
from rlinf.config.schema.env import ActionDelayConfig, DataCollectionConfig, FrameStackConfig, VideoConfig
from rlinf.config.schema.intervention import IntervenerConfig, InterventionConfig
from rlinf.data.messages.embodied import ChunkStep
from rlinf.envs.action_log import ActionLog
from rlinf.envs.base import StepResult, VectorEnv
from rlinf.envs.conformance import ConformanceError, check_vector_env
from rlinf.envs.interveners import register_intervener
from rlinf.envs.raw_chunk import changed_rows
from rlinf.errors import EpisodeRestoreError

MakeEnv = Callable[..., VectorEnv]


def chunk(number: int, *, num_envs: int = 4, num_chunks: int = 2) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(number).uniform(-1, 1, (num_envs, num_chunks, 1)).astype(np.float32))


def play(env: VectorEnv, numbers: range) -> list[ChunkStep]:
    return [env.chunk_step(chunk(number, num_envs=env.num_envs)) for number in numbers]


def assert_same(first: list[ChunkStep], second: list[ChunkStep]) -> None:
    for one, other in zip(first, second, strict=True):
        for field in fields(ChunkStep):
            value, again = getattr(one, field.name), getattr(other, field.name)
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, again), field.name
            elif isinstance(value, dict):
                assert value.keys() == again.keys()
                assert all(
                    torch.equal(value[k], again[k]) if isinstance(value[k], torch.Tensor) else value[k] == again[k]
                    for k in value
                ), field.name
            else:
                assert value == again, field.name


def through_a_file(state: Any, tmp_path: Path) -> Any:
    save_tree(tmp_path / "state.safetensors", state)
    return load_tree(tmp_path / "state.safetensors")


# -- the log -----------------------------------------------------------------------------------------------------------


def test_segments_bring_all_rows_to_their_present_state_at_the_same_time() -> None:
    log = ActionLog(4)
    log.begin(np.arange(4), np.array([10, 11, 12, 13]))
    executed = [np.array([[1, 1], [1, 0], [1, 1], [0, 0]], bool), np.array([[1, 1], [0, 0], [1, 0], [0, 0]], bool)]
    for number, done in enumerate(executed):
        log.add(np.arange(8).reshape(4, 2, 1) + 100 * number, done)
    log.begin(np.array([1]), np.array([99]))
    assert log.lengths.tolist() == [4, 0, 3, 0]
    assert log.seeds.tolist() == [10, 99, 12, 13]
    state = log.state_dict()
    again = ActionLog(4)
    again.load_state_dict(state)
    log.begin(np.arange(4), np.zeros(4, np.int64))  # what was saved does not change any more
    assert again.lengths.tolist() == [4, 0, 3, 0]
    played: dict[int, list[int]] = {row: [] for row in range(4)}
    begun = []
    for segment in again.segments():
        begun.append(segment.begins.tolist())
        for row in np.flatnonzero(segment.active):
            assert segment.steps[row] == len(played[row])
            played[row] += segment.actions[row, :, 0].tolist()
    assert begun == [[0], [2], [1, 3]]
    assert played == {0: [0, 1, 100, 101], 1: [], 2: [4, 5, 104], 3: []}


# -- environments ------------------------------------------------------------------------------------------------------


def make_pool(cfg: Any, *, num_envs: int) -> VectorEnv:
    return make_single(cfg, num_envs=num_envs)


MAKERS = {
    "batch": (BatchEnv, {}),
    "single": (make_single, {}),
    "pool": (make_pool, {"num_env_processes": 2}),
    "relative": (BatchEnv, {"use_rel_reward": True, "reward_coef": 0.1}),
    "rests": (make_single, {"auto_reset": False}),
    "batch_rests": (BatchEnv, {"auto_reset": False}),
    "goes_on": (BatchEnv, {"ignore_terminations": True}),
    "delayed": (BatchEnv, {"wrappers": [ActionDelayConfig(name="action_delay", num_steps=3)]}),
    "stacked": (make_single, {"wrappers": [FrameStackConfig(name="frame_stack", num_frames=3, keys=["states"])]}),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("num_before", [0, 1, 2, 5])
def test_another_instance_goes_on_as_the_first_would_have(name: str, num_before: int, tmp_path: Path) -> None:
    make, keys = MAKERS[name]
    cfg = make_config(**keys)
    with make(cfg, num_envs=4) as env, make(cfg, num_envs=4) as other:
        shown = env.reset(3)
        before = play(env, range(num_before))
        state = through_a_file(env.state_dict(), tmp_path)
        after = play(env, range(50, 80))
        again = other.load_state_dict(state)
        expected = before[-1].obs if before else shown
        assert all(torch.equal(again[k], v) for k, v in expected.items() if isinstance(v, torch.Tensor))
        assert other.episode_steps.tolist() == state["tracker"]["steps"].tolist()
        assert_same(play(other, range(50, 80)), after)
        assert torch.equal(other.reset_state_ids, env.reset_state_ids)
        assert torch.equal(other.group_ids, env.group_ids)


def test_a_state_is_not_changed_by_what_comes_later() -> None:
    cfg = make_config(wrappers=[FrameStackConfig(name="frame_stack", num_frames=2, keys=["states"])])
    with BatchEnv(cfg, num_envs=4) as env:
        env.reset(0)
        play(env, range(1))
        state = env.state_dict()
        first = play(env, range(5, 10))
        assert state is not None
        env.load_state_dict(state)
        assert_same(play(env, range(5, 10)), first)


def test_there_is_no_state_before_the_first_reset_nor_within_a_chunk() -> None:
    with BatchEnv(make_config(), num_envs=4) as env:
        assert env.state_dict() is None
        env.reset(0)
        env.start_chunk_step(chunk(0))
        assert env.state_dict() is None
        env.finish_chunk_step()
        assert env.state_dict() is not None


class HasMoods(BatchEnv):
    """Remembers something that no reset clears."""

    mood = 0

    def step(self, actions: Any, active: Any) -> StepResult:
        self.mood += 1
        return super().step(actions, active)

    def observe(self) -> dict[str, Any]:
        obs = super().observe()
        states = obs["states"].copy()
        states[2:, 1] += 0.5 * (self.mood > 3)
        return {**obs, "states": states}


def test_environments_that_stray_are_named_and_have_to_be_reset() -> None:
    cfg = make_config(total_num_envs=8)
    with HasMoods(cfg, num_envs=4, first_env=4) as env, HasMoods(cfg, num_envs=4, first_env=4) as other:
        env.reset(0)
        play(env, range(3))
        state = env.state_dict()
        assert state is not None
        with pytest.raises(EpisodeRestoreError, match="environments 6-7 do not come back"):
            other.load_state_dict(state)
        other.reset(0)
        play(other, range(1))


def test_the_checker_finds_what_a_resumed_run_would_stumble_over() -> None:
    cfg = make_config()
    with HasMoods(cfg, num_envs=4) as env:
        env.mood = 4  # from now on it shows the same at every reset
        with pytest.raises(ConformanceError, match="nothing but its seed") as info:
            check_vector_env(env, rebuild=lambda: HasMoods(cfg, num_envs=4))
    assert info.value.rule == "restore"


class KeepsItsState(BatchEnv):
    """Hands its state out; whoever executes an action again fails the test."""

    restored_by: ClassVar[Any] = "state"
    resets = 0

    def reset_idx(self, env_ids: Any, seeds: Any) -> dict[str, Any]:
        self.resets += 1
        return super().reset_idx(env_ids, seeds)

    def _get_state(self) -> Mapping[str, Any]:
        return {"seeds": self.seeds.copy(), "time": self.time.copy()}

    def _set_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        self.seeds, self.time = state["seeds"].copy(), state["time"].copy()
        return self.observe()


def test_a_simulator_may_hand_out_its_state_instead(tmp_path: Path) -> None:
    cfg = make_config(use_rel_reward=True)  # its last rewards are known to no simulator
    with KeepsItsState(cfg, num_envs=4) as env, KeepsItsState(cfg, num_envs=4) as other:
        env.reset(0)
        play(env, range(3))
        state = through_a_file(env.state_dict(), tmp_path)
        after = play(env, range(50, 60))
        other.load_state_dict(state)
        assert other.resets == 0
        assert_same(play(other, range(50, 60)), after)
        check_vector_env(env, rebuild=lambda: KeepsItsState(cfg, num_envs=4))


@pytest.mark.parametrize("attribute", [{"restored_by": "nothing"}, {"hardware_type": "Franka"}])
def test_what_drives_hardware_never_saves_actions(attribute: dict[str, str]) -> None:
    env_class = type("Robot", (BatchEnv,), attribute)
    with env_class(make_config(), num_envs=4) as env:
        env.reset(0)
        play(env, range(2))
        assert not env.is_restorable
        assert env.state_dict() is None


def test_actions_that_are_no_arrays_are_not_saved() -> None:
    class TakesTensors(BatchEnv):
        def prepare_actions(self, actions: torch.Tensor) -> Any:
            return actions

        def step(self, actions: Any, active: Any) -> StepResult:
            return super().step(actions.numpy(), active)

    with TakesTensors(make_config(), num_envs=4) as env:
        env.reset(0)
        play(env, range(1))
        assert env.state_dict() is None


class Stubborn:
    """Acts in every second step, counted over everything that it has seen."""

    state_names = ("count",)

    def __init__(self, cfg: Any, *, env: Any, row: int) -> None:
        self.count = row

    def begin(self) -> None:
        """An episode begins."""

    def act(self, situation: Any) -> torch.Tensor | None:
        self.count += 1
        return torch.tensor([situation.step + situation.reward]) if self.count % 2 else None

    def close(self) -> None:
        """Nothing is held."""


def test_whoever_intervenes_remembers_too(tmp_path: Path) -> None:
    register_intervener("stubborn", Stubborn, IntervenerConfig)
    intervener = IntervenerConfig(intervener_type="stubborn")
    cfg = make_config(wrappers=[InterventionConfig(name="intervention", intervener=intervener)])

    def play(env: VectorEnv, numbers: range) -> list[ChunkStep]:
        return [env.chunk_step(chunk(number, num_chunks=1)) for number in numbers]

    with BatchEnv(cfg, num_envs=4) as env, BatchEnv(cfg, num_envs=4) as other:
        env.reset(0)
        play(env, range(5))
        state = through_a_file(env.state_dict(), tmp_path)
        after = play(env, range(50, 60))
        other.load_state_dict(state)
        assert_same(play(other, range(50, 60)), after)


# -- what is recorded of them ------------------------------------------------------------------------------------------


def test_videos_of_continued_episodes_are_whole(tmp_path: Path) -> None:
    imageio: Any = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")

    def lengths(folder: Path) -> dict[str, int]:
        return {path.name: imageio.get_reader(path).count_frames() for path in sorted(folder.iterdir())}

    def config(name: str) -> Any:
        video = VideoConfig(save_video=True, video_base_dir=str(tmp_path / name), num_videos=2)
        return make_config(video_cfg=video)

    for name in ("undisturbed", "killed"):
        with make_single(config(name), num_envs=4) as env:
            env.reset(0)
            play(env, range(4))
            state = env.state_dict()
            if name == "undisturbed":
                play(env, range(50, 55))
    assert state is not None
    with make_single(config("killed"), num_envs=4) as other:
        other.load_state_dict(state)
        play(other, range(50, 55))
    assert lengths(tmp_path / "killed") == lengths(tmp_path / "undisturbed")


def test_a_video_of_tiles_goes_on_in_a_file_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    video = VideoConfig(save_video=True, video_base_dir=str(tmp_path), num_videos=2, tile=True)
    for _ in range(3):
        with make_single(make_config(video_cfg=video), num_envs=4) as env:
            if not list(tmp_path.iterdir()):
                env.reset(0)
                play(env, range(2))
                state = env.state_dict()
            else:
                assert state is not None
                env.load_state_dict(state)
            play(env, range(2))
    names = sorted(path.stem for path in tmp_path.iterdir())
    assert names == [f"epoch_000000_envs_0000-0001{part}" for part in ("", "_part_2", "_part_3")]


def test_collected_episodes_are_whole_too(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from rlinf.data.datasets.lerobot import LeRobotDataset

    def config(name: str) -> Any:
        return make_config(data_collection=DataCollectionConfig(enabled=True, save_dir=str(tmp_path / name)))

    with make_single(config("killed"), num_envs=4) as env:
        env.reset(0)
        play(env, range(2))
        state = env.state_dict()
        assert state is not None
        steps = state["tracker"]["steps"]
    with make_single(config("resumed"), num_envs=4) as other:
        other.load_state_dict(state)
        after = play(other, range(50, 56))
        other.finish_collection()
    part = LeRobotDataset(tmp_path / "resumed" / "part_000000")
    lengths = [int(episode["episode_len"]) for step in after for episode in step.episodes]
    assert part.num_episodes == len(lengths) > 0
    assert part.num_frames == sum(lengths)
    assert steps.any()


def test_rows_are_compared_bit_for_bit() -> None:
    first = {"states": np.array([[0.0, np.nan], [1.0, 2.0], [3.0, 4.0]]), "task_descriptions": ["a", "b", "c"]}
    second = {"states": np.array([[-0.0, np.nan], [1.0, 2.0], [3.0, 4.0]]), "task_descriptions": ["a", "b", "d"]}
    assert changed_rows(first, first).tolist() == []
    assert changed_rows(first, second).tolist() == [0, 2]
    assert changed_rows(first, {"states": first["states"]}).tolist() == [0, 1, 2]
    assert changed_rows(first, {**first, "states": first["states"].astype(np.float32)}).tolist() == [0, 1, 2]
