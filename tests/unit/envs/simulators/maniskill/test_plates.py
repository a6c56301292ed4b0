"""``PutOnPlate25-v1`` in ManiSkill: scenes, success of objects placed by hand, rewards, and the scripted policy."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from maniskill_configs import PUSH_CUBE, PUT_ON_PLATE, maniskill_config

from rlinf.config.registries import scripted_policies
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.simulators.maniskill.maniskill_single import make_maniskill_env
from rlinf.envs.simulators.maniskill.plates_catalog import OBJECTS, PLATES, TABLES
from rlinf.envs.simulators.maniskill.plates_episodes import PlateSplits
from rlinf.errors import ConfigError

pytestmark = pytest.mark.maniskill
STAY = torch.tensor([0.0] * 6 + [1.0])
"""An action that opens the gripper and moves nothing."""
CAMERA = {"obs_mode": "rgb", "sensor_configs": {"width": 48, "height": 32}}
FEW_RESETS = {"max_episode_steps": 10, "max_steps_per_rollout_epoch": 20}
"""For the check of environments: a scene that is built anew takes a fifth of a second."""
ALL = dict.fromkeys(("obj_set", "plate_set", "table_set", "position_set", "sentence_set"), "all")


@pytest.fixture(scope="module")
def task() -> Iterator[Any]:
    """The task itself, in which tests move things by hand; as on a GPU, all things are in one scene that stays."""
    import gymnasium
    import mani_skill.envs

    import rlinf.envs.simulators.maniskill.plates  # noqa: F401

    env = gymnasium.make(
        **PUT_ON_PLATE,
        **ALL,
        num_envs=1,
        obs_mode="state",
        sim_backend="physx_cpu",
        render_backend="none",
        reconfiguration_freq=0,
    )
    assert mani_skill.envs is not None
    yield env.unwrapped
    env.close()


def actor(task: Any, kind: str, number: int) -> Any:
    return task.scene.actors[f"{kind}_{number}"]


def put_object(task: Any, seed: int, *, aside: float = 0.0, gap: float = 0.0) -> dict[str, bool]:
    """Return what is said after an episode's object was put over the plate and a fifth of a second went by."""
    from mani_skill.utils.structs.pose import Pose

    task.reset(seed=seed)
    episode = PlateSplits(**ALL).episode(seed)
    plate = actor(task, "plate", episode.plate).pose.p[0]
    height = PLATES[episode.plate].half_sizes[2] + OBJECTS[episode.object].half_sizes[2] + gap
    place = plate + torch.tensor([aside, 0.0, height])
    actor(task, "object", episode.object).set_pose(Pose.create_from_pq(p=place))
    info = task.step(STAY)[-1]
    return {key: bool(value[0]) for key, value in info.items() if key in {"success", "src_on_target", "is_held"}}


def test_states_and_sentences_conform() -> None:
    cfg = maniskill_config(init_params={**PUT_ON_PLATE, **ALL}, show_objects=True, **FEW_RESETS)
    with make_vector_env(cfg, num_envs=2) as env:
        assert env.action_dim == 7
        assert env.observation_space["states"].shape == (40,)
        assert env.observation_space["objects"].shape == (9,)
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))


def test_images_conform() -> None:
    cfg = maniskill_config(init_params={**PUT_ON_PLATE, **ALL, **CAMERA}, **FEW_RESETS)
    with make_vector_env(cfg, num_envs=2) as env:
        assert env.observation_space["main_images"].shape == (32, 48, 3)
        assert env.observation_space["states"].shape == (25,)
        assert set(env.observation_space.spaces) == {"states", "main_images", "task_descriptions"}
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))


