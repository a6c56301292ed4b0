"""Stands for ManiSkill's ``BaseEnv`` with several environments: its signatures, its seeding, and what it leaks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch


class FakeGenerators:
    """A NumPy generator for each row, as ManiSkill's ``BatchedRNG``."""

    def __init__(self, rngs: list[np.random.RandomState]) -> None:
        self.rngs = rngs

    def __getitem__(self, row: int) -> np.random.RandomState:
        return self.rngs[row]

    def __setitem__(self, rows: Any, values: list[np.random.RandomState]) -> None:
        for row, value in zip(rows, values, strict=True):
            self.rngs[row] = value


class FakePose:
    def __init__(self, raw_pose: torch.Tensor) -> None:
        self.raw_pose = raw_pose


class FakeController:
    """Moves a target by the actions; a reset puts the targets of all rows of the mask to where the arms are."""

    def __init__(self, env: FakeManiSkill) -> None:
        self._env = env
        self._start_qpos: torch.Tensor | None = None
        self._target_qpos = env.qpos.clone()
        self._target_pose = FakePose(env.qpos.clone())

    def reset(self) -> None:
        mask = self._env.scene._reset_mask
        self._target_qpos[mask] = self._env.qpos[mask].clone()
        self._target_pose.raw_pose[mask] = self._env.qpos[mask].clone()

    def set_action(self, action: torch.Tensor) -> None:
        self._target_qpos = self._target_qpos + 0.1 * action
        self._target_pose = FakePose(self._target_pose.raw_pose + 0.2 * action)


class FakeManiSkill:
    """An arm that goes half of the way to its target in each step; a goal, a weight and some noise are sampled.

    Success is to pass 0.8 in the first coordinate.
    """

    def __init__(self, num_envs: int, *, has_success: bool = True, two_robots: bool = False) -> None:
        self.num_envs, self.device = num_envs, torch.device("cpu")
        self.has_success = has_success
        self.single_action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.scene = SimpleNamespace(_reset_mask=torch.ones(num_envs, dtype=torch.bool))
        self.qpos, self.goal = torch.zeros(num_envs, 2), torch.zeros(num_envs, 2)
        self.weight = torch.zeros(num_envs, dtype=torch.float64)
        self.legacy = torch.zeros(num_envs)
        self._elapsed_steps = torch.zeros(num_envs, dtype=torch.int32)
        controller: Any = SimpleNamespace(controllers={"arm": FakeController(self)}, reset=None)
        self.arm = controller.controllers["arm"]
        controller.reset = self.arm.reset
        self.agent = SimpleNamespace(controller={"left": controller} if two_robots else controller)
        self.num_initializations = 0
        self.last_action = torch.zeros(num_envs, 2)
        self.is_closed = False
        self.reset(seed=[2022 + row for row in range(num_envs)], options={"reconfigure": True})

    def reset(self, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        options = options or {}
        env_idx = options["env_idx"] if "env_idx" in options else torch.arange(self.num_envs)
        self._episode_seed = np.array(seed, np.int64)
        assert len(self._episode_seed) == self.num_envs
        self._batched_episode_rng = FakeGenerators([np.random.RandomState(number) for number in self._episode_seed])
        self._episode_rng = self._batched_episode_rng[0]
        self.scene._reset_mask = torch.zeros(self.num_envs, dtype=torch.bool)
        self.scene._reset_mask[env_idx] = True
        self._elapsed_steps[env_idx] = 0
        with torch.random.fork_rng():
            torch.manual_seed(int(self._episode_seed[0]))
            self._initialize_episode(env_idx, options)
        self.scene._reset_mask = torch.ones(self.num_envs, dtype=torch.bool)
        self.arm.reset()
        return self._observe(), {"reconfigure": False}

    def _initialize_episode(self, env_idx: torch.Tensor, options: dict[str, Any]) -> None:
        self.num_initializations += 1
        mask, count = self.scene._reset_mask, len(env_idx)
        assert mask.nonzero().flatten().tolist() == env_idx.tolist()
        self.qpos[mask] = torch.rand(count, 2) - 0.5
        self.goal[mask] = torch.rand(count, 2)
        rngs = self._batched_episode_rng
        self.weight[mask] = torch.tensor([rngs[row].uniform() for row in env_idx.tolist()], dtype=torch.float64)
        self.legacy[mask] = torch.tensor(self._episode_rng.uniform(size=count), dtype=torch.float32)

    def step(self, action: np.ndarray[Any, Any]) -> tuple[Any, ...]:
        given = torch.as_tensor(action)
        assert given.shape == (self.num_envs, 2)
        self.last_action = given
        self.arm.set_action(given)
        self.qpos += 0.5 * (self.arm._target_qpos + 0.01 * self.arm._target_pose.raw_pose - self.qpos)
        self.weight += torch.tensor([rng.uniform() for rng in self._batched_episode_rng.rngs])
        self._elapsed_steps += 1
        success = self.qpos[:, 0] > 0.8
        info = {"success": success, "elapsed_steps": self._elapsed_steps} if self.has_success else {}
        nothing = torch.zeros(self.num_envs, dtype=torch.bool)
        return self._observe(), self.qpos.sum(1), success.clone() if self.has_success else nothing, nothing, info

    def _observe(self) -> Any:
        images = (self.qpos[:, :1, None, None] * 100 + 100).to(torch.uint8).expand(-1, 2, 3, 3)
        return {
            "agent": {"qpos": self.qpos, "controller": {}},
            "extra": {"goal": self.goal, "weight": self.weight, "legacy": self.legacy, "far": self.goal[:, 0] > 0.5},
            "sensor_data": {"base": {"rgb": images}, "hand": {"rgb": images + 1}},
        }

    def get_language_instruction(self) -> list[str]:
        return [f"go to {goal:.6f}" for goal in self.goal[:, 0].tolist()]

    def get_objects(self) -> torch.Tensor:
        return self.goal

    def render(self) -> torch.Tensor:
        return torch.arange(self.num_envs, dtype=torch.uint8)[:, None, None, None].expand(-1, 32, 48, 3)

    def close(self) -> None:
        self.is_closed = True
