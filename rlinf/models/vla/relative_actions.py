"""Actions that a model predicts relative to the state, as published pi-0 for LIBERO, RoboTwin and BEHAVIOR does."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F


def relative_mask(runs: Sequence[int]) -> torch.Tensor:
    """Return which numbers of an action are relative to the state, bool [M].

    Args:
        runs: ``actor.model.delta_actions``: how many are (positive), and how many are not (negative), in turns.
    """
    return torch.tensor([run > 0 for run in runs for _ in range(abs(run))], dtype=torch.bool)


def to_relative(actions: torch.Tensor, states: torch.Tensor, runs: Sequence[int]) -> torch.Tensor:
    """Return actions of the environment relative to the state that their chunk begins in.

    Args:
        actions: [B, T, A]; of chunks.
        states: [B, S]; in the same units.
        runs: See ``relative_mask``; of at most ``A`` numbers, the last relative one of at most ``S``.
    """
    return actions - _shift(actions, states, runs)


def to_absolute(actions: torch.Tensor, states: torch.Tensor, runs: Sequence[int]) -> torch.Tensor:
    """Return actions of the environment from those relative to the state; see ``to_relative``."""
    return actions + _shift(actions, states, runs)


def _shift(actions: torch.Tensor, states: torch.Tensor, runs: Sequence[int]) -> torch.Tensor:
    size = actions.shape[-1]
    mask = relative_mask(runs).to(actions.device)
    mask = F.pad(mask, (0, size - len(mask)))
    known = states.to(actions.device, actions.dtype)[:, :size]
    return (F.pad(known, (0, size - known.shape[-1])) * mask).unsqueeze(1)
