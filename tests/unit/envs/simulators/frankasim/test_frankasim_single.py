"""The simulated arm: its workspace, and grasping a cube."""

import torch
from frankasim_configs import frankasim_config, play

from rlinf.envs import make_vector_env


def test_grasping_and_lifting_the_cube_is_success() -> None:
    cfg = frankasim_config(max_episode_steps=50, max_steps_per_rollout_epoch=50, auto_reset=False)
    with make_vector_env(cfg, num_envs=4) as env:
        lifted = play(env, closes=True)
        left = play(env, closes=False)
    assert [episode["success_once"] for episode in lifted] == [1.0] * 4
    assert all(episode["episode_len"] < 50 for episode in lifted)
    assert [episode["success_once"] for episode in left] == [0.0] * 4


def test_the_hand_stays_in_its_workspace() -> None:
    cfg = frankasim_config(max_episode_steps=60, max_steps_per_rollout_epoch=60, group_size=1, total_num_envs=2)
    with make_vector_env(cfg, num_envs=2) as env:
        env.reset(0)
        directions = torch.tensor([[1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, 0.0, 1.0]])
        states = env.chunk_step(directions[:, None].expand(2, 50, 4)).obs["states"]
    low, high = torch.tensor([0.3, -0.25, 0.0]) - 0.03, torch.tensor([0.7, 0.25, 0.4]) + 0.03
    assert ((states[:, :3] > low) & (states[:, :3] < high)).all(), states[:, :3]
