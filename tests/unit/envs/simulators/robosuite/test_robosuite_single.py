"""One task of robosuite: with a stand-in what is asked of it, and with robosuite itself what comes of that."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from robosuite_configs import robosuite_config
from robosuite_simulator import FakeRobosuite, FakeScene

from rlinf.config.schema.env import RobosuiteArm, RobosuiteController, RobosuiteTask
from rlinf.envs.simulators.robosuite.robosuite_single import RobosuiteSingleEnv, make_robosuite_env
from rlinf.envs.simulators.robosuite.robosuite_tasks import TASK_DESCRIPTIONS
from rlinf.errors import MissingPackageError

_STEPS = 12


def build(**kwargs: Any) -> RobosuiteSingleEnv:
    return make_robosuite_env(render=False, cfg=robosuite_config(**kwargs))


def play(env: RobosuiteSingleEnv, seed: int) -> list[NDArray[np.generic]]:
    """Return what is seen after the reset and at the end of some actions, and the rewards."""
    actions = np.random.default_rng(7).uniform(-1, 1, (_STEPS, *(env.action_space.shape or ())))
    rows, rewards = [env.observe(env.reset(seed))], []
    for action in actions:
        raw, reward, *_ = env.step(action)
        rewards.append(reward)
    rows.append(env.observe(raw))
    return [*(row[key] for row in rows for key in row if key != "task_descriptions"), np.array(rewards)]


# -- a stand-in ------------------------------------------------------------------------------------------------------


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> FakeRobosuite:
    pytest.importorskip("mujoco")
    fake = FakeRobosuite()
    monkeypatch.setitem(sys.modules, "robosuite", fake)  # type: ignore[arg-type]
    return fake


def test_a_scene_is_built_once_and_renders_nothing_itself(simulator: FakeRobosuite) -> None:
    before = np.random.get_state()[1].copy()
    env = build(controller="OSC_POSITION", reward_shaping=True, control_frequency_hz=10)
    np.random.uniform()
    other = build()
    for seed in (0, 1):
        env.reset(seed)
    first, second = simulator.scenes
    assert first.options["controller_configs"] == {"type": "OSC_POSITION"}
    assert (first.options["reward_shaping"], first.options["control_freq"]) == (True, 10)
    assert not any(first.options[key] for key in ("use_camera_obs", "has_offscreen_renderer", "hard_reset"))
    assert first.options["ignore_done"] is True
    # Sizes of objects do not depend on what was sampled before.
    assert first.size == second.size
    np.random.set_state(("MT19937", before, 624, 0, 0.0))
    other.close()
    assert second.is_closed
    assert not first.is_closed


def test_positions_are_named_by_the_seed_and_fingers_begin_anew(simulator: FakeRobosuite) -> None:
    env = build()
    first = env.observe(env.reset(3))["states"]
    env.step([0.0] * 6 + [1.0])
    assert np.array_equal(env.observe(env.reset(3))["states"], first)
    assert not np.array_equal(env.observe(env.reset(4))["states"], first)
    assert simulator.scenes[0].robots[0].gripper.current_action == 0.0


def test_success_terminates_and_rewards_lie_between_0_and_1(simulator: FakeRobosuite) -> None:
    env = build()
    env.reset(0)
    up = [0.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0]
    assert env.step([0.0] * 7)[1:] == (0.0, False, False, False)
    assert env.step(up)[1:] == (pytest.approx(0.3), False, False, False)
    env.step(up)
    assert env.step(up)[1:] == (1.0, True, False, True)


@pytest.mark.parametrize(("task_name", "place", "count"), [("PickPlaceSingle", 2, 4), ("NutAssemblySingle", 3, 2)])
def test_the_object_of_an_episode_is_named_by_its_seed(
    simulator: FakeRobosuite, task_name: RobosuiteTask, place: int, count: int
) -> None:
    env = build(task_name=task_name)
    numbers = [int(env.reset(seed)["object-state"][place]) for seed in range(20)]
    assert set(numbers) == set(range(count))
    assert numbers == [int(env.reset(seed)["object-state"][place]) for seed in range(20)]
    assert simulator.scenes[0].single_object_mode == 2


def test_another_task_keeps_its_object(simulator: FakeRobosuite) -> None:
    build(task_name="PickPlaceCan").reset(0)
    assert simulator.scenes[0].single_object_mode == 1
    assert simulator.scenes[0].object_id == -1


def test_without_images_states_hold_arms_and_objects(simulator: FakeRobosuite) -> None:
    env = build(task_name="TwoArmLift", robots="IIWA")
    row = env.observe(env.reset(0))
    assert simulator.scenes[0].options["robots"] == ["IIWA", "IIWA"]
    assert env.action_space.shape == (14,)
    scene = simulator.scenes[0]
    assert row["states"].tolist() == pytest.approx([0, 0, 0, 10, 10, 10, scene.place, scene.size, -1, -1])
    assert row["task_descriptions"] == TASK_DESCRIPTIONS["TwoArmLift"]
    assert set(row) == set(env.observation_space) == {"states", "task_descriptions"}


def test_with_images_states_hold_the_hands_alone(simulator: FakeRobosuite, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []

    def draw(cameras: object, camera: str, size: int) -> NDArray[np.uint8]:
        rendered.append((camera, size))
        return np.zeros((size, size, 3), np.uint8)

    monkeypatch.setattr("rlinf.envs.simulators.mujoco_cameras.MujocoCameras.draw", draw)
    env = build(task_name="TwoArmLift", image_size=8, show_objects=True, task_description="Up.", wrist_camera=None)
    raw = env.reset(0)
    env.step([0.0] * 14)
    assert rendered == []
    row = env.observe(raw)
    assert rendered == [("agentview", 8)]
    assert row["states"].tolist() == pytest.approx([0, 0, 0, np.pi, 0, 0, 0, 0, 1, 0, 0, np.pi, 0, 0, 0, 0])
    assert row["objects"].shape == (10,)
    assert row["task_descriptions"] == "Up."
    assert set(row) == set(env.observation_space) == {"states", "objects", "main_images", "task_descriptions"}
    hidden = build(image_size=8, main_camera="frontview")
    assert "objects" not in hidden.observe(hidden.reset(0))
    assert rendered[1:] == [("frontview", 8), ("robot0_eye_in_hand", 8)]
    assert hidden.observation_space["states"].shape == (8,)
    frame = hidden.render()
    assert frame is not None
    assert rendered[-1] == ("frontview", frame.shape[0])


def test_without_robosuite_its_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "robosuite", None)
    with pytest.raises(MissingPackageError, match=r"env_type=robosuite.*install\.sh embodied --env robosuite"):
        build()


def test_each_task_has_a_sentence() -> None:
    assert set(TASK_DESCRIPTIONS) == set(get_args(RobosuiteTask))
    assert len(set(TASK_DESCRIPTIONS.values())) == len(TASK_DESCRIPTIONS)


def test_the_stand_in_samples_sizes() -> None:
    pytest.importorskip("mujoco")
    assert FakeScene("Lift", {"robots": ["Panda"]}).size != FakeScene("Lift", {"robots": ["Panda"]}).size


# -- robosuite itself ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def env() -> Iterator[RobosuiteSingleEnv]:
    env = build(image_size=32, show_objects=True, reward_shaping=True)
    yield env
    env.close()


@pytest.mark.libero
def test_an_episode_is_the_same_whatever_was_played_before(env: RobosuiteSingleEnv) -> None:
    before = np.random.get_state()[1].copy()
    first = play(env, 3)
    play(env, 11)
    for _ in range(6):
        env.step([0.0] * 6 + [1.0])
    again = play(env, 3)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert not np.array_equal(play(env, 4)[0], first[0])
    assert np.array_equal(np.random.get_state()[1], before)


@pytest.mark.libero
@pytest.mark.parametrize("task_name", ["Lift", "PickPlaceSingle", "TwoArmHandover"])
def test_another_process_in_another_order_sees_the_same(task_name: RobosuiteTask, tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np; sys.path[:0] = sys.argv[3:]\n"
        "from test_robosuite_single import build, play\n"
        "env = build(task_name=sys.argv[2], reward_shaping=True)\n"
        "play(env, 8), play(env, 1); np.savez(sys.argv[1], *play(env, 3)); env.close()\n"
    )
    file = tmp_path / "played.npz"
    other = subprocess.Popen([sys.executable, "-c", code, str(file), task_name, *sys.path])
    try:
        env = build(task_name=task_name, reward_shaping=True)
        expected = play(env, 3)
        env.close()
    finally:
        assert other.wait() == 0
    found = np.load(file)
    assert [bool(np.array_equal(found[name], value)) for name, value in zip(found, expected, strict=True)] == [True] * 3


@pytest.mark.libero
@pytest.mark.parametrize("task_name", get_args(RobosuiteTask))
def test_every_task_is_built_and_played(task_name: RobosuiteTask) -> None:
    env = build(task_name=task_name, reward_shaping=True)
    *rows, rewards = play(env, 0)
    assert all(env.observation_space["states"].contains(row) for row in rows)
    assert np.all((rewards >= 0) & (rewards < 1))
    assert rewards.max() > 0
    env.close()


@pytest.mark.libero
@pytest.mark.parametrize(
    ("robots", "controller", "num_actions"),
    [
        *((robots, "OSC_POSE", 7) for robots in get_args(RobosuiteArm)),
        ("Panda", "OSC_POSITION", 4),
        ("Panda", "JOINT_POSITION", 8),
        ("UR5e", "JOINT_VELOCITY", 7),
    ],
)
def test_every_arm_and_every_controller_can_be_had(
    robots: RobosuiteArm, controller: RobosuiteController, num_actions: int
) -> None:
    env = build(robots=robots, controller=controller)
    assert env.action_space.shape == (num_actions,)
    assert np.isfinite(play(env, 0)[1]).all()
    env.close()


@pytest.mark.libero
def test_the_gripper_opens_at_minus_one_and_closes_at_one(env: RobosuiteSingleEnv) -> None:
    openings = []
    for gripper in (-1.0, 1.0):
        env.reset(0)
        for _ in range(10):
            raw = env.step([0.0] * 6 + [gripper])[0]
        openings.append(float(env._hands(raw)[6:] @ [1, -1]))
    assert openings[0] > 0.075
    assert openings[1] < 0.01


@pytest.mark.libero
def test_the_hand_moves_along_its_axes(env: RobosuiteSingleEnv) -> None:
    start = env._hands(env.reset(0))
    for axis in range(3):
        env.reset(0)
        for _ in range(6):
            raw = env.step([0.6 * (axis == other) for other in range(6)] + [-1.0])[0]
        moved = env._hands(raw)[:3] - start[:3]
        assert int(np.abs(moved).argmax()) == axis
        assert moved[axis] > 0.025


@pytest.mark.libero
def test_a_lifted_cube_is_success(env: RobosuiteSingleEnv) -> None:
    raw = env.reset(0)
    assert env.step([0.0] * 6 + [-1.0])[2:] == (False, False, False)
    scene = env._env
    scene.sim.data.set_joint_qpos(scene.cube.joints[0], np.array([*raw["cube_pos"][:2], 1.0, 1, 0, 0, 0]))
    assert env.step([0.0] * 6 + [-1.0])[1:] == (1.0, True, False, True)


@pytest.mark.libero
def test_images_are_those_that_robosuite_renders(env: RobosuiteSingleEnv) -> None:
    full = build(image_size=32, render_quality="full")
    row, light = full.observe(full.reset(0)), env.observe(env.reset(0))
    sim = full._env.sim
    context = pytest.importorskip("robosuite.utils.binding_utils").MjRenderContextOffscreen(sim, device_id=-1)
    context.vopt.geomgroup[0] = 0
    for key, camera in (("main_images", "agentview"), ("wrist_images", "robot0_eye_in_hand")):
        expected = sim.render(width=32, height=32, camera_name=camera)[::-1].astype(int)
        assert np.abs(row[key] - expected).mean() < 1
        assert 0 < np.abs(light[key] - expected).mean() < 25
    full.close()
