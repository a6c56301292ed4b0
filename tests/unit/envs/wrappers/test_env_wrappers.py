"""``env.*.wrappers``: what each does, and that the rules of environments hold with it."""

from typing import Any

import pytest
import torch

from rlinf.config.schema.env import (
    ActionDelayConfig,
    ActionRepeatConfig,
    FrameStackConfig,
    GymnasiumEnvConfig,
    PixelReachEnvConfig,
    WrapperConfig,
)
from rlinf.data.messages.embodied import ChunkStep
from rlinf.envs import check_vector_env, make_vector_env
from rlinf.envs.base import VectorEnv
from rlinf.envs.wrappers.action_repeat import ActionRepeat
from rlinf.errors import ConfigError

STACK = FrameStackConfig(name="frame_stack", num_frames=3, keys=["main_images", "states"])
DELAY = ActionDelayConfig(name="action_delay", num_steps=2)
REPEAT = ActionRepeatConfig(name="action_repeat", num_repeats=2)


def pixel_reach(wrappers: list[WrapperConfig], **keys: Any) -> VectorEnv:
    defaults: dict[str, Any] = {"total_num_envs": 4, "group_size": 2, "max_episode_steps": 9, "image_size": 16}
    cfg = PixelReachEnvConfig(
        env_type="pixel_reach", max_steps_per_rollout_epoch=18, wrappers=wrappers, **{**defaults, **keys}
    )
    return make_vector_env(cfg, num_envs=4)


@pytest.mark.parametrize("wrappers", [[STACK], [REPEAT], [DELAY], [REPEAT, STACK]])
@pytest.mark.parametrize("auto_reset", [True, False])
def test_wrapped_environments_conform(wrappers: list[WrapperConfig], auto_reset: bool) -> None:
    with pixel_reach(wrappers, auto_reset=auto_reset) as env:
        check_vector_env(env, rebuild=lambda: pixel_reach(wrappers, auto_reset=auto_reset))


def test_single_environments_conform_too() -> None:
    cfg = GymnasiumEnvConfig(
        env_type="gymnasium",
        init_params={"id": "CartPole-v1"},
        total_num_envs=2,
        max_episode_steps=30,
        max_steps_per_rollout_epoch=60,
        wrappers=[REPEAT, FrameStackConfig(name="frame_stack", num_frames=2, keys=["states"])],
    )
    with make_vector_env(cfg, num_envs=2) as env:
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))


def test_frames_are_stacked_the_oldest_first_and_never_over_episodes() -> None:
    still = torch.zeros(4, 1, 2)
    right = torch.tensor([0.1, 0.0]).expand(4, 1, 2)
    with pixel_reach([STACK], max_episode_steps=3) as env, pixel_reach([], max_episode_steps=3) as plain:
        shown, seen = env.reset(0), [plain.reset(0)]
        assert shown["main_images"].shape == (4, 16, 16, 9)
        assert torch.equal(shown["states"], seen[0]["states"].repeat(1, 3))
        for actions in (right, right):
            shown = env.chunk_step(actions).obs
            seen.append(plain.chunk_step(actions).obs)
        for key in ("states", "main_images"):
            assert torch.equal(shown[key], torch.cat([obs[key] for obs in seen], -1))
        step, end = env.chunk_step(still), plain.chunk_step(still)
        assert step.final_obs is not None
        assert end.final_obs is not None
        assert step.final_ids is not None
        last = torch.cat([seen[1]["states"], seen[2]["states"], end.final_obs["states"]], -1)
        assert torch.equal(step.final_obs["states"], last[step.final_ids])
        assert torch.equal(step.obs["states"], end.obs["states"].repeat(1, 3))


