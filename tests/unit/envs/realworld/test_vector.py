"""``env_type: realworld`` as users build it: the rules of environments, and robots from the cluster."""

from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.schema.realworld import DummyFrankaConfig
from rlinf.envs import check_vector_env, make_vector_env
from rlinf.envs.realworld.client import FrankaState, connections
from rlinf.envs.realworld.poses import pose_from_euler
from rlinf.errors import ConfigError
from tests.unit.envs.realworld.robots import make_config, robot


class Lab:
    """A client that is not the stand-in: the arm is where it was sent at once."""

    made: list["Lab"] = []

    def __init__(self, *, robot_ip: str, camera_serials: list[str], image_size: int) -> None:
        self.arguments = (robot_ip, camera_serials, image_size)
        self.pose, self.is_closed = pose_from_euler([0.5, 0, 0.3, 3.1416, 0, 0]), False
        Lab.made.append(self)

    def state(self) -> FrankaState:
        return FrankaState(self.pose.copy(), np.zeros(6), np.zeros(6), 1.0)

    def move_to(self, pose: Any) -> None:
        self.pose = pose

    def set_gripper(self, opening: float) -> None: ...

    def frames(self) -> list[Any]:
        return [np.full((24, 24, 3), 7, np.uint8)]

    def reset(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def lab() -> type[Lab]:
    Lab.made = []
    return Lab


@pytest.mark.parametrize("auto_reset", [True, False])
@pytest.mark.parametrize("scene", ["free", "peg"])
def test_the_stand_in_keeps_the_rules_of_environments(auto_reset: bool, scene: Any) -> None:
    cfg = make_config(auto_reset=auto_reset, max_episode_steps=8, dummy=DummyFrankaConfig(scene=scene))
    with make_vector_env(cfg, num_envs=2) as env:
        check_vector_env(env)


def test_a_worker_drives_its_own_robot_through_the_recipes_client(lab: type[Lab]) -> None:
    cfg = make_config(is_dummy=False, client=f"{__name__}:Lab", control_frequency_hz=1000.0)
    hardware = [robot(1, camera_serials=["c7"], target_ee_pose=[0.5, 0.0, 0.2, 3.1416, 0.0, 0.0])]
    with make_vector_env(cfg, num_envs=1, first_env=1, hardware=hardware) as env:
        obs = env.reset(0)
        assert lab.made[0].arguments == ("10.0.0.1", ["c7"], 24)
        assert obs["states"][0, 2] == pytest.approx(0.1)  # this robot's own target
        assert (obs["main_images"] == 7).all()
        # Evaluation drives the same robot through the same connection.
        with make_vector_env(cfg, num_envs=1, first_env=1, hardware=hardware):
            assert len(lab.made) == 1
        assert not lab.made[0].is_closed
        step = env.chunk_step(torch.tensor([[[0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 1.0]]]))
        assert step.obs["states"][0, 2] == pytest.approx(0.08)
    assert lab.made[0].is_closed
    assert connections._open == {}


def test_hardware_of_other_kinds_is_not_a_robot() -> None:
    cfg = make_config(is_dummy=False, client=f"{__name__}:Lab")
    with pytest.raises(ConfigError, match="was placed on no robot"):
        make_vector_env(cfg, num_envs=1, hardware=[{"type": "NVIDIA_GPU", "local_rank": 0}])


@pytest.mark.parametrize(
    ("keys", "hardware", "num_envs", "remedy"),
    [
        ({"is_dummy": False}, [robot(1)], 1, "env.*.client is null"),
        ({}, [robot(1), robot(2)], 1, "it has 2 robots and 1 environments"),
        ({}, [robot(1)], 2, "it has 1 robots and 2 environments"),
        ({}, [robot(1, speed=3)], 1, "configs[].speed: unknown key"),
        ({}, [{"type": "Franka", "node_rank": 0}], 1, "configs[].robot_ip: missing"),
        ({"is_dummy": False, "client": "no_lab:Arm"}, [robot(1)], 1, "received 'no_lab:Arm'"),
    ],
)
def test_what_cannot_be_driven_is_told(keys: Any, hardware: Any, num_envs: int, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_vector_env(make_config(**keys), num_envs=num_envs, hardware=hardware)
    assert remedy in str(caught.value)


def test_other_environments_are_told_of_no_hardware() -> None:
    from rlinf.config.schema.env import PixelReachEnvConfig

    cfg = PixelReachEnvConfig(
        env_type="pixel_reach", total_num_envs=1, max_episode_steps=3, max_steps_per_rollout_epoch=3
    )
    with make_vector_env(cfg, num_envs=1, hardware=[robot(1)]) as env:
        env.reset(0)
