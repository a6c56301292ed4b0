"""``env_type: pixel_reach``."""

from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.schema.env import PixelReachEnvConfig
from rlinf.envs import check_vector_env, make_vector_env


def config(**keys: Any) -> PixelReachEnvConfig:
    defaults: dict[str, Any] = {"total_num_envs": 4, "group_size": 2, "max_episode_steps": 9}
    return PixelReachEnvConfig(env_type="pixel_reach", max_steps_per_rollout_epoch=18, **{**defaults, **keys})


@pytest.mark.parametrize("keys", [{}, {"wrist_camera": True, "goal_in_states": True, "image_size": 20}])
def test_pixel_reach_conforms(keys: dict[str, Any]) -> None:
    with make_vector_env(config(**keys), num_envs=4) as env:
        check_vector_env(env, rebuild=lambda: make_vector_env(config(**keys), num_envs=4))


def test_going_to_the_goal_ends_in_success() -> None:
    with make_vector_env(config(goal_in_states=True, max_episode_steps=30), num_envs=4) as env:
        states = env.reset(0)["states"]
        before = (states[:, 2:] - states[:, :2]).norm(dim=-1)
        ends: dict[int, dict[str, float]] = {}
        for number in range(30):
            step = env.chunk_step(10 * (states[:, 2:] - states[:, :2])[:, None])
            if number == 0:
                after = (step.obs["states"][:, 2:] - step.obs["states"][:, :2]).norm(dim=-1)
                torch.testing.assert_close(step.rewards[:, 0], -after)
                assert (after < before).all()
            for row, episode in zip(
                [] if step.final_ids is None else step.final_ids.tolist(), step.episodes, strict=True
            ):
                ends.setdefault(row, episode)
            states = step.obs["states"]
        assert {row: episode["success_once"] for row, episode in ends.items()} == dict.fromkeys(range(4), 1.0)


def test_cameras_show_where_things_are() -> None:
    with make_vector_env(config(goal_in_states=True, wrist_camera=True, image_size=40), num_envs=4) as env:
        obs = env.reset(3)
    for row in range(4):
        image = obs["main_images"][row].numpy().astype(int)
        for colour, place in ((1, obs["states"][row, 2:]), (0, obs["states"][row, :2])):
            rest = np.delete(image, colour, axis=2).max(axis=2)
            ys, xs = np.nonzero(image[..., colour] > 1.5 * rest)
            if len(xs):  # the gripper may hide the goal
                centre = (np.array([xs.mean(), ys.mean()]) + 0.5) / 20 - 1
                np.testing.assert_allclose(centre, place.numpy(), atol=0.12)
        wrist = obs["wrist_images"][row, 20, 20].numpy().astype(int)
        assert wrist[0] > 1.5 * wrist[1:].max()
