"""What is collected is what happened: actions replayed in the simulator itself give the same frames."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from batch_env import BatchEnv
from builtin_configs import metaworld_config
from langpick_configs import langpick_config

from rlinf.config.schema.env import DataCollectionConfig, EnvConfig, GymnasiumEnvConfig
from rlinf.data.datasets.lerobot import LeRobotDataset, check_dataset
from rlinf.envs import make_vector_env
from rlinf.envs.base import VectorEnv
from rlinf.envs.episode_collector import EpisodeCollector, writer_options
from rlinf.errors import ConfigError


def make_cartpole(folder: Path, num_env_processes: int = 0, **collection: bool) -> VectorEnv:
    cfg = GymnasiumEnvConfig(
        env_type="gymnasium",
        total_num_envs=3,
        max_episode_steps=30,
        max_steps_per_rollout_epoch=30,
        auto_reset=False,
        num_env_processes=num_env_processes,
        init_params={"id": "CartPole-v1"},
        data_collection=DataCollectionConfig(enabled=True, save_dir=str(folder), **collection),
    )
    return make_vector_env(cfg, num_envs=3)


@pytest.mark.parametrize("num_env_processes", [0, 2])
def test_actions_of_a_collected_episode_lead_through_its_frames(num_env_processes: int, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    seeds = []
    with make_cartpole(tmp_path, num_env_processes) as env:
        for epoch in range(2):
            env.reset(epoch)
            seeds += env.reset_state_ids.tolist()
            for _ in range(10):
                env.chunk_step(torch.randint(2, (3, 3), generator=generator))
        env.finish_collection()
    dataset = LeRobotDataset(tmp_path / "part_000000")
    check_dataset(dataset.root)
    assert dataset.num_episodes == 6
    starts = {tuple(gymnasium.make("CartPole-v1").reset(seed=seed)[0]): seed for seed in seeds}
    for number in range(6):
        columns = dataset.episode(number).columns
        reference = gymnasium.make("CartPole-v1", max_episode_steps=30)
        obs, _ = reference.reset(seed=starts[tuple(columns["observation.state"][0])])
        last = len(columns["action"]) - 1
        for step, (action,) in enumerate(columns["action"]):
            np.testing.assert_array_equal(columns["observation.state"][step], obs)
            obs, reward, terminated, truncated, _ = reference.step(int(action))
            assert columns["next.reward"][step] == reward
            assert columns["next.terminated"][step] == terminated
            assert columns["next.done"][step] == (terminated or truncated) == (step == last)


def test_only_whole_and_wanted_episodes_are_kept(tmp_path: Path) -> None:
    with make_cartpole(tmp_path / "unfinished") as env:
        env.reset(0)
        env.chunk_step(torch.zeros(3, 2, dtype=torch.int64))
        env.finish_collection()
    with make_cartpole(tmp_path / "failed", only_success=True) as env:
        env.reset(0)
        for _ in range(15):
            env.chunk_step(torch.zeros(3, 2, dtype=torch.int64))
        env.finish_collection()
    assert not list(tmp_path.rglob("*.parquet"))


def test_environments_stepped_as_a_batch_are_collected_too(tmp_path: Path) -> None:
    cfg = EnvConfig(
        env_type="batch",
        total_num_envs=2,
        max_episode_steps=4,
        max_steps_per_rollout_epoch=8,
        data_collection=DataCollectionConfig(enabled=True, save_dir=str(tmp_path)),
    )
    with BatchEnv(cfg, num_envs=2) as env:
        first = env.reset(0)
        steps = [env.chunk_step(torch.zeros(2, 2, env.action_dim)) for _ in range(4)]
        env.finish_collection()
    dataset = LeRobotDataset(tmp_path / "part_000000")
    rewards = torch.cat([step.rewards for step in steps], 1)
    assert sum(record.length for record in dataset.episodes) == int(torch.cat([s.executed for s in steps], 1).sum())
    assert dataset.column("next.reward").sum() == pytest.approx(float(rewards.sum()))
    np.testing.assert_array_equal(dataset.column("observation.state")[0], first["states"][0])


def test_a_success_in_mid_episode_counts(tmp_path: Path) -> None:
    cfg = EnvConfig(
        env_type="batch",
        total_num_envs=2,
        max_episode_steps=6,
        max_steps_per_rollout_epoch=8,
        data_collection=DataCollectionConfig(enabled=True, save_dir=str(tmp_path), only_success=True),
    )
    with BatchEnv(cfg, num_envs=2) as env:  # succeeds at its second step, and goes on
        env.reset(0)
        env.chunk_step(torch.zeros(2, 8, env.action_dim))
        env.finish_collection()
    assert LeRobotDataset(tmp_path / "part_000000").num_episodes == 2


def test_collecting_needs_a_folder() -> None:
    with pytest.raises(ConfigError, match="save_dir"):
        EpisodeCollector(langpick_config(data_collection=DataCollectionConfig(enabled=True)), num_envs=1, first_env=0)


def test_a_data_set_says_how_its_images_were_rendered(tmp_path: Path) -> None:
    collection = DataCollectionConfig(enabled=True, save_dir=str(tmp_path))
    cfg = langpick_config(data_collection=collection, image_size=16, render_quality="full", auto_reset=False)
    assert writer_options(cfg).rendering == {"env_type": "langpick", "image_size": 16, "render_quality": "full"}
    assert writer_options(metaworld_config(data_collection=collection)).rendering is None
    with make_cartpole(tmp_path / "states") as env:
        env.reset(0)
        env.chunk_step(torch.zeros(3, 30, dtype=torch.int64))
        env.finish_collection()
    assert "rendering" not in json.loads((tmp_path / "states/part_000000/meta/info.json").read_text(encoding="utf-8"))