def test_scene_and_sentence_are_those_of_the_id(task: Any) -> None:
    for seed in (3, 40, 3):
        episode = PlateSplits(**ALL).episode(seed)
        task.reset(seed=seed)
        assert task.get_language_instruction() == [episode.sentence]
        thing = actor(task, "object", episode.object).pose
        assert thing.p[0].tolist() == pytest.approx([*episode.object_place, OBJECTS[episode.object].half_sizes[2]])
        assert actor(task, "plate", episode.plate).pose.p[0, :2].tolist() == pytest.approx(episode.plate_place)
        assert float(actor(task, "table", episode.table).pose.p[0, 2]) == 0.0
        others = [actor(task, "object", number) for number in range(len(OBJECTS)) if number != episode.object]
        others += [actor(task, "plate", number) for number in range(len(PLATES)) if number != episode.plate]
        assert all(float(other.pose.p[0, 0]) > 5 for other in others)
        sheets = [actor(task, "table", number) for number in range(len(TABLES)) if number != episode.table]
        assert all(float(sheet.pose.p[0, 2]) < -1 for sheet in sheets)
        shown = task.get_objects()[0]
        assert torch.remainder(shown[3] - episode.turn + 0.01, 2 * torch.pi).item() == pytest.approx(0.01, abs=1e-3)


def test_an_id_can_be_named_beside_the_seed(task: Any) -> None:
    task.reset(seed=3)
    first = task.get_objects()
    task.reset(seed=4, options={"episode_id": torch.tensor([3])})
    assert torch.equal(task.get_objects(), first)


@pytest.mark.parametrize("seed", range(25), ids=[thing.name for thing in OBJECTS])
def test_every_object_lies_still_where_it_is_put(task: Any, seed: int) -> None:
    task.reset(seed=seed)
    before = task.get_objects()[0]
    for _ in range(5):
        info = task.step(STAY)[-1]
    assert torch.allclose(task.get_objects()[0], before, atol=3e-3)
    assert not info["success"]


@pytest.mark.parametrize("seed", range(25), ids=[thing.name for thing in OBJECTS])
def test_every_object_can_lie_on_a_plate(task: Any, seed: int) -> None:
    assert put_object(task, seed) == {"success": True, "src_on_target": True, "is_held": False}


def test_beside_the_plate_and_above_it_is_no_success(task: Any) -> None:
    radius = PLATES[PlateSplits(**ALL).episode(0).plate].half_sizes[0]
    assert put_object(task, 0, aside=0.6 * radius)["success"]
    assert not put_object(task, 0, aside=radius + 0.03)["success"]
    assert not put_object(task, 0, gap=0.5)["success"]  # it falls for less than a step


def test_a_single_environment_has_what_is_in_the_episode_alone() -> None:
    import gymnasium
    import mani_skill.envs

    import rlinf.envs.simulators.maniskill.plates  # noqa: F401

    assert mani_skill.envs is not None
    env = gymnasium.make(**PUT_ON_PLATE, num_envs=1, obs_mode="state", sim_backend="physx_cpu", render_backend="none")
    for seed in (2, 3):
        episode = PlateSplits().episode(seed)
        env.reset(seed=seed)
        names = {name for name in env.unwrapped.scene.actors if name.startswith(("object", "plate", "table_"))}
        assert names == {f"object_{episode.object}", f"plate_{episode.plate}", f"table_{episode.table}"}
    env.close()


def test_a_grasp_goes_the_same_way_whatever_was_played_before() -> None:
    cfg = expert_config()
    expert = scripted_policies.get("maniskill_plates")(cfg)
    env = make_maniskill_env(
        render=False, init_params=cfg.init_params, task_description=None, show_objects=True, render_quality=None
    )

    def row_after(seed: int, num_steps: int) -> dict[str, Any]:
        row = env.observe(env.reset(seed))
        for _ in range(num_steps):
            obs = {key: torch.from_numpy(row[key])[None] for key in ("states", "objects")}
            row = env.observe(env.step(expert(obs)[0, 0].numpy())[0])
        return row

    first = row_after(13, 12)
    assert first["objects"][8] == 1  # held
    for before in (4, 7):
        row_after(before, 12)
        again = row_after(13, 12)
        assert np.array_equal(again["states"], first["states"])
        assert np.array_equal(again["objects"], first["objects"])
    env.close()


