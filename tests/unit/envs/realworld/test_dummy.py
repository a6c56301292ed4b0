"""The stand-in moves like an arm: no faster than it can, and not through what is in its way."""

from typing import Any

import numpy as np
import pytest

from rlinf.config.schema.realworld import DummyFrankaConfig
from rlinf.envs.realworld.dummy import DummyFranka
from rlinf.envs.realworld.poses import pose_from_euler, rotation_between

START, TARGET = pose_from_euler([0.5, 0, 0.3, 3.1416, 0, 0]), pose_from_euler([0.5, 0, 0.1, 3.1416, 0, 0])


def make(num_cameras: int = 0, **keys: float | str) -> DummyFranka:
    cfg = DummyFrankaConfig(**keys)
    return DummyFranka(cfg, start=START, target=TARGET, num_cameras=num_cameras, image_size=32)


def moved(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> Any:
    pose = START.copy()
    pose[:3] += [x, y, z]
    return pose


def test_it_moves_at_its_speed_and_rests_exactly_at_its_goal() -> None:
    arm = make(max_speed_meters_per_second=0.2)
    arm.move_to(moved(x=0.1))
    arm.sleep(0.1)
    assert arm.state().pose[0] == pytest.approx(0.52)
    assert arm.state().velocity[:3] == pytest.approx([0.2, 0, 0])
    arm.sleep(1.0)
    arm.sleep(0.1)
    assert np.array_equal(arm.state().pose, moved(x=0.1))
    assert not arm.state().velocity.any()
    assert arm.now() == pytest.approx(1.2)


def test_it_turns_at_its_speed() -> None:
    arm, goal = make(max_turn_radians_per_second=1.0), pose_from_euler([0.5, 0, 0.3, 3.1416, 0, 0.5])
    arm.move_to(goal)
    arm.sleep(0.2)
    assert np.linalg.norm(rotation_between(START[3:], arm.state().pose[3:])) == pytest.approx(0.2)
    assert np.linalg.norm(arm.state().velocity[3:]) == pytest.approx(1.0)
    arm.sleep(0.5)
    assert np.array_equal(arm.state().pose, goal)


def test_fingers_take_their_time() -> None:
    arm = make()
    arm.set_gripper(0.0)
    arm.sleep(0.1)
    assert arm.state().gripper == pytest.approx(0.8)
    arm.sleep(1.0)
    assert arm.state().gripper == 0.0


def test_nothing_is_in_the_way_where_there_is_no_block() -> None:
    arm = make()
    arm.move_to(moved(x=0.05, z=-0.2))
    arm.sleep(3.0)
    assert np.array_equal(arm.state().pose, moved(x=0.05, z=-0.2))
    assert not arm.state().wrench.any()


def test_a_block_stops_the_arm_and_presses_back() -> None:
    arm = make(scene="peg", hole_depth_meters=0.04)
    arm.move_to(moved(x=0.05, z=-0.2))
    arm.sleep(3.0)
    state = arm.state()
    assert state.pose[:3] == pytest.approx([0.55, 0.0, 0.14])
    assert state.wrench[:3] == pytest.approx([0, 0, 40.0])  # 4 cm deeper than it gets
    arm.reset()
    arm.sleep(0.1)
    assert not arm.state().wrench.any()


def test_the_hole_lets_it_in_and_holds_it() -> None:
    arm = make(scene="peg", hole_depth_meters=0.04, hole_clearance_meters=0.01)
    arm.move_to(TARGET)
    arm.sleep(3.0)
    assert np.array_equal(arm.state().pose, TARGET)
    aside = TARGET.copy()
    aside[:3] += [0.03, 0.0, -0.05]
    arm.move_to(aside)
    arm.sleep(1.0)
    assert arm.state().pose[:3] == pytest.approx([0.51, 0.0, 0.1])
    assert arm.state().wrench[:3] == pytest.approx([-20.0, 0, 50.0])
    above = aside.copy()
    above[2] = 0.3
    arm.move_to(above)
    arm.sleep(3.0)
    assert np.array_equal(arm.state().pose, above)


def centre_of(image: np.ndarray, colour: list[int]) -> tuple[Any, Any]:
    rows, columns = np.nonzero((image == colour).all(-1))
    return rows.mean(), columns.mean()


def test_cameras_show_where_the_gripper_and_the_target_are() -> None:
    arm = make(num_cameras=3)
    arm.move_to(moved(x=0.1, y=0.2))
    arm.sleep(3.0)
    above, side, wrist = arm.frames()
    red, green = [235, 60, 50], [40, 200, 60]
    assert above.shape == (32, 32, 3)
    assert above.dtype == np.uint8
    (row, column), target = centre_of(above, red), centre_of(above, green)
    assert row < target[0]  # y points up
    assert column > target[1]  # x points right
    assert centre_of(side, red)[0] < centre_of(side, green)[0]  # higher
    assert centre_of(wrist, red) == pytest.approx((15.5, 15.5))  # it moves with the gripper
