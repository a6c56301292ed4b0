"""A scene of LIBERO: start states, images, success; needs its packages and assets."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from libero_configs import needs_assets
from numpy.typing import NDArray

from rlinf.envs.simulators.libero.libero_single import LiberoSingleEnv, make_libero_env
from rlinf.envs.simulators.libero.libero_starts import LiberoStarts

_STEPS = 12
_REST = [0.0] * 6 + [-1.0]


def build(*, tasks: tuple[int, ...] = (0,), own_task: int | None = 0, **kwargs: bool | float) -> LiberoSingleEnv:
    options = {"num_settle_steps": 10, "opens_gripper": True, "image_size": 64, "is_light": True, **kwargs}
    return make_libero_env(
        render=False,
        suite="libero_object",
        starts=LiberoStarts(tasks, tuple(range(50))),
        own_task=own_task,
        shows_objects=True,
        assets_path=None,
        **{"disturbance": 0.0, **options},
    )


@pytest.fixture(scope="module")
def env() -> Iterator[LiberoSingleEnv]:
    needs_assets()
    env = build()
    yield env
    env.close()


def play(env: LiberoSingleEnv, seed: int) -> list[NDArray[np.generic]]:
    """Return what is seen after the reset and at the end of some actions."""
    actions = np.random.default_rng(7).uniform(-1, 1, (_STEPS, 7))
    rows = [env.observe(env.reset(seed))]
    for action in actions:
        raw = env.step(action)[0]
    rows.append(env.observe(raw))
    return [row[key] for row in rows for key in ("states", "objects", "main_images", "wrist_images")]


@pytest.mark.libero
def test_a_start_state_is_the_same_whatever_was_played_before(env: LiberoSingleEnv) -> None:
    before = np.random.get_state()[1].copy()
    first = play(env, 3)
    play(env, 11)
    for _ in range(6):
        env.step([0.0] * 6 + [1.0])
    again = play(env, 3)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert not np.array_equal(play(env, 4)[1], first[1])
    assert np.array_equal(np.random.get_state()[1], before)


@pytest.mark.libero
def test_another_process_that_played_another_task_sees_the_same(env: LiberoSingleEnv, tmp_path: Path) -> None:
    expected = play(env, 3)
    code = (
        "import sys, numpy as np; sys.path[:0] = sys.argv[2:]\n"
        "from test_libero_single import build, play\n"
        "env = build(tasks=(5, 0), own_task=None)\n"
        "play(env, 8); np.savez(sys.argv[1], *play(env, 2 * 3 + 1)); env.close()\n"
    )
    file = tmp_path / "played.npz"
    subprocess.run([sys.executable, "-c", code, str(file), *sys.path], check=True)
    found = np.load(file)
    assert [bool(np.array_equal(found[name], value)) for name, value in zip(found, expected, strict=True)] == [True] * 8


@pytest.mark.libero
def test_published_start_states_are_restored(env: LiberoSingleEnv) -> None:
    env._num_settle_steps = 0
    try:
        env.reset(3)
        assert np.allclose(env._env.get_sim_state()[1:], env._states[3][1:], atol=1e-12)
    finally:
        env._num_settle_steps = 10


@pytest.mark.libero
def test_the_gripper_opens_at_minus_one_and_closes_at_one(env: LiberoSingleEnv) -> None:
    openings = []
    for gripper in (-1.0, 1.0):
        env.reset(0)
        for _ in range(10):
            raw = env.step([0.0] * 6 + [gripper])[0]
        openings.append(float(raw["robot0_gripper_qpos"] @ [1, -1]))
    assert openings[0] > 0.075
    assert openings[1] < 0.01


@pytest.mark.libero
def test_the_hand_moves_along_its_axes(env: LiberoSingleEnv) -> None:
    start = env.observe(env.reset(0))["states"]
    for axis in range(3):
        env.reset(0)
        for _ in range(6):
            raw = env.step([0.6 * (axis == other) for other in range(6)] + [-1.0])[0]
        moved = env.observe(raw)["states"][:3] - start[:3]
        assert int(np.abs(moved).argmax()) == axis
        assert moved[axis] > 0.025


@pytest.mark.libero
def test_an_object_in_the_basket_is_success(env: LiberoSingleEnv) -> None:
    raw = env.reset(0)
    assert env.observe(raw)["objects"][6] == 0
    assert env.step([0.0] * 6 + [-1.0])[1:] == (0.0, False, False, False)
    scene = env._env.env
    joint = scene.get_object(env._env.obj_of_interest[0]).joints[0]
    place = env._env.sim.data.get_joint_qpos(joint).copy()
    place[:3] = raw["basket_1_pos"] + [0.0, 0.0, 0.08]
    env._env.sim.data.set_joint_qpos(joint, place)
    outcomes = [env.step([0.0] * 6 + [-1.0])[1:] for _ in range(4)]
    assert outcomes[-1] == (1.0, True, False, True)


@pytest.mark.libero
def test_images_are_those_of_the_published_evaluation(env: LiberoSingleEnv) -> None:
    env.reset(0)
    full = build(is_light=False)
    row = full.observe(full.reset(0))
    wrapper = pytest.importorskip("libero.libero.envs.env_wrapper")
    published = wrapper.OffScreenRenderEnv(
        bddl_file_name=full._suite.get_task_bddl_file_path(0), camera_heights=64, camera_widths=64
    )
    published.seed(0)
    published.reset()
    published.set_init_state(full._states[0])
    for _ in range(10):
        obs = published.step([0.0] * 6 + [-1.0])[0]
    light = env.observe(env.reset(0))
    for key, camera in (("main_images", "agentview_image"), ("wrist_images", "robot0_eye_in_hand_image")):
        expected = obs[camera][::-1, ::-1].astype(int)
        assert np.abs(row[key] - expected).mean() < 1
        assert 0 < np.abs(light[key] - expected).mean() < 25
    assert row["states"][:3] == pytest.approx(obs["robot0_eef_pos"], abs=1e-3)
    published.close()
    full.close()


@pytest.mark.libero
def test_disturbances_move_the_hand_and_are_named_by_the_seed(env: LiberoSingleEnv) -> None:
    def hand(seed: int) -> NDArray[np.float64]:
        env.reset(seed)
        return _rest(env, 8)

    rest = hand(0)
    env._disturbance = 1.0
    try:
        pushed = hand(0)
        assert np.abs(pushed - rest).max() > 0.005
        assert np.array_equal(hand(0), pushed)
        # The same start state by another name, under other disturbances.
        assert np.abs(hand(50) - pushed).max() > 0.005
    finally:
        env._disturbance = 0.0


@pytest.mark.libero
def test_a_disturbance_lasts_for_some_actions_of_its_episode(env: LiberoSingleEnv) -> None:
    def pushed() -> None:
        env.reset(0)
        env._disturbance = 1.0
        try:
            env.step(_REST)
        finally:
            env._disturbance = 0.0

    env.reset(0)
    rest = _rest(env, 8)
    pushed()
    whole = _rest(env, 7)
    pushed()
    env._pushes.clear()
    one_action = _rest(env, 7)
    assert np.linalg.norm(whole - rest) > 3 * np.linalg.norm(one_action - rest)
    pushed()
    env.reset(0)
    assert np.array_equal(_rest(env, 8), rest)


def _rest(env: LiberoSingleEnv, num_actions: int) -> NDArray[np.float64]:
    """Play actions without a motion; return where the hand is."""
    for _ in range(num_actions):
        raw = env.step(_REST)[0]
    place: NDArray[np.float64] = raw["robot0_eef_pos"]
    return place
