"""``action_delay``: later, and never in the next episode."""

import pytest
import torch
from wrapped_envs import pixel_reach

from rlinf.config.schema.env import (
    ActionDelayConfig,
    GymnasiumEnvConfig,
)
from rlinf.envs import make_vector_env
from rlinf.errors import ConfigError

DELAY = ActionDelayConfig(name="action_delay", num_steps=2)


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


def test_what_waits_is_dropped_when_a_rollout_epoch_begins() -> None:
    actions = torch.full((4, 2, 2), 0.2)
    with pixel_reach([DELAY]) as env, pixel_reach([]) as plain:
        env.reset(0)
        env.chunk_step(actions)
        env.reset(1)
        plain.reset(1)
        assert torch.equal(env.chunk_step(actions).rewards, plain.chunk_step(torch.zeros_like(actions)).rewards)


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
