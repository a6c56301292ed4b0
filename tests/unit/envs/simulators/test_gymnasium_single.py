"""A Gymnasium environment against Gymnasium itself."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builtin_configs import gymnasium_config

from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.errors import ConfigError, EnvironmentFailure


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
    module = importlib.import_module("toy_envs")
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
