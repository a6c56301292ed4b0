"""Transitions, and the replay that off-policy algorithms draw them from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rlinf.data.embodied import Trajectory


@dataclass(frozen=True, slots=True)
class Transitions:
    """``N`` chunk steps, each with what came of it.

    Attributes:
        inputs: Tensors [N, ...]: what the policy saw.
        actions: float32 [N, C, A]; as the policy reports them.
        rewards: float32 [N]; sum of the executed actions' rewards, the one after i actions discounted by gamma^i.
        next_inputs: Tensors [N, ...]: what the policy saw next; where an episode ended, its last state.
        terminated: bool [N]; nothing follows. False where the episode was only cut off.
        lengths: int64 [N]; executed actions (1..C), by which what follows is discounted.
    """

    inputs: dict[str, torch.Tensor]
    actions: torch.Tensor
    rewards: torch.Tensor
    next_inputs: dict[str, torch.Tensor]
    terminated: torch.Tensor
    lengths: torch.Tensor

    @staticmethod
    def from_trajectory(trajectory: Trajectory, *, gamma: float) -> Transitions:
        """Return the chunk steps of a trajectory that were executed, the earlier before the later.

        Args:
            trajectory: Collected with ``next_inputs``.
            gamma: Discount per action.
        """
        assert trajectory.next_inputs is not None
        executed = trajectory.executed.flatten(0, 1)
        kept = executed.any(-1)
        powers = gamma ** torch.arange(executed.shape[-1], dtype=torch.float64)
        rewards = (trajectory.rewards.flatten(0, 1) * powers).sum(-1).float()
        inputs = {name: t.flatten(0, 1)[kept] for name, t in trajectory.forward_inputs.items()}
        return Transitions(
            actions=inputs.pop("action"),
            inputs={name: inputs[name] for name in trajectory.next_inputs},
            rewards=rewards[kept],
            next_inputs={name: t.flatten(0, 1)[kept] for name, t in trajectory.next_inputs.items()},
            terminated=trajectory.terminations.any(-1).flatten(0, 1)[kept],
            lengths=executed.sum(-1)[kept],
        )

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Transitions:
        """Return the transitions with ``function`` applied to every tensor."""
        return Transitions(
            inputs={name: function(tensor) for name, tensor in self.inputs.items()},
            actions=function(self.actions),
            rewards=function(self.rewards),
            next_inputs={name: function(tensor) for name, tensor in self.next_inputs.items()},
            terminated=function(self.terminated),
            lengths=function(self.lengths),
        )

    @staticmethod
    def concat(parts: list[Transitions]) -> Transitions:
        """Join transitions in the given order."""
        first = parts[0]
        return Transitions(
            inputs={name: torch.cat([part.inputs[name] for part in parts]) for name in first.inputs},
            actions=torch.cat([part.actions for part in parts]),
            rewards=torch.cat([part.rewards for part in parts]),
            next_inputs={name: torch.cat([part.next_inputs[name] for part in parts]) for name in first.next_inputs},
            terminated=torch.cat([part.terminated for part in parts]),
            lengths=torch.cat([part.lengths for part in parts]),
        )

    def rows(self, start: int, stop: int, device: torch.device) -> Transitions:
        """Return transitions ``start`` to ``stop`` (exclusive) on a device."""
        return self.map(lambda x: x[start:stop].to(device))

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors, in an order that depends on their names only."""
        named = [self.inputs[name] for name in sorted(self.inputs)]
        named += [self.next_inputs[name] for name in sorted(self.next_inputs)]
        return [*named, self.actions, self.rewards, self.terminated, self.lengths]

    def __len__(self) -> int:
        return len(self.rewards)


class ReplayBuffer:
    """The newest transitions of one rank, in host memory; drawn uniformly, with replacement.

    Memory for all of ``capacity`` is reserved at the first ``add`` and taken up as it fills.

    Args:
        capacity: Transitions kept.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.position = 0
        self.size = 0
        self._storage: Transitions | None = None

    def __len__(self) -> int:
        return self.size

    def add(self, transitions: Transitions) -> None:
        """Append transitions; the oldest make room."""
        start = len(transitions) - self.capacity
        if start > 0:
            transitions = transitions.map(lambda x: x[start:])
        count = len(transitions)
        if count == 0:
            return
        if self._storage is None:
            self._storage = transitions.map(lambda x: x.new_empty(self.capacity, *x.shape[1:]))
        rows = (self.position + torch.arange(count)) % self.capacity
        for stored, new in zip(self._storage.tensors(), transitions.tensors(), strict=True):
            stored[rows] = new
        self.position = (self.position + count) % self.capacity
        self.size = min(self.size + count, self.capacity)

    def sample(self, count: int, generator: torch.Generator) -> Transitions:
        """Draw ``count`` transitions; there must be one at least."""
        assert self._storage is not None
        rows = self._rows(torch.randint(self.size, (count,), generator=generator))
        return self._storage.map(lambda x: x[rows])

    def contents(self) -> Transitions | None:
        """Return all transitions, the oldest first; None while there are none."""
        if self._storage is None:
            return None
        rows = self._rows(torch.arange(self.size))
        return self._storage.map(lambda x: x[rows])

    def state_dict(self) -> dict[str, Any]:
        """Return the transitions, the oldest first, as plain tensors."""
        content = self.contents()
        if content is None:
            return {}
        return {name: getattr(content, name) for name in Transitions.__dataclass_fields__}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold what ``state_dict`` returned, or the newest part of it that has room, and nothing else."""
        self.position, self.size, self._storage = 0, 0, None
        if state:
            self.add(Transitions(**state))

    def _rows(self, ages: torch.Tensor) -> torch.Tensor:
        """Return where transitions lie, counted from the oldest: a draw then means the same after a reload."""
        return (self.position - self.size + ages) % self.capacity