@pytest.mark.parametrize("num_action_chunks", [1, 3])
def test_delayed_actions_are_executed_later_and_never_in_the_next_episode(num_action_chunks: int) -> None:
    actions = torch.rand(4, 6, 2, generator=torch.Generator().manual_seed(0)) * 0.2
    # Two episodes of three steps: of each the first two steps rest, and the last two actions are dropped.
    late = torch.zeros_like(actions)
    late[:, 2], late[:, 5] = actions[:, 0], actions[:, 3]
    with pixel_reach([DELAY], max_episode_steps=3, ignore_terminations=True) as env:
        env.reset(0)
        delayed = [env.chunk_step(part) for part in actions.split(num_action_chunks, 1)]
    with pixel_reach([], max_episode_steps=3, ignore_terminations=True) as plain:
        plain.reset(0)
        shifted = [plain.chunk_step(part) for part in late.split(num_action_chunks, 1)]
    for step, expected in zip(delayed, shifted, strict=True):
        assert torch.equal(step.rewards, expected.rewards)
        assert torch.equal(step.obs["states"], expected.obs["states"])


def test_the_last_wrapper_is_the_first_to_change_actions() -> None:
    actions = torch.rand(4, 4, 2, generator=torch.Generator().manual_seed(0)) * 0.2
    late = torch.cat([torch.zeros(4, 2, 2), actions[:, :2]], 1).repeat_interleave(2, dim=1)
    with pixel_reach([REPEAT, DELAY], ignore_terminations=True) as env:
        env.reset(0)
        states = env.chunk_step(actions).obs["states"]
    with pixel_reach([], ignore_terminations=True) as plain:
        plain.reset(0)
        assert torch.equal(states, plain.chunk_step(late).obs["states"])


def test_discrete_actions_cannot_be_delayed() -> None:
    cfg = GymnasiumEnvConfig(
        env_type="gymnasium",
        init_params={"id": "CartPole-v1"},
        total_num_envs=2,
        max_episode_steps=30,
        max_steps_per_rollout_epoch=60,
        wrappers=[DELAY],
    )
    with make_vector_env(cfg, num_envs=2) as env:
        env.reset(0)
        with pytest.raises(ConfigError, match=r"action_delay: env_type=gymnasium has discrete actions"):
            env.chunk_step(torch.zeros(2, 1, dtype=torch.long))


def test_repeated_actions_are_reported_as_one() -> None:
    cfg = PixelReachEnvConfig(
        env_type="pixel_reach", total_num_envs=1, max_episode_steps=9, max_steps_per_rollout_epoch=9
    )
    wrapper = ActionRepeat(ActionRepeatConfig(name="action_repeat", num_repeats=3), env=cfg, num_envs=1)
    assert wrapper.actions(torch.tensor([[[1.0], [2.0]]])).flatten().tolist() == [1, 1, 1, 2, 2, 2]
    executed = torch.tensor([[True] * 5 + [False], [True] * 3 + [False] * 3])
    ends = torch.zeros(2, 6, dtype=torch.bool)
    ends[0, 4] = ends[1, 2] = True
    step = wrapper.step_result(
        ChunkStep(
            obs={},
            rewards=torch.tensor([[1.0, 2, 3, 4, 5, 0], [1, 1, 1, 0, 0, 0]]),
            terminations=ends & executed[:, :1],
            truncations=torch.zeros_like(ends),
            executed=executed,
            final_obs={},
            final_ids=torch.tensor([0]),
            episodes=({"episode_len": 5.0, "return": 15.0, "reward": 3.0, "success_once": 1.0},),
        )
    )
    assert step.rewards.tolist() == [[6, 9], [3, 0]]
    assert step.executed.tolist() == [[True, True], [True, False]]
    assert step.terminations.tolist() == [[False, True], [True, False]]
    assert step.episodes[0] == {"episode_len": 2.0, "return": 15.0, "reward": 7.5, "success_once": 1.0}


def test_keys_that_cannot_be_stacked_are_an_error() -> None:
    with pytest.raises(ConfigError, match="main_images, states"):
        pixel_reach([FrameStackConfig(name="frame_stack", num_frames=2, keys=["wrist_images"])])
