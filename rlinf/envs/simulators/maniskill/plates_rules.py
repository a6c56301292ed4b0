"""When an object is on the plate, and how that is rewarded: rules of the published ``PutOnPlateInScene25``."""

from __future__ import annotations

import torch

_BEYOND_EDGE = 0.01
"""How far outside of the plate's edge the object's centre may be, in meters."""
_ABOVE = 0.05
"""How high above the plate the object may be, in meters."""
_LEAST_FORCE = 0.03
"""Of the contact between both, in Newton."""
_LONG_HOLD = 5
"""Steps in a row for which the object is held, until that is rewarded."""
_HOLD_REWARD = 0.1


def is_on_plate(
    offsets: torch.Tensor, *, plate_sizes: torch.Tensor, half_heights: torch.Tensor, forces: torch.Tensor
) -> torch.Tensor:
    """Return whether objects lie on their plates, held or not: bool [B].

    Args:
        offsets: From the plates' centres to the objects': float [B, 3], in meters.
        plate_sizes: Half sizes of the boxes around the plates: float [B, 3].
        half_heights: Half heights of the objects: float [B].
        forces: Contact forces between both, in Newton: float [B].
    """
    is_within = offsets[:, :2].norm(dim=-1) <= plate_sizes.amax(-1) + _BEYOND_EDGE
    gaps = offsets[:, 2] - plate_sizes[:, 2] - half_heights
    is_on: torch.Tensor = is_within & (offsets[:, 2] > 0) & (gaps <= _ABOVE) & (forces >= _LEAST_FORCE)
    return is_on


class HoldHistory:
    """Whether objects have been held in their episodes, and for how long.

    Args:
        num_envs: ``B``.
        device: Where the tensors are.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self._steps = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._counts = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.was_held = torch.zeros(num_envs, dtype=torch.bool, device=device)
        """bool [B]: held in some step of the episode."""
        self.was_held_long = torch.zeros(num_envs, dtype=torch.bool, device=device)
        """bool [B]: held in five steps in a row."""

    def reset(self, env_ids: torch.Tensor) -> None:
        """Begin episodes in some environments, int64 [F]."""
        for tensor in (self._steps, self._counts, self.was_held, self.was_held_long):
            tensor[env_ids] = 0

    def update(self, is_held: torch.Tensor, steps: torch.Tensor) -> None:
        """Count a step where one was taken since the last time.

        Args:
            is_held: bool [B].
            steps: Steps of the present episodes: int [B].
        """
        is_new = steps > self._steps
        self._steps = torch.where(is_new, steps.to(self._steps), self._steps)
        self._counts = torch.where(is_new, torch.where(is_held, self._counts + 1, 0), self._counts)
        self.was_held |= is_new & is_held
        self.was_held_long |= self._counts >= _LONG_HOLD

    def reward(self, success: torch.Tensor) -> torch.Tensor:
        """Return what the present states are worth, float32 [B]: 0.1 each for both holds, and 1 for success after one.

        Args:
            success: bool [B].
        """
        return _HOLD_REWARD * (self.was_held.float() + self.was_held_long.float()) + (success & self.was_held).float()
