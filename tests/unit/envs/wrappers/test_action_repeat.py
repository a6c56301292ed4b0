"""``action_repeat``: repeated actions are reported as one."""

import torch

from rlinf.config.schema.env import (
    ActionRepeatConfig,
    PixelReachEnvConfig,
)
from rlinf.data.messages.embodied import ChunkStep
from rlinf.envs.wrappers.action_repeat import ActionRepeat


def test_repeated_actions_are_reported_as_one() -> None:
    cfg = PixelReachEnvConfig(
        env_type="pixel_reach", total_num_envs=1, max_episode_steps=9, max_steps_per_rollout_epoch=9
    )
    wrapper = ActionRepeat(ActionRepeatConfig(name="action_repeat", num_repeats=3), env=cfg, num_envs=1)
    assert wrapper.actions(torch.tensor([[[1.0], [2.0]]])).flatten().tolist() == [1, 1, 1, 2, 2, 2]
    executed = torch.tensor([[True] * 5 + [False], [True] * 3 + [False] * 3])
    ends = torch.zeros(2, 6, dtype=torch.bool)
    ends[0, 4] = ends[1, 2] = True
    step = wrapper.step_result(
        ChunkStep(
            obs={},
            rewards=torch.tensor([[1.0, 2, 3, 4, 5, 0], [1, 1, 1, 0, 0, 0]]),
            terminations=ends & executed[:, :1],
            truncations=torch.zeros_like(ends),
            executed=executed,
            final_obs={},
            final_ids=torch.tensor([0]),
            episodes=({"episode_len": 5.0, "return": 15.0, "reward": 3.0, "success_once": 1.0},),
        )
    )
    assert step.rewards.tolist() == [[6, 9], [3, 0]]
    assert step.executed.tolist() == [[True, True], [True, False]]
    assert step.terminations.tolist() == [[False, True], [True, False]]
    assert step.episodes[0] == {"episode_len": 2.0, "return": 15.0, "reward": 7.5, "success_once": 1.0}