def play(cfg: Any) -> tuple[list[dict[str, float]], torch.Tensor]:
    """Return the episodes that the scripted policy plays, and the rewards of all steps [B, T]."""
    expert = scripted_policies.get("maniskill_plates")(cfg)
    with make_vector_env(cfg, num_envs=cfg.total_num_envs) as env:
        obs, episodes, rewards = env.reset(0), [], []
        while len(episodes) < cfg.total_num_envs:
            step = env.chunk_step(expert(obs))
            obs, episodes, rewards = step.obs, [*episodes, *step.episodes], [*rewards, step.rewards]
    return episodes, torch.cat(rewards, 1)


def expert_config(**keys: Any) -> Any:
    return maniskill_config(
        init_params={**PUT_ON_PLATE, **ALL},
        show_objects=True,
        total_num_envs=4,
        group_size=1,
        max_episode_steps=40,
        max_steps_per_rollout_epoch=40,
        auto_reset=False,
        **keys,
    )


def test_the_scripted_policy_succeeds_and_gets_all_rewards() -> None:
    episodes, rewards = play(expert_config(use_rel_reward=True))
    assert [episode["success_once"] for episode in episodes] == [1.0] * 4
    assert rewards.sum(1).tolist() == pytest.approx([1.2] * 4)
    for row in rewards.tolist():
        assert [round(value, 4) for value in row if abs(value) > 1e-6] == [0.1, 0.1, 1.0]
    assert all(episode["episode_len"] < 35 for episode in episodes)


def test_what_is_held_down_on_the_plate_is_a_success_when_it_is_let_go(task: Any) -> None:
    expert = scripted_policies.get("maniskill_plates")(expert_config())
    task.reset(seed=0)
    obs = task.get_obs()
    for _ in range(30):
        action = expert({"states": obs, "objects": task.get_objects()})[0, 0]
        if action[6] > 0 and task.get_objects()[0, 8] > 0:
            break  # just above the plate
        obs = task.step(action)[0]
    for _ in range(2):
        info = task.step(torch.tensor([0.0, 0.0, -0.08, 0.0, 0.0, 0.0, -1.0]))[-1]
    assert bool(info["is_held"])
    assert bool(info["src_on_target"])
    assert not info["success"]
    for _ in range(2):
        info = task.step(STAY)[-1]
    assert not info["is_held"]
    assert bool(info["success"])


def test_an_episode_begins_without_the_grasp_of_the_one_before(task: Any) -> None:
    expert = scripted_policies.get("maniskill_plates")(expert_config())
    # The fingers close along the line along which they do at a reset.
    seed = next(number for number in range(100) if PlateSplits(**ALL).episode(number).turn == 0.0)
    task.reset(seed=seed)
    obs, info = task.get_obs(), {"consecutive_grasp": torch.tensor([False])}
    for _ in range(30):
        if info["consecutive_grasp"]:
            break
        obs, *_, info = task.step(expert({"states": obs, "objects": task.get_objects()})[0, 0])
    assert bool(info["consecutive_grasp"])
    assert task.get_objects()[0, 8] == 1
    # PhysX still has the contacts of the last step.
    task.reset(seed=seed)
    assert task.get_objects()[0, 8] == 0
    assert not any(bool(value) for value in task.evaluate().values())


def test_states_that_have_all_show_no_objects_beside_them() -> None:
    with pytest.raises(ConfigError, match=r"show_objects: .*states of 'PushCube-v1' already say.*Remove the key"):
        make_vector_env(maniskill_config(init_params=PUSH_CUBE, show_objects=True), num_envs=1)


def test_another_set_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"init_params\.obj_set: received 'val'"):
        make_vector_env(maniskill_config(init_params={**PUT_ON_PLATE, "obj_set": "val"}), num_envs=1)
