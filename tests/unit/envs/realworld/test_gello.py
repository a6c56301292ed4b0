"""A leader arm: where its hand is, what the robot does of its motion, and who acts when."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.schema.env import PixelReachEnvConfig
from rlinf.config.schema.intervention import GelloIntervenerConfig
from rlinf.config.schema.realworld import FrankaHardwareConfig, RealWorldEnvConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.realworld import gello
from rlinf.envs.realworld.franka import FrankaSingleEnv
from rlinf.envs.realworld.gello import GelloIntervener, forward_kinematics
from rlinf.envs.realworld.poses import pose_from_euler, rotation_between
from rlinf.errors import ConfigError

SIGNS, OFFSETS = [1, -1, 1, 1, 1, -1, 1], [math.pi / 2 * n for n in (3, 2, 1, 4, 2, 3, 4)]
CFG = GelloIntervenerConfig(
    intervener_type="gello",
    port="/dev/arm",
    joint_offsets=OFFSETS,
    joint_signs=SIGNS,
    gripper_open_degrees=195.0,
    gripper_closed_degrees=152.0,
    release_steps=3,
)
READY = np.array([0.0, -math.pi / 4, 0.0, -3 * math.pi / 4, 0.0, math.pi / 2, math.pi / 4])
ENV: dict[str, Any] = {
    "total_num_envs": 1,
    "max_episode_steps": 200,
    "max_steps_per_rollout_epoch": 200,
    "is_dummy": True,
    "image_size": None,
    "random_xy_meters": 0.0,
    "max_tilt_radians": 2.0,
}


class Bus:
    """Stands for the servos; the test turns the joints of the arm."""

    joints, trigger_degrees, is_closed = READY, 195.0, False

    def __init__(self, port: str, *, baudrate: int, ids: list[int]) -> None:
        assert (port, baudrate, ids) == ("/dev/arm", 57600, [1, 2, 3, 4, 5, 6, 7, 8])

    def positions(self) -> Any:
        servos = np.array(SIGNS) * Bus.joints + np.array(OFFSETS)  # the inverse of GELLO's calibration
        return np.append(servos, math.radians(Bus.trigger_degrees))

    def close(self) -> None:
        Bus.is_closed = True


@pytest.fixture(autouse=True)
def bus(monkeypatch: pytest.MonkeyPatch) -> type[Bus]:
    monkeypatch.setattr(gello, "DynamixelBus", Bus)
    Bus.joints, Bus.trigger_degrees, Bus.is_closed = READY, 195.0, False
    return Bus


def config(**keys: Any) -> RealWorldEnvConfig:
    return RealWorldEnvConfig(env_type="realworld", **{**ENV, **keys})


class Robot:
    """The stand-in of an arm, driven by the leader arm alone."""

    def __init__(self, **keys: Any) -> None:
        cfg = config(**keys)
        robot = FrankaHardwareConfig(node_rank=0, robot_ip="r")
        self.env = FrankaSingleEnv(cfg=cfg, robot=robot, is_declared=False, render=False)
        self.gello = GelloIntervener(CFG, env=cfg, row=0)
        self.state = self.start = self.env.reset(0)

    def act(self) -> Any:
        """Let the person act once; return the action, or None where the policy acts."""
        states = torch.from_numpy(self.env.observe(self.state)["states"])[None]
        size = self.env.cfg.num_actions
        chosen = self.gello.act(Situation({"states": states}, torch.zeros(size), 0.0, 0))
        if chosen is not None:
            self.state = self.env.step(chosen.numpy())[0]
        return chosen


def test_the_hand_is_where_the_makers_table_says() -> None:
    pose = forward_kinematics(np.zeros(7))
    np.testing.assert_allclose(pose[:3], [0.088, 0.0, 0.333 + 0.316 + 0.384 - 0.107], atol=1e-9)
    pose = forward_kinematics(READY)
    # The ready pose of its maker: 0.4869 above the base with the hand, which is 0.1034 long.
    np.testing.assert_allclose(pose[:3], [0.3069, 0.0, 0.4869 + 0.1034], atol=1e-4)
    # The flange looks down, turned by the 45 degrees by which the hand is mounted.
    down = pose_from_euler([0.0, 0.0, 0.0, math.pi, 0.0, 0.0])[3:]
    np.testing.assert_allclose(np.abs(rotation_between(down, pose[3:])), [0.0, 0.0, math.pi / 4], atol=1e-6)


def test_the_position_and_the_orientation_are_of_one_chain() -> None:
    """A small turn of a joint moves the hand as it turns it: around the same axis, through the same point."""
    joints, step = np.array([0.3, -0.5, 0.2, -1.9, 0.4, 1.4, 0.6]), 1e-6
    before = forward_kinematics(joints)
    base = np.array([0.0, 0.0, 1.0])
    for number in range(7):
        moved = joints.copy()
        moved[number] += step
        after = forward_kinematics(moved)
        axis = rotation_between(before[3:], after[3:]) / step
        assert np.linalg.norm(axis) == pytest.approx(1.0, abs=1e-4)
        velocity = (after[:3] - before[:3]) / step
        assert float(velocity @ axis) == pytest.approx(0.0, abs=1e-4)
        if number == 0:
            np.testing.assert_allclose(axis, base, atol=1e-4)
            np.testing.assert_allclose(velocity, np.cross(base, before[:3]), atol=1e-4)


def test_the_robot_makes_the_motion_of_the_leader_arm_from_where_it_is() -> None:
    robot = Robot()
    assert robot.act() is None
    first = READY + np.array([0.06, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    Bus.joints = first
    for _ in range(3):
        robot.act()  # it takes over here: what was moved before is no motion of the robot's
        Bus.joints = Bus.joints + np.array([0.03, 0.02, 0.0, -0.03, 0.0, 0.05, 0.02])
    last = Bus.joints
    taken_over, wanted = forward_kinematics(first), forward_kinematics(last)
    assert np.linalg.norm(wanted[:3] - taken_over[:3]) > 0.02
    for _ in range(20):
        Bus.joints = last + np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e-2]) * (_ % 2)  # it never is still
        assert robot.act() is not None
    Bus.joints = last
    robot.act()
    robot.act()
    moved = robot.state.pose[:3] - robot.start.pose[:3]
    np.testing.assert_allclose(moved, wanted[:3] - taken_over[:3], atol=2e-3)
    turned = rotation_between(robot.start.pose[3:], robot.state.pose[3:])
    np.testing.assert_allclose(turned, rotation_between(taken_over[3:], wanted[3:]), atol=1e-2)


def test_it_hands_back_after_a_rest_and_takes_over_with_the_next_motion() -> None:
    robot = Robot()
    Bus.joints = READY + 0.03
    assert robot.act() is None  # a push that is not meant
    Bus.joints = READY + 0.1
    acts = [robot.act() is not None for _ in range(6)]
    assert acts == [True, True, True, False, False, False]
    Bus.joints = READY + 0.2
    before = robot.state.pose.copy()
    assert robot.act() is not None
    np.testing.assert_allclose(robot.state.pose[:3], before[:3], atol=1e-6)  # from where it is
    robot.gello.begin()
    assert robot.act() is None
    robot.gello.close()
    assert Bus.is_closed


def test_the_trigger_closes_the_gripper() -> None:
    robot = Robot()
    Bus.joints = READY + 0.1
    for degrees, expected in ((195.0, 1.0), (180.0, 1.0), (160.0, -1.0), (152.0, -1.0), (195.0, 1.0)):
        Bus.trigger_degrees = degrees
        assert float(robot.act()[-1]) == expected


def test_actions_have_what_the_environments_have() -> None:
    for keys, size in (({"fixed_rotation": True}, 4), ({"fixed_rotation": True, "no_gripper": True}, 3)):
        robot = Robot(**keys)
        Bus.joints = READY + 0.1
        assert robot.act().shape == (size,)
        Bus.joints = READY


def test_other_environments_are_refused() -> None:
    other = PixelReachEnvConfig(
        env_type="pixel_reach", total_num_envs=1, max_episode_steps=9, max_steps_per_rollout_epoch=9
    )
    with pytest.raises(ConfigError, match="gello moves env_type=realworld"):
        GelloIntervener(CFG, env=other, row=0)
    with pytest.raises(ConfigError, match="total_num_envs"):
        GelloIntervener(CFG, env=config(), row=1)
