"""What is done with saved replays outside a run: merge, split, describe. None of it loads a whole one into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rlinf.data.replay.segments import Manifest, RowWriter, find_folders, read_numbered
from rlinf.errors import DatasetError


@dataclass(frozen=True, slots=True)
class ReplayDescription:
    """What a saved replay holds.

    Attributes:
        parts: Folders, one for each rank that saved.
        transitions: Of all parts.
        bytes: Of all files.
        tensors: For each name ``dtype`` and ``shape`` of one transition.
        reward_mean: Mean reward of a chunk step; 0 without transitions.
        reward_min: Smallest.
        reward_max: Largest.
        terminated: Transitions that ended an episode.
    """

    parts: int
    transitions: int
    bytes: int
    tensors: dict[str, dict[str, object]]
    reward_mean: float
    reward_min: float
    reward_max: float
    terminated: int


def describe_replay(path: Path) -> ReplayDescription:
    """Read a saved replay through, checking it against its checksums, and say what it holds.

    Args:
        path: A folder that ``ReplayBuffer.save`` wrote, or one of such folders ``rank_<n>``.

    Raises:
        DatasetError: There is none, or it is damaged.
    """
    parts = find_folders(path)
    manifests = [Manifest.read(part) for part in parts]
    count, total, smallest, largest, terminated = 0, 0.0, torch.inf, -torch.inf, 0
    for rows, numbers in (pair for part in parts for pair in read_numbered(part)):
        rewards = rows["rewards"].double()
        count += len(numbers)
        total += float(rewards.sum())
        smallest, largest = min(smallest, float(rewards.min())), max(largest, float(rewards.max()))
        terminated += int(rows["terminated"].sum())
    return ReplayDescription(
        parts=len(parts),
        transitions=count,
        bytes=sum(segment.bytes for manifest in manifests for segment in manifest.segments),
        tensors=next((manifest.tensors for manifest in manifests if manifest.tensors), {}),
        reward_mean=total / max(count, 1),
        reward_min=smallest if count else 0.0,
        reward_max=largest if count else 0.0,
        terminated=terminated,
    )


def merge_replays(sources: Sequence[Path], target: Path) -> int:
    """Save the transitions of several saved replays, one after the other, as one.

    Args:
        sources: Saved replays of the same tensors.
        target: A new folder.

    Returns:
        How many transitions it holds.

    Raises:
        DatasetError: A source is missing or damaged, they differ in their tensors, or ``target`` exists.
    """
    folders = [part for source in sources for part in find_folders(source)]
    with RowWriter(target) as writer:
        for rows, _ in (pair for folder in folders for pair in read_numbered(folder)):
            writer.add(rows)
    return writer.num_rows


def split_replay(source: Path, targets: Sequence[Path], shares: Sequence[float], *, seed: int = 0) -> list[int]:
    """Deal the transitions of a saved replay out at random; in each part they keep their order.

    Args:
        source: The saved replay.
        targets: New folders.
        shares: How much each receives; they add up to 1.
        seed: Names the deal.

    Returns:
        How many transitions each holds.

    Raises:
        DatasetError: ``source`` is missing or damaged, the shares do not fit, or a target exists.
    """
    if len(shares) != len(targets) or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise DatasetError(f"shares {list(shares)} do not divide 1 among {len(targets)} targets. Give one for each.")
    folders = find_folders(source)
    manifests = [Manifest.read(folder) for folder in folders]
    total = sum(manifest.end - manifest.first for manifest in manifests)
    bounds = [round(total * sum(shares[:number])) for number in range(len(shares) + 1)]
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    owner = torch.bucketize(order, torch.tensor(bounds[1:-1], dtype=torch.int64), right=True)
    writers = [RowWriter(target) for target in targets]
    start = 0
    try:
        for rows, numbers in (pair for folder in folders for pair in read_numbered(folder)):
            mine = owner[start : start + len(numbers)]
            start += len(numbers)
            for number, writer in enumerate(writers):
                writer.add({name: tensor[mine == number] for name, tensor in rows.items()})
    except BaseException:
        for writer in writers:
            writer.abort()
        raise
    for writer in writers:
        writer.close()
    return [writer.num_rows for writer in writers]
