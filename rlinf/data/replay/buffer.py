"""Transitions, and the replay that off-policy algorithms sample them from."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from rlinf.data.messages.batch_record import BatchRecord
from rlinf.data.messages.embodied import Trajectory
from rlinf.data.replay.segments import (
    SEGMENT_BYTES,
    Manifest,
    Rows,
    SegmentFolder,
    find_folders,
    read_numbered,
    row_bytes,
)
from rlinf.errors import ConfigError
from rlinf.utils.files import commit_folder


@dataclass(frozen=True, slots=True)
class Transitions(BatchRecord):
    """``N`` transitions, a chunk of actions each.

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
        # What belongs to actions that were not executed is of no transition.
        rewards = torch.where(executed, trajectory.rewards.flatten(0, 1), 0.0)
        inputs = {name: t.flatten(0, 1)[kept] for name, t in trajectory.forward_inputs.items()}
        return Transitions(
            actions=inputs.pop("action"),
            inputs={name: inputs[name] for name in trajectory.next_inputs},
            rewards=(rewards * powers).sum(-1).float()[kept],
            next_inputs={name: t.flatten(0, 1)[kept] for name, t in trajectory.next_inputs.items()},
            terminated=(trajectory.terminations & trajectory.executed).any(-1).flatten(0, 1)[kept],
            lengths=executed.sum(-1)[kept],
        )

    def tensors(self) -> list[torch.Tensor]:
        """Return all tensors, in an order that depends on their names only."""
        named = [self.inputs[name] for name in sorted(self.inputs)]
        named += [self.next_inputs[name] for name in sorted(self.next_inputs)]
        return [*named, self.actions, self.rewards, self.terminated, self.lengths]

    def named(self) -> Rows:
        """Return all tensors by name: ``actions``, ``inputs.<key>``, ..."""
        rows: Rows = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, dict):
                rows |= {f"{field.name}.{key}": tensor for key, tensor in value.items()}
            else:
                rows[field.name] = value
        return rows

    @staticmethod
    def from_named(rows: Rows) -> Transitions:
        """Return the transitions that ``named`` returned."""
        values: dict[str, Any] = {"inputs": {}, "next_inputs": {}}
        for name, tensor in rows.items():
            field, _, key = name.partition(".")
            if key:
                values[field][key] = tensor
            else:
                values[field] = tensor
        return Transitions(**values)

    @property
    def executed(self) -> torch.Tensor:
        """Which actions of each chunk were executed, bool [N, C]."""
        return torch.arange(self.actions.shape[1], device=self.lengths.device) < self.lengths[:, None]

    def __len__(self) -> int:
        return len(self.rewards)


