"""The arm's environment: what actions do, what they can never do, and how episodes begin and end."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlinf.config.schema.realworld import DummyFrankaConfig, FrankaHardwareConfig
from rlinf.envs.realworld.franka import FrankaSingleEnv
from rlinf.envs.realworld.poses import pose_from_euler, rotation_between
from rlinf.errors import EnvironmentFailure
from tests.unit.envs.realworld.robots import make_config

ROBOT = FrankaHardwareConfig(node_rank=0, robot_ip="r", camera_serials=["a", "b"])


def make(robot: FrankaHardwareConfig = ROBOT, render: bool = False, **keys: Any) -> FrankaSingleEnv:
    return FrankaSingleEnv(cfg=make_config(**keys), robot=robot, is_declared=False, render=render)


def act(env: FrankaSingleEnv, *numbers: float) -> Any:
    action = np.zeros(env.action_space.shape or ())
    action[: len(numbers)] = numbers
    return env.step(action)


def test_a_row_has_what_the_space_says() -> None:
    env = make()
    row = env.observe(env.reset(0))
    for key in ("states", "main_images", "extra_view_images"):
        assert env.observation_space[key].contains(row[key])
    assert row["extra_view_images"].shape == (1, 24, 24, 3)
    alone = make(image_size=None)
    assert set(alone.observe(alone.reset(0))) == {"states", "task_descriptions"}


def test_states_are_relative_to_the_target_whatever_the_robots_table() -> None:
    moved = FrankaHardwareConfig(
        node_rank=0,
        robot_ip="s",
        camera_serials=["a", "b"],
        target_ee_pose=[0.6, 0.1, 0.15, 3.1416, 0, 0.2],
        reset_ee_pose=[0.6, 0.1, 0.35, 3.1416, 0, 0.2],
    )
    rows = []
    for robot in (ROBOT, moved):
        env = make(robot, random_xy_meters=0.0)
        env.reset(3)
        rows.append(env.observe(act(env, 0.0, 0.0, -0.5)[0])["states"])
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-6)
    np.testing.assert_allclose(rows[0][:6], [0, 0, 0.19, 0, 0, 0], atol=1e-6)
    assert rows[0][8] == pytest.approx(-0.1)  # 1 cm in a tenth of a second
    assert rows[0][12] == 1.0  # the gripper is open


def test_an_episode_begins_where_its_seed_says_whatever_happened_before() -> None:
    env = make(random_yaw_radians=0.3)
    first = env.observe(env.reset(5))
    for _ in range(7):
        act(env, 1.0, -1.0, -1.0, 0.5, 0.5, 0.5, -1.0)
    again, other = env.observe(env.reset(5)), env.observe(env.reset(6))
    for key in ("states", "main_images", "extra_view_images"):
        assert np.array_equal(first[key], again[key])
    assert not np.array_equal(first["states"], other["states"])
    starts = [env.reset(seed).pose for seed in range(20)]
    assert all(abs(pose[0] - 0.5) <= 0.05 and abs(pose[1]) <= 0.05 and pose[2] == 0.3 for pose in starts)
    angles = [np.linalg.norm(rotation_between(env.start[3:], pose[3:])) for pose in starts]
    assert 0.1 < max(angles) <= 0.3


def test_before_it_goes_to_its_start_the_arm_goes_straight_up() -> None:
    env = make(random_xy_meters=0.0)
    state = env.reset(0)
    for _ in range(8):
        state = act(env, 1.0, 0.0, -1.0)[0]
    ways = []
    move_to = env._client.move_to
    env._client.move_to = lambda pose: (ways.append(pose.copy()), move_to(pose))[1]  # type: ignore[method-assign]
    env.reset(0)
    np.testing.assert_allclose(ways[0][:3], [state.pose[0], state.pose[1], 0.3])
    np.testing.assert_allclose(ways[-1][:3], [0.5, 0.0, 0.3])


def test_an_arm_above_its_start_goes_sideways_first() -> None:
    env = make(random_xy_meters=0.0)
    env.reset(0)
    for _ in range(4):
        state = act(env, 1.0, 0.0, 1.0)[0]
    assert state.pose[2] > 0.32
    ways = []
    move_to = env._client.move_to
    env._client.move_to = lambda pose: (ways.append(pose.copy()), move_to(pose))[1]  # type: ignore[method-assign]
    env.reset(0)
    np.testing.assert_allclose(ways[0][:3], state.pose[:3])


@pytest.mark.parametrize("action", [[1, 0, 0], [1, 1, 1], [50, -50, 0]])
def test_no_action_moves_further_than_a_step(action: list[float]) -> None:
    env = make(random_xy_meters=0.0)
    before = env.reset(0).pose
    after = act(env, *action)[0].pose
    assert np.linalg.norm(after[:3] - before[:3]) == pytest.approx(0.02)


def test_every_number_of_an_action_is_limited_by_itself() -> None:
    env = make(random_xy_meters=0.0)
    before = env.reset(0).pose
    after = act(env, 30.0, 0.5, 0.0)[0].pose
    np.testing.assert_allclose(after[:2] - before[:2], 0.02 * np.array([1.0, 0.5]) / np.hypot(1.0, 0.5), atol=1e-9)


def test_no_action_turns_further_than_a_step_or_than_the_tilt() -> None:
    env = make(max_tilt_radians=0.25)
    before = env.reset(0).pose
    after = act(env, 0, 0, 0, 1, 1, 1)[0].pose
    assert np.linalg.norm(rotation_between(before[3:], after[3:])) == pytest.approx(0.1)
    for _ in range(5):
        after = act(env, 0, 0, 0, 1, 1, 1)[0].pose
        assert np.linalg.norm(rotation_between(before[3:], after[3:])) <= 0.25 + 1e-9
    assert np.linalg.norm(rotation_between(before[3:], after[3:])) == pytest.approx(0.25)


def test_the_arm_is_never_sent_out_of_its_workspace() -> None:
    env = make(workspace_low=[0.45, -0.1, 0.2], workspace_high=[0.55, 0.1, 0.32], target_ee_pose=None)
    env.reset(0)
    sent = []
    move_to = env._client.move_to
    env._client.move_to = lambda pose: (sent.append(pose.copy()), move_to(pose))[1]  # type: ignore[method-assign]
    generator = np.random.default_rng(0)
    for direction in ([1, 1, 1], [-1, -1, -1]):
        for _ in range(15):
            env.step(np.concatenate([direction, generator.uniform(-1, 1, 4)]))
    places = np.stack(sent)[:, :3]
    assert (places.min(0) >= [0.45, -0.1, 0.2]).all()
    assert (places.max(0) <= [0.55, 0.1, 0.32]).all()
    assert places.max(0)[2] == pytest.approx(0.32)


def test_reaching_the_target_is_success_and_rewarded_once() -> None:
    env = make(random_xy_meters=0.0)
    env.reset(0)
    steps = [act(env, 0.0, 0.0, -1.0) for _ in range(10)]
    assert [step[1] for step in steps] == [0.0] * 9 + [1.0]
    assert [step[2] for step in steps] == [step[4] for step in steps] == [False] * 9 + [True]


def test_the_angle_counts_too() -> None:
    env = make(random_xy_meters=0.0, target_ee_pose=[0.5, 0.0, 0.1, 3.1416, 0.0, 0.4])
    env.reset(0)
    assert not any(act(env, 0.0, 0.0, -1.0)[4] for _ in range(10))
    assert any(act(env, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)[4] for _ in range(4))


def test_a_dense_reward_falls_with_the_distance() -> None:
    env = make(random_xy_meters=0.0, use_dense_reward=True)
    env.reset(0)
    assert act(env, 0.0, 0.0, -1.0)[1] == pytest.approx(-0.18)
    assert act(env, 0.0, 0.0, 1.0)[1] == pytest.approx(-0.2)


def test_without_a_target_success_is_left_to_a_reward_model() -> None:
    env = make(target_ee_pose=None)
    env.reset(0)
    assert act(env, 0.0)[1:] == (0.0, False, False, False)


def test_too_much_force_stops_the_arm_and_cuts_the_episode_off() -> None:
    keys = {"random_xy_meters": 0.0, "reset_ee_pose": [0.55, 0.0, 0.16, 3.1416, 0.0, 0.0]}
    env = make(dummy=DummyFrankaConfig(scene="peg"), max_force_newtons=15.0, **keys)
    env.reset(0)
    steps = [act(env, 0.0, 0.0, -1.0) for _ in range(2)]
    assert [step[3] for step in steps] == [False, True]
    assert env._client.goal[2] == pytest.approx(0.14)  # type: ignore[attr-defined]
    assert not any(act(make_and_reset(keys), 0.0, 0.0, -1.0)[3] for _ in range(2))


@pytest.mark.parametrize("force", [[16.0, 0, 0], [0, -16.0, 0], [-9.0, -9.0, -9.0]])
def test_a_force_in_any_direction_stops_the_arm(force: list[float]) -> None:
    env = make(random_xy_meters=0.0, max_force_newtons=15.0)
    env.reset(0)
    press(env, force)
    assert act(env, 0.0, 0.0, -1.0)[2:] == (False, True, False)


def test_an_episode_that_succeeds_under_force_has_ended_by_itself() -> None:
    env = make(random_xy_meters=0.0, max_force_newtons=15.0)
    env.reset(0)
    for _ in range(9):
        act(env, 0.0, 0.0, -1.0)
    press(env, [0.0, 0.0, 20.0])
    assert act(env, 0.0, 0.0, -1.0)[2:] == (True, False, True)


@pytest.mark.parametrize(("number", "opening"), [(-0.4, 1.0), (0.4, 1.0), (-0.6, 0.0)])
def test_small_numbers_leave_the_fingers_alone(number: float, opening: float) -> None:
    env = make()
    env.reset(0)
    for _ in range(12):
        state = env.step(np.array([0, 0, 0, 0, 0, 0, number]))[0]
    assert state.gripper == pytest.approx(opening)


def press(env: FrankaSingleEnv, force: list[float]) -> None:
    """Let the robot report a force from now on."""
    state = env._client.state
    wrench = np.array([*force, 0.0, 0.0, 0.0])
    env._client.state = lambda: replace(state(), wrench=wrench)  # type: ignore[method-assign]


def make_and_reset(keys: dict[str, Any]) -> FrankaSingleEnv:
    env = make(dummy=DummyFrankaConfig(scene="peg"), max_force_newtons=None, **keys)
    env.reset(0)
    return env


def test_actions_come_at_their_frequency_the_policys_time_included() -> None:
    env = make(control_frequency_hz=5.0)
    env.reset(0)
    clock = env._clock
    began = clock.now()
    for _ in range(4):
        clock.sleep(0.05)  # inference
        act(env, 0.1)
    assert clock.now() - began == pytest.approx(0.8)


def test_a_policy_that_is_too_slow_is_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    env = make(random_xy_meters=0.0)
    before = env.reset(0).pose
    for _ in range(3):
        env._clock.sleep(0.3)
        after = act(env, 1.0)[0].pose
    assert after[0] - before[0] == pytest.approx(0.06)  # every action had its time
    assert capsys.readouterr().err.count("control_frequency_hz=10.0") == 1


def test_a_robot_that_does_not_come_to_its_start_is_told() -> None:
    env = make(dummy=DummyFrankaConfig(max_speed_meters_per_second=0.001))
    with pytest.raises(EnvironmentFailure, match=r"the robot r did not reach its start within .*Free its way"):
        env.reset(0)


@pytest.mark.parametrize(("fixed_rotation", "no_gripper", "size"), [(0, 0, 7), (0, 1, 6), (1, 0, 4), (1, 1, 3)])
def test_actions_have_the_parts_that_are_asked_for(fixed_rotation: int, no_gripper: int, size: int) -> None:
    env = make(fixed_rotation=bool(fixed_rotation), no_gripper=bool(no_gripper))
    assert env.action_space.shape == (size,)
    start = env.reset(0)
    state = env.step(-np.ones(size))[0]
    assert bool(np.linalg.norm(rotation_between(start.pose[3:], state.pose[3:])) > 0.01) != bool(fixed_rotation)
    assert (state.gripper < 1.0) != bool(no_gripper)


def test_images_of_another_size_are_told() -> None:
    env = make()
    env._client.frames = lambda: [np.zeros((5, 6, 3), np.uint8)]  # type: ignore[method-assign]
    with pytest.raises(EnvironmentFailure, match=r"robot r returned images \[\(5, 6, 3\)\]; expected 2"):
        env.observe(env._client.state())


def test_videos_are_drawn_without_cameras_too() -> None:
    frame = make(image_size=None, render=True).render()
    assert frame is not None
    assert frame.shape == (256, 256, 3)


def test_the_start_is_where_the_recipe_says() -> None:
    env = make()
    np.testing.assert_allclose(env.start, pose_from_euler([0.5, 0.0, 0.3, 3.1416, 0.0, 0.0]))
