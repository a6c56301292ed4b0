"""The scripted policy solves the task, where there is a target."""

from typing import Any

import pytest
import torch

from rlinf.config.registries import scripted_policies
from rlinf.config.schema.env import NoEnvConfig
from rlinf.config.schema.realworld import DummyFrankaConfig
from rlinf.envs import make_vector_env
from rlinf.envs.realworld.expert import FrankaExpert, RestingPolicy
from rlinf.errors import ConfigError
from tests.unit.envs.realworld.robots import make_config


@pytest.mark.parametrize("scene", ["free", "peg"])
@pytest.mark.parametrize("keys", [{}, {"fixed_rotation": True, "no_gripper": True}, {"random_yaw_radians": 0.4}])
def test_the_scripted_policy_solves_the_task(scene: Any, keys: dict[str, Any]) -> None:
    cfg = make_config(auto_reset=False, dummy=DummyFrankaConfig(scene=scene), **keys)
    expert = scripted_policies.get("franka")(cfg)
    with make_vector_env(cfg, num_envs=2) as env:
        obs, episodes = env.reset(0), ()
        while len(episodes) < 2:
            step = env.chunk_step(expert(obs))
            obs, episodes = step.obs, episodes + step.episodes
    assert [episode["success_once"] for episode in episodes] == [1.0, 1.0]


def test_the_scripted_policy_needs_a_target() -> None:
    with pytest.raises(ConfigError, match="target_ee_pose"):
        FrankaExpert(make_config(target_ee_pose=None))


@pytest.mark.parametrize("keys", [{}, {"fixed_rotation": True, "no_gripper": True}])
def test_an_arm_rests_while_its_operator_does_not_act(keys: dict[str, Any]) -> None:
    cfg = make_config(auto_reset=False, **keys)
    rest = scripted_policies.get("operator")(cfg)
    with make_vector_env(cfg, num_envs=2) as env:
        first = env.reset(0)
        step = env.chunk_step(rest(first))
    assert torch.allclose(step.obs["states"][:, :6], first["states"][:, :6], atol=1e-4)


def test_only_robots_are_known_to_rest() -> None:
    with pytest.raises(ConfigError, match="env_type=none"):
        RestingPolicy(NoEnvConfig())
