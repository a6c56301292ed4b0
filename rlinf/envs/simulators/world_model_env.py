"""``env_type: world_model``: episodes that a learned model imagines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlinf.config.schema.world_models import WorldModelEnvConfig, world_models
from rlinf.data.datasets.lerobot.dataset import LeRobotDataset
from rlinf.data.messages.embodied import FrameWindow
from rlinf.envs.base import StepResult, VectorEnv
from rlinf.envs.raw_chunk import BoolArray, ChunkRequest, Frame, IntArray, RawChunk, RawObservation
from rlinf.errors import ConfigError
from rlinf.utils.seeding import derive_seed

_IMAGES = "observation.images.main"
_STATES = "observation.state"
_VIDEO_SIZE = 192
"""Smallest height of videos in pixels: images are enlarged in them by whole numbers."""


class WorldModelEnv(VectorEnv):
    """``main_images`` uint8 [B, H, W, 3], ``states`` float32 [B, S] where the model has them, ``task_descriptions``.

    An episode begins with a recorded frame. A chunk of actions is one call of the model, whose randomness is a function
    of the episode's reset-state id and step: the same id and actions lead to the same dream. The recorded frame brings
    its sentence, by which the model judges all frames of the episode. Success is a reward of 1, where a frame counts as
    solved and the one before it did not: an episode that begins in a solved frame is rewarded for none of it.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: The model is missing, does not fit the data set, or cannot judge one of its tasks.
        DatasetError: The data set is missing or damaged.
    """

    cfg: WorldModelEnvConfig

    def __init__(self, cfg: WorldModelEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        self.device = torch.accelerator.current_accelerator() or torch.device("cpu")
        model = world_models.get(cfg.world_model_type).load(Path(cfg.model_path).expanduser())
        self.model = model.to(self.device).eval().requires_grad_(False)
        self._recorded = LeRobotDataset(Path(cfg.data_path).expanduser())
        self._check_recorded()
        model.check_tasks(self._recorded.tasks)
        height, width = model.image_size
        longest = max(len(task) for task in self._recorded.tasks)
        shown = {
            "main_images": spaces.Box(0, 255, (height, width, 3), np.uint8),
            "task_descriptions": spaces.Text(max_length=max(longest, 1)),
        }
        if model.state_dim:
            shown["states"] = spaces.Box(-np.inf, np.inf, (model.state_dim,), np.float32)
        self.observation_space = spaces.Dict(shown)
        self.action_space = spaces.Box(model.action_low.cpu().numpy(), model.action_high.cpu().numpy())
        self._images = torch.zeros(num_envs, model.num_frames, height, width, 3, dtype=torch.uint8)
        self._states = torch.zeros(num_envs, model.num_frames, model.state_dim)
        self._tasks = [""] * num_envs
        self._seeds = [0] * num_envs
        self._solved = np.zeros(num_envs, dtype=np.bool_)
        self._column = 0
        self._imagined: tuple[FrameWindow, torch.Tensor] | None = None

    def reset_idx(self, env_ids: IntArray, seeds: IntArray) -> RawObservation:
        """See ``VectorEnv``: with ordered ids, episode 0 of the data set comes first."""
        for row, seed in zip(env_ids.tolist(), seeds.tolist(), strict=True):
            record = self._recorded.episodes[seed % self._recorded.num_episodes]
            first = record.end - record.length
            last = first if self.cfg.start_frames == "first" else first + derive_seed(seed, "frame") % record.length
            steps = np.maximum(np.arange(last + 1 - self.model.num_frames, last + 1), first)
            names = [_IMAGES, *([_STATES] if self.model.state_dim else [])]
            columns = self._recorded.frames(steps, names)
            self._images[row] = torch.from_numpy(columns[_IMAGES])
            if self.model.state_dim:
                self._states[row] = torch.from_numpy(columns[_STATES]).float()
            self._tasks[row] = self._recorded.tasks_of(steps[-1:])[0]
            self._seeds[row] = seed
        shown = FrameWindow(self._images[env_ids, -1:], self._states[env_ids, -1:]).to(self.device)
        scores = self.model.success(shown, [self._tasks[row] for row in env_ids])
        self._solved[env_ids] = self._is_solved(scores[:, 0])
        return self._observe(env_ids)

    def step(self, actions: Any, active: BoolArray) -> StepResult:
        """See ``VectorEnv``; one step of the chunk that was imagined."""
        assert self._imagined is not None
        frames, scores = self._imagined
        rows = torch.from_numpy(active)
        for kept, new in ((self._images, frames.images), (self._states, frames.states)):
            kept[rows] = torch.cat([kept[rows, 1:], new[rows, self._column, None]], 1)
        solved = self._is_solved(scores[:, self._column])
        success = solved & ~self._solved
        self._solved = np.where(active, solved, self._solved)
        self._column += 1
        return StepResult(
            obs=self._observe(np.arange(self.num_envs)),
            rewards=success.astype(np.float32),
            terminations=success,
            truncations=np.zeros_like(success),
            infos={"success": success},
        )

    def render_idx(self, env_ids: list[int]) -> list[Frame]:
        """See ``VectorEnv``: what is imagined."""
        scale = -(-_VIDEO_SIZE // self._images.shape[2])
        images = self._images[env_ids, -1].numpy().repeat(scale, axis=1).repeat(scale, axis=2)
        return list(images)

    def _recv_chunk(self, request: ChunkRequest) -> RawChunk:
        self._imagined, self._column = self._call("while it imagined a chunk", lambda: self._imagine(request)), 0
        chunk = super()._recv_chunk(request)
        self._imagined = None
        return chunk

    def _imagine(self, request: ChunkRequest) -> tuple[FrameWindow, torch.Tensor]:
        """Return the frames that follow a chunk of actions, and the probability of success in each, on the host."""
        past = FrameWindow(self._images, self._states).to(self.device)
        steps = request.steps[:, None] + np.arange(request.shape[1])
        seeds = [
            [derive_seed(seed, "dream", int(step)) for step in row]
            for seed, row in zip(self._seeds, steps, strict=True)
        ]
        actions = torch.from_numpy(request.actions).float().to(self.device)
        frames = self.model.imagine(past, actions, torch.tensor(seeds))
        return frames.to("cpu"), self.model.success(frames, self._tasks).cpu()

    def _is_solved(self, scores: torch.Tensor) -> BoolArray:
        """Return whether the task counts as solved in frames that the model has judged."""
        found: BoolArray = (scores >= self.cfg.success_threshold).cpu().numpy()
        return found

    def _observe(self, rows: IntArray) -> RawObservation:
        obs: RawObservation = {
            "main_images": self._images[rows, -1].numpy(),
            "task_descriptions": [self._tasks[row] for row in rows],
        }
        if self.model.state_dim:
            obs["states"] = self._states[rows, -1].numpy()
        return obs

    def _check_recorded(self) -> None:
        """Raise ``ConfigError`` where the data set does not show what the model looks at."""
        height, width = self.model.image_size
        expected = {_IMAGES: (height, width, 3)} | ({_STATES: (self.model.state_dim,)} if self.model.state_dim else {})
        for name, shape in expected.items():
            feature = self._recorded.features.get(name)
            found = "nothing" if feature is None else list(feature.shape)
            if feature is None or tuple(feature.shape) != shape:
                raise ConfigError(
                    f"env.*.data_path: '{self.cfg.data_path}' has {found} as '{name}'; the world model of "
                    f"'{self.cfg.model_path}' looks at {list(shape)}. Name the data set that it was trained on, or one "
                    "of the same cameras."
                )

    def _offload(self) -> None:
        """See ``VectorEnv``."""
        self.model.to("cpu")

    def _onload(self) -> None:
        """See ``VectorEnv``."""
        self.model.to(self.device)
