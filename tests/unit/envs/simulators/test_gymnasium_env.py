"""``env_type: gymnasium`` keeps the rules of environments."""

from typing import Any

import pytest
import torch
from builtin_configs import gymnasium_config

from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_gymnasium_environments_conform(env_id: str) -> None:
    with make_vector_env(gymnasium_config(env_id), num_envs=4) as env:
        check_vector_env(env, rebuild=lambda: make_vector_env(gymnasium_config(env_id), num_envs=4))


def test_a_limit_that_gymnasium_registers_ends_no_episode_early() -> None:
    cfg = gymnasium_config("Pendulum-v1", max_episode_steps=250, max_steps_per_rollout_epoch=250)
    with make_vector_env(cfg, num_envs=4) as env:
        env.reset(0)
        step = env.chunk_step(torch.zeros(4, 250, 1))
    assert [episode["episode_len"] for episode in step.episodes] == [250.0] * 4
    assert step.truncations[:, -1].all()


# Goal environments show a mapping of observation, achieved_goal and desired_goal.
@pytest.mark.parametrize(
    ("env_id", "size", "keys"),
    [
        ("InvertedPendulum-v5", 4, {}),
        ("HalfCheetah-v5", 17, {}),
        ("FetchReachDense-v4", 16, {"import_module": "gymnasium_robotics", "success_key": "is_success"}),
        ("PointMaze_UMaze-v3", 8, {"import_module": "gymnasium_robotics"}),
    ],
)
def test_mujoco_environments_conform(env_id: str, size: int, keys: dict[str, Any]) -> None:
    pytest.importorskip(keys.get("import_module", "mujoco"))
    with make_vector_env(gymnasium_config(env_id, max_episode_steps=6, **keys), num_envs=4) as env:
        assert env.observation_space["states"].shape == (size,)
        check_vector_env(
            env, rebuild=lambda: make_vector_env(gymnasium_config(env_id, max_episode_steps=6, **keys), num_envs=4)
        )
