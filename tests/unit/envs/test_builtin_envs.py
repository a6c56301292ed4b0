"""The registry, ``env_type: gymnasium`` and ``env_type: metaworld``."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batch_env import BatchEnv

from rlinf.config.registries import envs
from rlinf.config.schema.env import EnvConfig, GymnasiumEnvConfig, MetaWorldEnvConfig
from rlinf.envs import SupportedEnvType, get_env_cls, make_vector_env, register_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.gymnasium_env import GymnasiumEnv
from rlinf.envs.metaworld_tasks import BENCHMARKS, TASK_DESCRIPTIONS
from rlinf.errors import ConfigError, EnvironmentFailure, MissingPackageError, RegistryError


def gymnasium_config(env_id: str = "CartPole-v1", **kwargs: Any) -> GymnasiumEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "gymnasium",
        "total_num_envs": 4,
        "group_size": 2,
        "max_episode_steps": 30,
        "max_steps_per_rollout_epoch": 60,
        "init_params": {"id": env_id},
    }
    return GymnasiumEnvConfig(**{**defaults, **kwargs})


def metaworld_config(**kwargs: Any) -> MetaWorldEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "metaworld",
        "total_num_envs": 4,
        "group_size": 2,
        "max_episode_steps": 7,
        "max_steps_per_rollout_epoch": 14,
    }
    return MetaWorldEnvConfig(**{**defaults, **kwargs})


# -- registry ----------------------------------------------------------------------------------------------------------


def test_registering_extends_the_view_and_the_configuration() -> None:
    register_env("Toy_Registered", BatchEnv)
    assert get_env_cls("toy_registered") is BatchEnv
    assert SupportedEnvType("TOY_registered").value == "toy_registered"
    assert {"gymnasium", "metaworld", "toy_registered"} <= {member.value for member in SupportedEnvType}
    assert envs.configs.get("toy_registered") is EnvConfig
    with pytest.raises(RegistryError, match="already registered"):
        register_env("toy_registered", GymnasiumEnv)


def test_an_unknown_environment_suggests_the_closest() -> None:
    with pytest.raises(RegistryError, match="Did you mean 'metaworld'"):
        get_env_cls("metawrld")
    with pytest.raises(RegistryError, match="Did you mean 'metaworld'"):
        SupportedEnvType("metawrld")


# -- gymnasium ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_gymnasium_environments_conform(env_id: str) -> None:
    with make_vector_env(gymnasium_config(env_id), num_envs=4) as env:
        check_vector_env(env, rebuild=lambda: make_vector_env(gymnasium_config(env_id), num_envs=4))


def test_a_limit_that_gymnasium_registers_ends_no_episode_early() -> None:
    cfg = gymnasium_config("Pendulum-v1", max_episode_steps=250, max_steps_per_rollout_epoch=250)
    with make_vector_env(cfg, num_envs=4) as env:
        env.reset(0)
        step = env.chunk_step(torch.zeros(4, 250, 1))
    assert [episode["episode_len"] for episode in step.episodes] == [250.0] * 4
    assert step.truncations[:, -1].all()


@pytest.mark.parametrize("num_env_processes", [0, 2])
def test_images_are_main_images(num_env_processes: int) -> None:
    keys = {"import_module": "toy_images", "num_env_processes": num_env_processes}
    with make_vector_env(gymnasium_config("ToyImages-v0", **keys), num_envs=4) as env:
        check_vector_env(env, rebuild=lambda: make_vector_env(gymnasium_config("ToyImages-v0", **keys), num_envs=4))
        first = env.reset(0)
        assert set(first) == {"main_images"}
        assert first["main_images"].dtype == torch.uint8
        assert first["main_images"].shape == (4, 16, 18, 3)
        # Group mates start from the same seed.
        assert first["main_images"][:, 0, 0, 0].unique().numel() == 2
        later = env.chunk_step(torch.zeros(4, 3, dtype=torch.int64)).obs["main_images"]
    assert (later[:, 1:] == 3).all()


def test_gymnasium_numbers_are_those_of_the_environment_itself() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    with make_vector_env(gymnasium_config("Pendulum-v1"), num_envs=1) as env:
        obs = env.reset(5)
        seed = int(env.reset_state_ids[0])
        step = env.chunk_step(torch.tensor([[[0.5], [9.0]]]))
    raw = gymnasium.make("Pendulum-v1")
    expected, _ = raw.reset(seed=seed)
    assert obs["states"][0].tolist() == expected.tolist()
    outcomes = [raw.step(np.array([force], np.float32)) for force in (0.5, 2.0)]  # 9.0 is clipped to the bound
    assert step.rewards[0].tolist() == pytest.approx([outcome[1] for outcome in outcomes], rel=1e-6)
    assert step.obs["states"][0].tolist() == outcomes[1][0].tolist()


def test_discrete_actions_may_keep_their_last_dimension_and_are_range_checked() -> None:
    with make_vector_env(gymnasium_config(), num_envs=2) as env:
        assert env.action_dim == 1
        env.reset(0)
        flat = env.chunk_step(torch.ones(2, 3, dtype=torch.long))
        env.reset(0)
        kept = env.chunk_step(torch.ones(2, 3, 1, dtype=torch.long))
        with pytest.raises(EnvironmentFailure, match="from 2 to 2; allowed are 0 to 1"):
            env.chunk_step(torch.full((2, 1), 2))
    assert torch.equal(flat.obs["states"], kept.obs["states"])


def test_dict_observations_are_flattened() -> None:
    params = {"id": "Blackjack-v1"}
    with make_vector_env(gymnasium_config(init_params=params), num_envs=2) as env:
        obs = env.reset(0)
    assert obs["states"].shape == (2, 32 + 11 + 2)
    assert obs["states"].sum(dim=1).tolist() == [3, 3]  # three one-hot parts


# Goal environments show a mapping of observation, achieved_goal and desired_goal.
@pytest.mark.parametrize(
    ("env_id", "size", "keys"),
    [
        ("InvertedPendulum-v5", 4, {}),
        ("HalfCheetah-v5", 17, {}),
        ("FetchReachDense-v4", 16, {"import_module": "gymnasium_robotics", "success_key": "is_success"}),
        ("PointMaze_UMaze-v3", 8, {"import_module": "gymnasium_robotics"}),
    ],
)
def test_mujoco_environments_conform(env_id: str, size: int, keys: dict[str, Any]) -> None:
    pytest.importorskip(keys.get("import_module", "mujoco"))
    with make_vector_env(gymnasium_config(env_id, max_episode_steps=6, **keys), num_envs=4) as env:
        assert env.observation_space["states"].shape == (size,)
        check_vector_env(
            env, rebuild=lambda: make_vector_env(gymnasium_config(env_id, max_episode_steps=6, **keys), num_envs=4)
        )


def test_reaching_the_desired_goal_is_success() -> None:
    pytest.importorskip("gymnasium_robotics")
    keys = {"import_module": "gymnasium_robotics", "success_key": "is_success", "max_episode_steps": 50}
    with make_vector_env(gymnasium_config("FetchReach-v4", **keys), num_envs=2) as env:
        states = env.reset(0)["states"]
        for _ in range(50):
            achieved, desired = states[:, :3], states[:, 3:6]
            way = (10 * (desired - achieved)).clamp(-1, 1)
            step = env.chunk_step(torch.cat([way, torch.zeros(2, 1)], 1)[:, None])
            states = step.obs["states"]
    assert [episode["success_at_end"] for episode in step.episodes] == [1.0, 1.0]
    assert all(episode["return"] > -50 for episode in step.episodes)


@pytest.mark.parametrize("num_env_processes", [0, 1])
def test_an_unknown_id_suggests_the_closest(num_env_processes: int) -> None:
    with pytest.raises(ConfigError, match=r"init_params\.id.*CartPool-v1.*Did you mean 'CartPole-v1'"):
        make_vector_env(gymnasium_config("CartPool-v1", num_env_processes=num_env_processes), num_envs=1)


def test_a_missing_id_or_module_is_named() -> None:
    with pytest.raises(ConfigError, match="'id' is missing"):
        make_vector_env(gymnasium_config(init_params={"g": 9.8}), num_envs=1)
    with pytest.raises(ConfigError, match="import_module.*no_such_module"):
        make_vector_env(gymnasium_config(import_module="no_such_module"), num_envs=1)


def test_import_module_registers_the_id_also_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "third_party_env.py").write_text(
        "import gymnasium\nfrom toy_envs import CountingEnv\n"
        "gymnasium.register(id='ThirdParty-v0', entry_point=CountingEnv)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    cfg = gymnasium_config("ThirdParty-v0", import_module="third_party_env", num_env_processes=1)
    with make_vector_env(cfg, num_envs=2) as env:
        env.reset(0)
        assert env.chunk_step(torch.zeros(2, 2, 1)).rewards.tolist() == [[1, 2], [1, 2]]


def test_unsupported_action_spaces_are_refused() -> None:
    module = sys.modules["toy_envs"]
    gymnasium = pytest.importorskip("gymnasium")

    class ManyEnv(module.CountingEnv):  # type: ignore[misc, name-defined]
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    gymnasium.register(id="ManyActions-v0", entry_point=ManyEnv)
    with make_vector_env(gymnasium_config("ManyActions-v0"), num_envs=1) as env:
        env.reset(0)
        with pytest.raises(ConfigError, match="allowed are Box and Discrete"):
            env.chunk_step(torch.zeros(1, 1, 2))


# -- metaworld ---------------------------------------------------------------------------------------------------------


def test_an_unknown_task_suggests_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"task_name.*Did you mean 'reach-v3'"):
        make_vector_env(metaworld_config(task_name="reach-v2"), num_envs=1)


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metaworld", None)
    monkeypatch.delitem(sys.modules, "metaworld.env_dict", raising=False)
    with pytest.raises(MissingPackageError, match=r"bash requirements/install.sh embodied --env metaworld"):
        make_vector_env(metaworld_config(), num_envs=1)


def test_every_task_has_a_description() -> None:
    env_dict = pytest.importorskip("metaworld.env_dict")
    assert set(TASK_DESCRIPTIONS) == set(env_dict.ALL_V3_ENVIRONMENTS)


# One task that is reset in one pass, one that needs two.
@pytest.mark.parametrize("task_name", ["reach-v3", "drawer-open-v3"])
def test_metaworld_conforms(task_name: str) -> None:
    pytest.importorskip("metaworld")
    with make_vector_env(metaworld_config(task_name=task_name), num_envs=4) as env:
        assert env.action_dim == 4
        assert env.observation_space["states"].shape == (39,)
        obs = env.reset(0)
        assert obs["task_descriptions"] == [TASK_DESCRIPTIONS[task_name]] * 4
        check_vector_env(env, rebuild=lambda: make_vector_env(metaworld_config(task_name=task_name), num_envs=4))


def test_metaworlds_own_limit_ends_no_episode_early() -> None:
    pytest.importorskip("metaworld")
    cfg = metaworld_config(max_episode_steps=510, max_steps_per_rollout_epoch=510)
    with make_vector_env(cfg, num_envs=1) as env:
        env.reset(0)
        step = env.chunk_step(torch.zeros(1, 510, 4))
    assert [episode["episode_len"] for episode in step.episodes] == [510.0]


@pytest.mark.parametrize("num_env_processes", [0, 2])
def test_a_benchmarks_tasks_are_shared_out_over_the_groups(num_env_processes: int) -> None:
    pytest.importorskip("metaworld")
    cfg = metaworld_config(task_name="mt10", total_num_envs=40, num_env_processes=num_env_processes)
    # The second of ten workers: groups 2 and 3 of the twenty.
    with make_vector_env(cfg, num_envs=4, first_env=4) as env:
        obs = env.reset(0)
        names = [BENCHMARKS["mt10"][number] for number in (2, 2, 3, 3)]
        assert obs["task_descriptions"] == [TASK_DESCRIPTIONS[name] for name in names]
        assert env.observation_space["states"].shape == (49,)
        assert torch.equal(obs["states"][:, 39:], torch.eye(10)[[2, 2, 3, 3]])
        assert torch.equal(obs["states"][0], obs["states"][1])
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=4, first_env=4))


def test_each_task_of_a_benchmark_gets_equally_many_groups() -> None:
    cfg = metaworld_config(task_name="mt10", total_num_envs=30, group_size=2)
    with pytest.raises(ConfigError, match=r"total_num_envs=30 .* multiple of 20"):
        make_vector_env(cfg, num_envs=30)


def test_benchmarks_are_those_of_metaworld() -> None:
    env_dict = pytest.importorskip("metaworld.env_dict")
    assert BENCHMARKS["mt10"] == tuple(env_dict.MT10_V3)
    assert BENCHMARKS["mt50"] == tuple(env_dict.MT50_V3)


def test_metaworld_goals_vary_over_the_whole_space() -> None:
    pytest.importorskip("metaworld")
    cfg = metaworld_config(total_num_envs=1, group_size=1)
    with make_vector_env(cfg, num_envs=1) as env:
        goals = torch.stack([env.reset(epoch)["states"][0, -3:] for epoch in range(24)])
    assert len(goals.unique(dim=0)) == 24
    assert (goals.max(dim=0).values - goals.min(dim=0).values > torch.tensor([0.12, 0.05, 0.15])).all()


@pytest.mark.parametrize("task_name", ["reach-v3", "push-v3", "door-open-v3", "window-open-v3"])
def test_metaworld_reset_gives_the_state_of_its_own_reset(task_name: str) -> None:
    env_dict = pytest.importorskip("metaworld.env_dict")
    from rlinf.envs.metaworld_single import make_metaworld_env

    ours = make_metaworld_env(render=False, task_name=task_name)
    for seed in (1, 2):
        obs = ours.reset(seed)
        theirs = env_dict.ALL_V3_ENVIRONMENTS[task_name]()
        theirs._set_task_called = True
        theirs._partially_observable = False
        theirs._freeze_rand_vec = True
        theirs._last_rand_vec = ours._env._last_rand_vec.copy()
        expected, _ = theirs.reset()
        if task_name != "window-open-v3":  # both passes draw there, so only its repeatability is comparable
            np.testing.assert_array_equal(obs, expected)
            np.testing.assert_array_equal(ours._env.data.qpos, theirs.data.qpos)
        for _ in range(3):
            ours.step(np.ones(4, np.float32))
        np.testing.assert_array_equal(ours.reset(seed), obs)


@pytest.mark.parametrize("task_name", ["reach-v3", "stick-push-v3", "door-open-v3", "stick-pull-v3"])
def test_metaworld_episodes_are_bit_for_bit_those_with_scipys_rotation(task_name: str) -> None:
    pytest.importorskip("metaworld")
    from scipy.spatial.transform import Rotation

    from rlinf.envs.metaworld_single import make_metaworld_env

    def episode(env: Any) -> list[Any]:
        actions = np.random.default_rng(1).uniform(-1, 1, (40, 4)).astype(np.float32)
        seen = [env.reset(11)]
        for action in actions:
            obs, reward, *_ = env.step(action)
            seen += [obs, reward]
        return seen

    env = make_metaworld_env(render=False, task_name=task_name)
    ours = episode(env)
    module = sys.modules[type(env._env).__module__]
    replaced = module.Rotation
    assert replaced is not Rotation
    module.Rotation = Rotation
    try:
        theirs = episode(env)
    finally:
        module.Rotation = replaced
    for first, second in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(first, second)


def test_metaworld_without_video_makes_no_renderer() -> None:
    pytest.importorskip("metaworld")
    from rlinf.envs.metaworld_single import make_metaworld_env

    env = make_metaworld_env(render=False, task_name="reach-v3")
    env.reset(0)
    assert env._env.mujoco_renderer._viewers == {}
