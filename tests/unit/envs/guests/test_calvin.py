"""The adapter for CALVIN: episodes, actions and what is seen, with a fake of its simulator."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calvin_simulator import FakeOracle, FakeSimulator

from rlinf.envs.guests import calvin
from rlinf.envs.guests.calvin import MAX_TASK_STEPS, CalvinChainEnv, make, relative_action, simulator_config
from rlinf.envs.guests.calvin_chains import start_state, starts
from rlinf.envs.guests.calvin_tasks import SENTENCES
from rlinf.envs.guests.rows import GuestRows, Singles

CHAIN = ("open_drawer", "turn_on_led", "move_slider_left")
OPEN = np.array([0.5, 0, 0, 0, 0, 0, 1.0])


def chain_env(steps: dict[str, int], **changes: Any) -> CalvinChainEnv:
    given: dict[str, Any] = {
        "chains": [(starts()[0], CHAIN), (starts()[1], CHAIN[::-1])],
        "chain_length": 3,
        "max_task_steps": MAX_TASK_STEPS,
        "cameras": ["static", "gripper"],
        "joint_states": True,
    }
    return CalvinChainEnv(FakeSimulator(), FakeOracle(steps), **{**given, **changes})


def play(env: CalvinChainEnv, num_steps: int) -> list[tuple[Any, ...]]:
    """Execute chunks of one action."""
    found = []
    for _ in range(num_steps):
        env.begin_chunk()
        found.append(env.step(OPEN)[1:])
    return found


def test_a_chain_goes_from_task_to_task_and_ends_with_the_last() -> None:
    env = chain_env({"open_drawer": 2, "turn_on_led": 1, "move_slider_left": 2})
    assert env.reset(0)["task_descriptions"] == SENTENCES["open_drawer"]
    assert play(env, 2) == [(0.0, False, False, False), (1.0, False, False, False)]
    assert env.row()["task_descriptions"] == SENTENCES["turn_on_led"]
    assert play(env, 3) == [(1.0, False, False, False), (0.0, False, False, False), (1.0, True, False, True)]
    assert env.row()["task_descriptions"] == SENTENCES["move_slider_left"]


def test_a_seed_names_a_chain_and_chains_can_be_short() -> None:
    env = chain_env({"move_slider_left": 1}, chain_length=1)
    assert env.reset(3)["task_descriptions"] == SENTENCES["move_slider_left"]
    assert play(env, 1) == [(1.0, True, False, True)]


def test_each_task_has_360_steps() -> None:
    env = chain_env({"open_drawer": 360})
    env.reset(0)
    assert MAX_TASK_STEPS == 360
    results = play(env, 720)
    assert results[359] == (1.0, False, False, False)
    assert results[719] == (0.0, False, True, False)
    assert not any(truncated for _, _, truncated, _ in results[:719])
    env.reset(0)
    assert play(env, 1) == [(0.0, False, False, False)]


def test_without_a_limit_a_task_has_the_whole_episode() -> None:
    env = chain_env({"open_drawer": 700}, max_task_steps=None)
    env.reset(0)
    results = play(env, 700)
    assert results[:699] == [(0.0, False, False, False)] * 699
    assert results[699] == (1.0, False, False, False)


def test_no_reward_follows_the_end_where_the_host_goes_on() -> None:
    env = chain_env({"open_drawer": 1}, chain_length=1)
    env.reset(0)
    assert play(env, 3) == [(1.0, True, False, True), (0.0, True, False, True), (0.0, True, False, True)]
    assert env.row()["states"][0] == 3


def test_states_are_those_of_the_hand_alone_where_the_recipe_says_so() -> None:
    assert chain_env({}, joint_states=False).reset(0)["states"].shape == (7,)
    assert chain_env({}).reset(0)["states"].shape == (15,)


def test_groups_have_one_of_several_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "calvin_env" / "envs").mkdir(parents=True)
    (tmp_path / "calvin_env" / "envs" / "play_table_env.py").touch()
    scenes: list[str] = []

    def build(source: Path, scene: str, cameras: dict[str, int]) -> FakeSimulator:
        scenes.append(scene)
        return FakeSimulator()

    monkeypatch.setattr(calvin, "build_simulator", build)
    monkeypatch.setattr(calvin, "load_oracle", lambda source: FakeOracle({}))
    given = {"source_path": str(tmp_path), "scene": "ABC", "cameras": ["static"]}
    sizes = {"image_size": 8, "wrist_image_size": 8}
    Singles(make, num_envs=6, first_env=2, num_recorded=0, init_params={**given, **sizes}, group_size=2)
    assert scenes == ["B", "B", "C", "C", "A", "A"]


def test_the_rest_of_a_chunk_is_not_executed_for_the_next_sentence() -> None:
    env = chain_env({"open_drawer": 1, "turn_on_led": 2})
    env.reset(0)
    env.begin_chunk()
    assert [env.step(OPEN)[1] for _ in range(3)] == [1.0, 0.0, 0.0]
    assert env.row()["states"][0] == 1
    env.begin_chunk()
    assert [env.step(OPEN)[1] for _ in range(3)] == [0.0, 1.0, 0.0]
    assert env.row()["states"][0] == 3
    env.reset(0)
    assert env.step(OPEN)[1] == 1.0


def test_a_reset_restores_the_state_after_building() -> None:
    env = chain_env({})
    simulator = env._env
    env.reset(0)
    robot, scene = start_state(starts()[0])
    assert simulator.calls[:3] == [("restore", 7, 3), ("step", 3), ("restore", 7, 3)]
    name, given_robot, given_scene = simulator.calls[3]
    assert name == "reset"
    np.testing.assert_array_equal(given_robot, robot)
    np.testing.assert_array_equal(given_scene, scene)
    assert simulator.robot.gripper_action == 1
    assert not simulator.scene.buttons[0].prev_is_pressed
    env.close()
    env.close()
    assert simulator.calls.count("close") == 1


def test_images_are_rendered_where_they_are_looked_at() -> None:
    env = chain_env({}, cameras=["gripper"])
    rendered = env._env.rendered
    rows = GuestRows(
        Singles(lambda render: env, num_envs=1, first_env=0, num_recorded=0, init_params={}), num_envs=1, num_recorded=0
    )
    rows.reset(np.array([0]), np.array([0]))
    assert rendered == ["gripper"]
    request = {
        "actions": np.tile(OPEN, (1, 4, 1)),
        "active": np.ones(1, bool),
        "steps": np.zeros(1, np.int64),
        "next_seeds": None,
        "rule": [100, False],
        "observes": False,
    }
    chunk = rows.run_chunk(request)
    assert rendered == ["gripper"] * 2
    assert chunk["obs"]["states"][0, 0] == 4
    assert chunk["obs"]["wrist_images"].dtype == np.uint8
    assert chunk["obs"].keys() == {"states", "wrist_images", "task_descriptions"}
    observed = rows.run_chunk({**request, "observes": True})["observations"]["0"]
    assert [row["wrist_images"].max() for row in observed] == [5, 6, 7, 8]
    assert rendered == ["gripper"] * 6
    assert env.render().shape == (8, 8, 3)
    assert rendered[-1] == "static"


@pytest.mark.parametrize(("gripper", "taken"), [(0.2, 1.0), (-0.2, -1.0), (0.0, -1.0), (3.0, 1.0)])
def test_the_gripper_opens_or_closes(gripper: float, taken: float) -> None:
    action = relative_action(np.array([0.5, -2.0, 0, 0, 0, 0.25, gripper], np.float32))
    assert action.tolist() == [0.5, -1.0, 0, 0, 0, 0.25, taken]


def test_the_simulator_runs_on_the_cpu_with_the_sizes_of_the_recipe() -> None:
    files: dict[str, dict[str, Any]] = {
        "panda": {"filename": "panda.urdf", "euler_obs": True},
        "panda_longer_finger": {"defaults": ["panda"], "filename": "longer.urdf"},
        "calvin_scene_B": {"data_path": "${data_path}"},
        "static": {"width": 200, "height": 200, "fov": 10},
        "play_table_env": {"use_egl": True, "use_scene_info": False, "use_vr": "${use_vr}", "seed": 0},
    }
    found = simulator_config(Path("conf"), "B", {"static": 64}, lambda path: files[path.stem])
    assert found["robot"] == {"filename": "longer.urdf", "euler_obs": True}
    assert found["scene"] == {"data_path": "${data_path}"}
    assert found["cameras"] == {"static": {"width": 64, "height": 64, "fov": 10}}
    assert found["env"] == {"use_egl": False, "use_scene_info": True, "use_vr": False, "seed": 0}


def test_a_folder_without_the_simulator_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no calvin_env; clone"):
        make(render=False, source_path=str(tmp_path), scene="D", cameras=["static"], image_size=8, wrist_image_size=8)
