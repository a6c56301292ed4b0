"""What the numbers of an action mean to those who recorded data, turned into what simulators expect."""

from __future__ import annotations

import torch


def libero_from_rlds(actions: torch.Tensor) -> torch.Tensor:
    """Return actions for robosuite, from those of OpenVLA's data sets.

    Args:
        actions: [..., 7]; the last number is 0 for a closed gripper and 1 for an open one.

    Returns:
        A copy, whose last number is 1 for closed and -1 for open, 0 in the very middle: ``-sign(2 g - 1)``.
    """
    gripper = -torch.sign(2 * actions[..., -1:] - 1)
    return torch.cat([actions[..., :-1], gripper], dim=-1)
