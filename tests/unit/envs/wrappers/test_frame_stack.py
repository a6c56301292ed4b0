"""``frame_stack``: the oldest first, and never over episodes."""

import pytest
import torch
from wrapped_envs import pixel_reach

from rlinf.config.schema.env import (
    FrameStackConfig,
)
from rlinf.errors import ConfigError

STACK = FrameStackConfig(name="frame_stack", num_frames=3, keys=["main_images", "states"])


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


def test_keys_that_cannot_be_stacked_are_an_error() -> None:
    with pytest.raises(ConfigError, match="main_images, states"):
        pixel_reach([FrameStackConfig(name="frame_stack", num_frames=2, keys=["wrist_images"])])