class ReplayBuffer:
    """The newest transitions of one rank; sampled uniformly, with replacement.

    Transitions are kept in host memory; what exceeds ``memory_bytes``, the oldest of them, in files that are mapped and
    sampled from like memory. What is sampled does not depend on where it lies. Memory is reserved at the first ``add``
    and taken up as it fills.

    Args:
        capacity: Transitions kept.
        memory_bytes: Host memory for them; None has no bound.
        folder: Where transitions are spilled to, as segments (``rlinf.data.replay.segments``); it also spares ``save``
            writing a whole segment twice. A saved replay that lies there is removed.
        keep_all: Let transitions that make room stay in ``folder``, and in what ``save`` writes; ``flush`` makes
            ``folder`` a saved replay.
        segment_bytes: Size that segments aim at.

    Raises:
        ConfigError: ``memory_bytes`` or ``keep_all`` without ``folder``.
    """

    def __init__(
        self,
        capacity: int,
        *,
        memory_bytes: int | None = None,
        folder: Path | None = None,
        keep_all: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        if folder is None and (memory_bytes is not None or keep_all):
            raise ConfigError("A replay with memory_bytes or keep_all needs a folder: set ReplayBuffer(folder=...).")
        self.capacity = capacity
        self.memory_bytes = memory_bytes
        self.folder = folder
        self.keep_all = keep_all
        self.segment_bytes = segment_bytes
        # Transitions have numbers for life; those up to here, exclusive, have been added.
        self.end = 0
        self.size = 0
        self._memory: Rows = {}
        self._memory_rows = 0
        self._in_memory = 0
        self._segment_rows = 1
        self._disk: SegmentFolder | None = None

    def __len__(self) -> int:
        return self.size

    @property
    def first(self) -> int:
        """Number of the oldest transition held."""
        return self.end - self.size

    @property
    def num_spilled(self) -> int:
        """Transitions held that lie in files alone."""
        return max(self.size - self._in_memory, 0)

    def add(self, transitions: Transitions) -> None:
        """Append transitions; the oldest make room."""
        self._add(transitions.named())

    def sample(self, count: int, generator: torch.Generator) -> Transitions:
        """Sample ``count`` transitions; there must be one at least."""
        # Counted from the oldest, so that an index means the same wherever they lie and after a reload.
        ages = torch.randint(self.size, (count,), generator=generator)
        return Transitions.from_named(self._gather(self.first + ages))

    def contents(self) -> Transitions | None:
        """Return all transitions, the oldest first; None while there are none."""
        if self.size == 0:
            return None
        return Transitions.from_named(self._gather(torch.arange(self.first, self.end)))

    def save(self, folder: Path) -> None:
        """Write all transitions to a new folder, or link the segments of ``self.folder`` into it.

        Args:
            folder: Must not exist.

        Raises:
            FileExistsError: It exists.
        """
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
        saved = SegmentFolder(temporary, self._segment_rows)
        for index in self._indices(self._oldest):
            if self._disk is None or (index + 1) * self._segment_rows > self.end:
                self._write(saved, index)
                continue
            if not self._disk.has_whole(index):
                self._write(self._disk, index)
            saved.adopt(self._disk.path, self._disk.segments[index])
        saved.commit(self._oldest, self.end, self._memory)
        commit_folder(temporary, folder)

    def load(self, path: Path, *, rank: int = 0, num_ranks: int = 1) -> None:
        """Hold what was saved, or the newest part of it that has room, and nothing else.

        Of as many parts as there are ranks each rank takes its own, and goes on as the one that saved it; otherwise all
        transitions are dealt out.

        Args:
            path: Written by ``save``, or a folder of such folders ``rank_<n>``.
            rank: Whose share to take.
            num_ranks: Number of shares.

        Raises:
            DatasetError: There is no saved replay, or it is damaged.
        """
        self.clear()
        parts = find_folders(path)
        if len(parts) != num_ranks:
            for rows, numbers in (pair for part in parts for pair in read_numbered(part)):
                mine = numbers % num_ranks == rank
                self._add({name: tensor[mine] for name, tensor in rows.items()})
            return
        self.end = Manifest.read(parts[rank]).first
        for rows, _ in read_numbered(parts[rank]):
            if not self._memory:
                self._reserve(rows)
                self._adopt(parts[rank])
            self._add(rows)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        rank: int = 0,
        num_ranks: int = 1,
        memory_bytes: int | None = None,
        folder: Path | None = None,
    ) -> ReplayBuffer:
        """Return a replay that holds a rank's share of what was saved; see ``load`` and the class."""
        manifests = [Manifest.read(part) for part in find_folders(path)]
        total = sum(manifest.end - manifest.first for manifest in manifests)
        replay = cls(max(total, 1), memory_bytes=memory_bytes, folder=folder)
        replay.load(path, rank=rank, num_ranks=num_ranks)
        return replay

    def flush(self) -> None:
        """Make ``folder`` a saved replay of every transition that was ever added; for ``keep_all``."""
        if not self._memory or self._disk is None:
            return
        for index in self._indices(self.end - self._in_memory):
            if not self._disk.has_whole(index):
                self._write(self._disk, index)
        self._disk.commit(self._oldest, self.end, self._memory)

    def clear(self) -> None:
        """Hold nothing."""
        if self._disk is not None:
            self._disk.clear()
        self.end = self.size = self._memory_rows = self._in_memory = 0
        self._memory, self._disk, self._segment_rows = {}, None, 1

    def close(self) -> None:
        """Leave in ``folder`` a saved replay, with ``keep_all``, or nothing."""
        if self.keep_all:
            self.flush()
        else:
            self.clear()

    @property
    def _oldest(self) -> int:
        """Number of the oldest transition that is kept anywhere."""
        if not self.keep_all or self._disk is None or not self._disk.segments:
            return self.first
        return min(self.first, self._disk.segments[min(self._disk.segments)].start)

    @property
    def _spills(self) -> bool:
        return self._disk is not None and (self.keep_all or self._memory_rows < self.capacity)

    def _reserve(self, rows: Rows) -> None:
        size = row_bytes(rows)
        bound = self.capacity if self.memory_bytes is None else max(self.memory_bytes // size, 1)
        self._memory_rows = min(self.capacity, bound)
        self._memory = {name: tensor.new_empty(self._memory_rows, *tensor.shape[1:]) for name, tensor in rows.items()}
        # At most about half: a segment is written from memory, before the transitions that fill another overwrite it.
        self._segment_rows = max(min(self.segment_bytes // size, (self._memory_rows + 1) // 2), 1)
        if self.folder is not None:
            self._disk = SegmentFolder(self.folder, self._segment_rows)
            self._disk.clear()

    def _adopt(self, folder: Path) -> None:
        manifest = Manifest.read(folder)
        if self._disk is None or manifest.segment_rows != self._segment_rows:
            return
        for segment in manifest.segments:
            if segment.end % self._segment_rows == 0:
                self._disk.adopt(folder, segment)

    def _add(self, rows: Rows) -> None:
        count = len(rows["rewards"])
        if count == 0:
            return
        if not self._memory:
            self._reserve(rows)
        piece = self._segment_rows if self._spills else self._memory_rows
        start = 0 if self._spills else max(count - self.capacity, 0)
        for begin in range(start, count, piece):
            self._append({name: tensor[begin : begin + piece] for name, tensor in rows.items()})
        if self._disk is not None and not self.keep_all:
            self._disk.drop_before(self.first)

    def _append(self, rows: Rows) -> None:
        count = len(rows["rewards"])
        if self._disk is not None and self._spills:
            start, stop = self.end - self._in_memory, self.end + count - self._memory_rows
            for index in range(start // self._segment_rows, -(-stop // self._segment_rows)):
                if not self._disk.has_whole(index):
                    self._write(self._disk, index)
        slots = (self.end + torch.arange(count)) % self._memory_rows
        for name, tensor in rows.items():
            self._memory[name][slots] = tensor
        self.end += count
        self.size = min(self.size + count, self.capacity)
        self._in_memory = min(self._in_memory + count, self._memory_rows)

    def _write(self, target: SegmentFolder, index: int) -> None:
        """Write what there is of a segment; of one that is not on the disk everything is in memory."""
        start = max(index * self._segment_rows, self.end - self._in_memory)
        stop = min((index + 1) * self._segment_rows, self.end)
        target.write(start, self._gather(torch.arange(start, stop)))

    def _indices(self, first: int) -> range:
        """Return the places of the segments from a number to the end."""
        return range(first // self._segment_rows, -(-self.end // self._segment_rows) if self.size else 0)

    def _gather(self, numbers: torch.Tensor) -> Rows:
        slots = numbers % self._memory_rows
        rows = {name: tensor.index_select(0, slots) for name, tensor in self._memory.items()}
        if self._disk is not None and self.num_spilled:
            places = (numbers < self.end - self._in_memory).nonzero().flatten()
            self._disk.gather(numbers[places], rows, places)
        return rows
