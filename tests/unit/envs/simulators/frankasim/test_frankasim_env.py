"""``env_type: frankasim`` keeps the rules of environments, with states and with cameras."""

import ctypes.util

import pytest
import torch
from frankasim_configs import frankasim_config

from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env


@pytest.mark.parametrize("num_env_processes", [0, 2])
def test_states_conform(num_env_processes: int) -> None:
    with make_vector_env(frankasim_config(num_env_processes=num_env_processes), num_envs=4) as env:
        assert env.observation_space["states"].shape == (13,)
        check_vector_env(
            env, rebuild=lambda: make_vector_env(frankasim_config(num_env_processes=num_env_processes), num_envs=4)
        )


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
