"""Wrapped environments keep the rules; the last wrapper is the first to change actions."""

import pytest
import torch
from wrapped_envs import pixel_reach

from rlinf.config.schema.env import (
    ActionDelayConfig,
    ActionRepeatConfig,
    FrameStackConfig,
    GymnasiumEnvConfig,
    WrapperConfig,
)
from rlinf.envs import check_vector_env, make_vector_env

STACK = FrameStackConfig(name="frame_stack", num_frames=3, keys=["main_images", "states"])
DELAY = ActionDelayConfig(name="action_delay", num_steps=2)
REPEAT = ActionRepeatConfig(name="action_repeat", num_repeats=2)


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


def test_the_last_wrapper_is_the_first_to_change_actions() -> None:
    actions = torch.rand(4, 4, 2, generator=torch.Generator().manual_seed(0)) * 0.2
    late = torch.cat([torch.zeros(4, 2, 2), actions[:, :2]], 1).repeat_interleave(2, dim=1)
    with pixel_reach([REPEAT, DELAY], ignore_terminations=True) as env:
        env.reset(0)
        states = env.chunk_step(actions).obs["states"]
    with pixel_reach([], ignore_terminations=True) as plain:
        plain.reset(0)
        assert torch.equal(states, plain.chunk_step(late).obs["states"])
