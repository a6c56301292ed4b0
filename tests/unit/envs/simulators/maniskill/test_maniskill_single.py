"""A ManiSkill task against the simulator itself."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from maniskill_configs import PUSH_CUBE, maniskill_config

from rlinf.envs import make_vector_env
from rlinf.envs.simulators.maniskill.maniskill_build import ManiSkillTask
from rlinf.envs.simulators.maniskill.maniskill_single import ManiSkillSingleEnv
from rlinf.envs.simulators.maniskill.maniskill_tasks import TASK_DESCRIPTIONS
from rlinf.errors import ConfigError


class NamingTask:
    """Stands for a task that names what is in the episode."""

    single_action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self.seed = seed
        return torch.zeros(1, 2), {}

    def get_language_instruction(self) -> list[str]:
        return [f"take number {self.seed}"]

    def get_objects(self) -> torch.Tensor:
        return torch.tensor([[float(self.seed), 1.0]])


def test_a_sentence_names_what_is_in_the_episode() -> None:
    env = ManiSkillSingleEnv(ManiSkillTask(NamingTask()))
    assert [env.observe(env.reset(seed))["task_descriptions"] for seed in (3, 4)] == ["take number 3", "take number 4"]
    env = ManiSkillSingleEnv(ManiSkillTask(NamingTask(), description="take it"))
    assert env.observe(env.reset(3))["task_descriptions"] == "take it"


def test_objects_are_shown_where_that_is_asked_for() -> None:
    env = ManiSkillSingleEnv(ManiSkillTask(NamingTask(), shows_objects=True))
    assert env.observation_space["objects"].shape == (2,)
    assert env.observe(env.reset(3))["objects"].tolist() == [3, 1]
    assert "objects" not in ManiSkillSingleEnv(ManiSkillTask(NamingTask())).observation_space.spaces


@pytest.mark.maniskill
def test_numbers_are_those_of_the_simulator_itself() -> None:
    with make_vector_env(maniskill_config(), num_envs=1) as env:
        obs = env.reset(5)
        step = env.chunk_step(torch.tensor([[[0.5, 0.0, -1.0, 0.0], [9.0, 0.0, 0.0, 0.0]]]))
        seed = int(env.reset_state_ids[0])
    raw = gymnasium.make(**PUSH_CUBE, num_envs=1, obs_mode="state", sim_backend="physx_cpu", render_backend="none")
    expected, _ = raw.reset(seed=seed)
    assert torch.equal(obs["states"], expected)
    outcomes = [raw.step(np.array(action, np.float32)) for action in ([0.5, 0, -1, 0], [1, 0, 0, 0])]  # 9 is clipped
    raw.close()
    assert step.rewards[0].tolist() == pytest.approx([float(outcome[1]) for outcome in outcomes])
    assert torch.equal(step.obs["states"], outcomes[1][0])


@pytest.mark.maniskill
def test_pushing_the_cube_into_the_circle_is_success() -> None:
    cfg = maniskill_config(max_episode_steps=40, max_steps_per_rollout_epoch=40)
    # Down behind the cube, then forward, with the gripper closed.
    down = torch.tensor([-0.5, 0.0, -1.0, -1.0]).repeat(12, 1)
    forward = torch.tensor([1.0, 0.0, 0.0, -1.0]).repeat(28, 1)
    with make_vector_env(cfg, num_envs=2) as env:
        outcomes = []
        for epoch in range(4):
            env.reset(epoch)
            step = env.chunk_step(torch.cat([down, forward]).repeat(2, 1, 1))
            outcomes += [(metrics["success_once"], metrics["episode_len"]) for metrics in step.episodes]
            assert torch.equal(step.terminations.any(1), torch.tensor([bool(m["success_once"]) for m in step.episodes]))
    successes = [length for success, length in outcomes if success]
    assert successes
    assert all(length < 40 for length in successes)


@pytest.mark.maniskill
def test_cameras_show_images_and_hide_what_only_the_simulator_knows() -> None:
    params = {**PUSH_CUBE, "obs_mode": "rgb", "sensor_configs": {"width": 32, "height": 24}}
    with make_vector_env(maniskill_config(init_params=params, total_num_envs=1, group_size=1), num_envs=1) as env:
        first = env.reset(0)
        second = env.reset(1)
        assert env.observation_space["main_images"].shape == (24, 32, 3)
    assert first["main_images"].dtype == torch.uint8
    assert first["main_images"].float().std() > 5
    assert not torch.equal(first["main_images"], second["main_images"])
    assert first["states"].shape == (1, 25)


@pytest.mark.maniskill
def test_an_unknown_task_suggests_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"init_params\.id.*Did you mean 'PushCube-v1'"):
        make_vector_env(maniskill_config(init_params={"id": "PushCub-v1"}), num_envs=1)


@pytest.mark.maniskill
def test_descriptions_name_existing_tasks() -> None:
    import mani_skill.envs  # noqa: F401
    from mani_skill.utils.registration import REGISTERED_ENVS

    assert set(TASK_DESCRIPTIONS) <= set(REGISTERED_ENVS)
