"""The wrapper ``frame_stack``."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import torch

from rlinf.config.schema.env import FrameStackConfig
from rlinf.data.messages.embodied import ChunkStep, Observation
from rlinf.envs.wrappers.base import EnvWrapper
from rlinf.errors import ConfigError


class FrameStack(EnvWrapper):
    """Shows the newest observations side by side, the oldest first: images [B, H, W, 3 K], states [B, S K].

    Observations are those that the policy acts on: one for each chunk of actions. An episode begins with ``K`` times
    its first one.
    """

    cfg: FrameStackConfig
    state_names = ("frames",)
    frames: dict[str, torch.Tensor] | None = None
    """Tensors [K, B, ...]; None before the first reset."""

    def space(self, space: gymnasium.spaces.Dict) -> gymnasium.spaces.Dict:
        """See ``EnvWrapper``.

        Raises:
            ConfigError: The environment does not show the keys.
        """
        missing = [key for key in self.cfg.keys if not isinstance(space.spaces.get(key), gymnasium.spaces.Box)]
        if missing:
            raise ConfigError(
                f"env.*.wrappers: frame_stack: keys: received {missing}; env_type={self.env.env_type} shows arrays "
                f"under {', '.join(sorted(space.spaces))}. Name some of these."
            )
        return gymnasium.spaces.Dict(
            {key: self._stacked(value) if key in self.cfg.keys else value for key, value in space.spaces.items()}
        )

    def reset(self, obs: Observation, rows: torch.Tensor) -> Observation:
        """See ``EnvWrapper``."""
        if self.frames is None:
            shape = (self.cfg.num_frames, self.num_envs)
            self.frames = {key: obs[key].new_zeros(*shape, *obs[key].shape[1:]) for key in self.cfg.keys}
        for key, frames in self.frames.items():
            frames[:, rows] = obs[key]
        return self._show(obs, rows)

    def step_result(self, step: ChunkStep) -> ChunkStep:
        """See ``EnvWrapper``."""
        assert self.frames is not None
        moved = step.executed.any(-1).nonzero().flatten()
        closing = step.obs
        if step.final_ids is not None and step.final_obs is not None:
            closing = {key: step.obs[key].index_copy(0, step.final_ids, step.final_obs[key]) for key in self.frames}
        before = {key: frames.clone() for key, frames in self.frames.items()} if self.is_within_chunk else {}
        for key, frames in self.frames.items():
            frames[:-1, moved] = frames[1:, moved].clone()
            frames[-1, moved] = closing[key][moved]
        final_obs = step.final_obs
        if step.final_ids is not None and final_obs is not None:
            final_obs = self._show(final_obs, step.final_ids)
            if self.env.auto_reset:
                self.reset({key: step.obs[key][step.final_ids] for key in self.frames}, step.final_ids)
        shown = self._show(step.obs, torch.arange(self.num_envs))
        goes_on = torch.ones(self.num_envs, dtype=torch.bool)
        if step.final_ids is not None:
            goes_on[step.final_ids] = False
        for key, frames in before.items():
            # What lies within a chunk is shown to the operator alone.
            self.frames[key][:, goes_on] = frames[:, goes_on]
        return replace(step, obs=shown, final_obs=final_obs)

    def _show(self, obs: Observation, rows: torch.Tensor) -> Observation:
        assert self.frames is not None
        return obs | {key: torch.cat(list(frames[:, rows]), -1) for key, frames in self.frames.items()}

    def _stacked(self, box: gymnasium.Space[object]) -> gymnasium.spaces.Box:
        assert isinstance(box, gymnasium.spaces.Box)
        low, high = (np.concatenate([bound] * self.cfg.num_frames, -1) for bound in (box.low, box.high))
        return gymnasium.spaces.Box(low, high, dtype=box.dtype.type)
