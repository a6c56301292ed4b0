"""Stands for ManiSkill's ``BaseEnv`` with several environments: its signatures, its seeding, and what it leaks."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass
class FakeStructure:
    """What ``obs_mode`` says, as ManiSkill's ``ObservationModeStruct``."""

    state_dict: bool = False


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


class FakeScene:
    """Which rows begin, and the contacts of the last step, which a reset leaves as they are."""

    def __init__(self, num_envs: int) -> None:
        self._reset_mask = torch.ones(num_envs, dtype=torch.bool)
        self.impulses = torch.zeros(num_envs, 3)

    def get_pairwise_contact_impulses(self, first: str, second: str) -> torch.Tensor:
        return self.impulses


class FakeManiSkill:
    """An arm that goes half of the way to its target in each step; a goal, a weight and some noise are sampled.

    Success is to pass 0.8 in the first coordinate.
    """

    def __init__(self, num_envs: int, *, has_success: bool = True, two_robots: bool = False) -> None:
        self.num_envs, self.device = num_envs, torch.device("cpu")
        self.has_success = has_success
        self.single_action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.scene = FakeScene(num_envs)
        self._obs_mode, self.obs_mode_struct = "rgb", FakeStructure()
        self.num_looks = 0
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
        info = self.get_info()
        return self.get_obs(info), {"reconfigure": False, **info}

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
        self.scene.impulses = (self.qpos[:, :1] > 0.3).float().expand(-1, 3)
        info = self.get_info()
        success = self.qpos[:, 0] > 0.8
        nothing = torch.zeros(self.num_envs, dtype=torch.bool)
        return (
            self.get_obs(info, unflattened=True),
            self.qpos.sum(1),
            success.clone() if self.has_success else nothing,
            nothing,
            info,
        )

    def get_info(self) -> dict[str, torch.Tensor]:
        touches = self.scene.get_pairwise_contact_impulses("hand", "goal")[:, 0] > 0
        info = {"touches": touches, "elapsed_steps": self._elapsed_steps}
        return {"success": self.qpos[:, 0] > 0.8, **info} if self.has_success else info

    def get_obs(self, info: dict[str, torch.Tensor] | None = None, unflattened: bool = False) -> Any:
        known = self.get_info() if info is None else info
        return {**self._get_obs_state_dict(known), "sensor_data": self._get_obs_sensor_data()}

    def _get_obs_state_dict(self, info: dict[str, torch.Tensor]) -> Any:
        return {"agent": self._get_obs_agent(), "extra": self._get_obs_extra(info)}

    def _get_obs_agent(self) -> Any:
        return {"qpos": self.qpos, "controller": {}}

    def _get_obs_extra(self, info: dict[str, torch.Tensor]) -> Any:
        far = self.goal[:, 0] > 0.5
        extra = {"goal": self.goal, "weight": self.weight, "legacy": self.legacy, "far": far}
        if "state" in self._obs_mode:
            extra["touches"] = info["touches"]
        return extra

    def _get_obs_sensor_data(self) -> Any:
        self.num_looks += 1
        images = (self.qpos[:, :1, None, None] * 100 + 100).to(torch.uint8).expand(-1, 2, 3, 3)
        return {"base": {"rgb": images}, "hand": {"rgb": images + 1}}

    def get_language_instruction(self) -> list[str]:
        return [f"go to {goal:.6f}" for goal in self.goal[:, 0].tolist()]

    def get_objects(self) -> torch.Tensor:
        return self.goal

    def render(self) -> torch.Tensor:
        return torch.arange(self.num_envs, dtype=torch.uint8)[:, None, None, None].expand(-1, 32, 48, 3)

    def close(self) -> None:
        self.is_closed = True
