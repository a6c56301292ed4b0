"""``env_type: robosuite`` keeps the rules of environments; the expert lifts the cube."""

import pytest
import torch
from robosuite_configs import robosuite_config

from rlinf.config.registries import scripted_policies
from rlinf.config.schema.env import RobosuiteController
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env


@pytest.mark.libero
@pytest.mark.parametrize("num_env_processes", [0, 2])
def test_states_conform(num_env_processes: int) -> None:
    cfg = robosuite_config(num_env_processes=num_env_processes, reward_shaping=True)
    with make_vector_env(cfg, num_envs=2) as env:
        assert env.observation_space["states"].shape == (42,)
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))


@pytest.mark.libero
def test_images_conform() -> None:
    cfg = robosuite_config(task_name="NutAssemblySingle", image_size=16, show_objects=True)
    with make_vector_env(cfg, num_envs=2) as env:
        obs = env.reset(0)
        assert obs["states"].shape == (2, 8)
        assert obs["wrist_images"].shape == (2, 16, 16, 3)
        assert not torch.equal(obs["main_images"], obs["wrist_images"])
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))


@pytest.mark.libero
@pytest.mark.parametrize("controller", ["OSC_POSE", "OSC_POSITION"])
def test_the_expert_lifts_the_cube(controller: RobosuiteController) -> None:
    cfg = robosuite_config(
        controller=controller,
        total_num_envs=10,
        group_size=1,
        max_episode_steps=80,
        max_steps_per_rollout_epoch=80,
        auto_reset=False,
        use_ordered_reset_state_ids=True,
    )
    expert = scripted_policies.get("robosuite_lift")(cfg)
    with make_vector_env(cfg, num_envs=10) as env:
        obs, episodes = env.reset(0), list[dict[str, float]]()
        while len(episodes) < 10:
            step = env.chunk_step(expert(obs))
            obs = step.obs
            episodes += step.episodes
    assert sum(episode["success_once"] for episode in episodes) >= 9
    assert all(episode["return"] == episode["success_once"] for episode in episodes)
