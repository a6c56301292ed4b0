"""Episodes that had not ended are saved, and continued by other instances, as if nothing had been."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from batch_env import BatchEnv, make_config, make_single
from saved_episodes import assert_same, chunk, play, through_a_file

from rlinf.config.schema.env import ActionDelayConfig, FrameStackConfig
from rlinf.envs.base import StepResult, VectorEnv
from rlinf.envs.conformance import ConformanceError, check_vector_env
from rlinf.errors import EpisodeRestoreError


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
