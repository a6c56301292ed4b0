"""A ManiSkill task against the simulator itself."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from maniskill_configs import PUSH_CUBE, maniskill_config
from maniskill_fake import FakeScene

from rlinf.envs import make_vector_env
from rlinf.envs.simulators.maniskill.maniskill_build import ManiSkillTask
from rlinf.envs.simulators.maniskill.maniskill_single import ManiSkillSingleEnv
from rlinf.envs.simulators.maniskill.maniskill_tasks import TASK_DESCRIPTIONS
from rlinf.errors import ConfigError


class NamingTask:
    """Stands for a task that names what is in the episode."""

    single_action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self) -> None:
        self.scene = FakeScene(1)

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self.seed = seed
        return self.scene.get_pairwise_contact_impulses("hand", "cube")[:, :2], {}

    def get_language_instruction(self) -> list[str]:
        return [f"take number {self.seed}"]

    def get_objects(self) -> torch.Tensor:
        return torch.tensor([[float(self.seed), 1.0]])


def test_a_sentence_names_what_is_in_the_episode() -> None:
    env = ManiSkillSingleEnv(ManiSkillTask(NamingTask()))
    assert [env.observe(env.reset(seed))["task_descriptions"] for seed in (3, 4)] == ["take number 3", "take number 4"]
    env = ManiSkillSingleEnv(ManiSkillTask(NamingTask(), description="take it"))
    assert env.observe(env.reset(3))["task_descriptions"] == "take it"


def test_an_episode_begins_without_the_contacts_of_the_one_before() -> None:
    task = NamingTask()
    task.scene.impulses = torch.ones(1, 3)
    env = ManiSkillSingleEnv(ManiSkillTask(task))
    assert env.observe(env.reset(3))["states"].tolist() == [0, 0]


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
def test_the_whole_state_is_shown_beside_the_images() -> None:
    own = {"id": "PickCube-v1", "control_mode": "pd_ee_delta_pos"}
    images = {**own, "obs_mode": "rgb", "sensor_configs": {"width": 16, "height": 16}}
    common = {"total_num_envs": 1, "group_size": 1}
    action = torch.tensor([[[0.3, 0.1, -0.5, 1.0]] * 3])
    seen = []
    for params, keys in ((own, {}), (images, {}), (images, {"show_objects": True, "render_quality": "full"})):
        with make_vector_env(maniskill_config(init_params=params, **common, **keys), num_envs=1) as env:
            seen.append([env.reset(0), env.chunk_step(action).obs])
    for state, rgb, both in zip(*seen, strict=True):
        assert torch.equal(both["objects"], state["states"])
        assert torch.equal(both["states"], rgb["states"])
        assert both["states"].shape[1] < state["states"].shape[1]
        assert "objects" not in rgb
        assert both["main_images"].float().std() > 5
        assert not torch.equal(both["main_images"], rgb["main_images"])


@pytest.mark.maniskill
def test_an_episode_does_not_begin_with_the_grasp_of_the_one_before() -> None:
    params = {"id": "PickCube-v1", "control_mode": "pd_ee_delta_pos"}
    raw = gymnasium.make(
        **params, num_envs=1, obs_mode="state", sim_backend="physx_cpu", render_backend="none"
    ).unwrapped
    env = ManiSkillSingleEnv(ManiSkillTask(raw, description=""))
    first = env.observe(env.reset(0))["states"]
    cube = raw.cube.pose.p[0]
    for number in range(40):
        way = (cube - raw.agent.tcp_pose.p[0]) * 10
        env.step(np.array([*way.clip(-1, 1).tolist(), 1.0 if number < 25 else -1.0], np.float32))
    assert raw.get_info()["is_grasped"].item()
    assert np.array_equal(env.observe(env.reset(0))["states"], first)
    raw.reset(seed=0)
    assert raw.get_info()["is_grasped"].item(), (
        "ManiSkill shows no old contacts any more; then untouched() is not needed"
    )
    env.close()


@pytest.mark.maniskill
def test_an_unknown_task_suggests_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"init_params\.id.*Did you mean 'PushCube-v1'"):
        make_vector_env(maniskill_config(init_params={"id": "PushCub-v1"}), num_envs=1)


@pytest.mark.maniskill
def test_descriptions_name_existing_tasks() -> None:
    import mani_skill.envs  # noqa: F401
    from mani_skill.utils.registration import REGISTERED_ENVS

    assert set(TASK_DESCRIPTIONS) <= set(REGISTERED_ENVS)
