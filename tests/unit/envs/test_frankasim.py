"""``env_type: frankasim``."""

import ctypes.util
from typing import Any

import pytest
import torch

from rlinf.config.schema.env import FrankaSimEnvConfig
from rlinf.envs import make_vector_env
from rlinf.envs.base import VectorEnv
from rlinf.envs.conformance import check_vector_env

pytest.importorskip("mujoco")


def frankasim_config(**kwargs: Any) -> FrankaSimEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "frankasim",
        "total_num_envs": 4,
        "group_size": 2,
        "max_episode_steps": 7,
        "max_steps_per_rollout_epoch": 14,
    }
    return FrankaSimEnvConfig(**{**defaults, **kwargs})


def play(env: VectorEnv, *, closes: bool) -> list[dict[str, float]]:
    """Go above the cube, down to it, close the gripper (or not) and rise; return how the episodes went."""
    states = env.reset(0)["states"]
    above = torch.tensor([0.0, 0.0, 0.06])
    still, up = torch.zeros(len(states), 3), torch.tensor([0.0, 0.0, 1.0]).expand(len(states), 3)
    episodes: list[dict[str, float]] = []
    for number in range(50):
        way = states[:, 10:13]
        move = (way + above) * 30 if number < 15 else way * 30 if number < 25 else still if number < 31 else up
        grip = torch.full((len(states), 1), -1.0 if closes and number >= 25 else 1.0)
        step = env.chunk_step(torch.cat([move.clamp(-1, 1), grip], 1)[:, None])
        states, episodes = step.obs["states"], [*episodes, *step.episodes]
    return episodes


@pytest.mark.parametrize("num_env_processes", [0, 2])
def test_states_conform(num_env_processes: int) -> None:
    with make_vector_env(frankasim_config(num_env_processes=num_env_processes), num_envs=4) as env:
        assert env.observation_space["states"].shape == (13,)
        check_vector_env(
            env, rebuild=lambda: make_vector_env(frankasim_config(num_env_processes=num_env_processes), num_envs=4)
        )


def test_grasping_and_lifting_the_cube_is_success() -> None:
    cfg = frankasim_config(max_episode_steps=50, max_steps_per_rollout_epoch=50, auto_reset=False)
    with make_vector_env(cfg, num_envs=4) as env:
        lifted = play(env, closes=True)
        left = play(env, closes=False)
    assert [episode["success_once"] for episode in lifted] == [1.0] * 4
    assert all(episode["episode_len"] < 50 for episode in lifted)
    assert [episode["success_once"] for episode in left] == [0.0] * 4


def test_the_hand_stays_in_its_workspace() -> None:
    cfg = frankasim_config(max_episode_steps=60, max_steps_per_rollout_epoch=60, group_size=1, total_num_envs=2)
    with make_vector_env(cfg, num_envs=2) as env:
        env.reset(0)
        directions = torch.tensor([[1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, 0.0, 1.0]])
        states = env.chunk_step(directions[:, None].expand(2, 50, 4)).obs["states"]
    low, high = torch.tensor([0.3, -0.25, 0.0]) - 0.03, torch.tensor([0.7, 0.25, 0.4]) + 0.03
    assert ((states[:, :3] > low) & (states[:, :3] < high)).all(), states[:, :3]


def test_cameras_replace_the_cubes_position(monkeypatch: pytest.MonkeyPatch) -> None:
    if ctypes.util.find_library("OSMesa") is None:
        pytest.skip("drawing without a screen or GPU needs libosmesa6")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    cfg = frankasim_config(image_size=32, total_num_envs=2, num_env_processes=1)
    with make_vector_env(cfg, num_envs=2) as env:
        first, second = env.reset(0), env.reset(1)
        assert first["states"].shape == (2, 7)
        assert torch.equal(first["states"], second["states"])  # the arm begins at home, only the cube moves
        for key in ("main_images", "wrist_images"):
            assert first[key].shape == (2, 32, 32, 3)
            assert not torch.equal(first[key], second[key])
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))
