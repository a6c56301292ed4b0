"""Rows of tensors on the disk: a folder of immutable segments and a manifest; what replays are spilled and saved to.

::

    <folder>/manifest.json                       written last, in one step
    <folder>/segment_<start>_<end>.safetensors   rows numbered start to end - 1

A row is one entry of every tensor and has a number for life, counted from the first row ever added. The manifest says:

- ``format``: 1.
- ``first``, ``end``: numbers of the oldest row and behind the newest; a segment may begin before ``first``.
- ``segment_rows``: segments end where it divides the number; only the newest may be shorter.
- ``tensors``: for each name the ``dtype`` and the ``shape`` of one row.
- ``segments``: oldest first, each with ``file``, ``start`` (its first row's number), ``rows``, ``bytes``, ``xxh3_128``.

Whole segments never change, so that folders share them by hard links: saving again costs what is new.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlinf.errors import DatasetError
from rlinf.utils.files import commit_folder, write_atomic

Rows: TypeAlias = dict[str, torch.Tensor]
"""Tensors [N, ...] by name."""

MANIFEST = "manifest.json"
FORMAT = 1
SEGMENT_BYTES = 64 * 2**20
"""Size that whole segments aim at: few files, and little to write again while the newest one fills."""
_READ_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of rows.

    Attributes:
        file: Its name.
        start: Number of its first row.
        rows: How many there are.
        bytes: Size of the file.
        xxh3_128: Checksum of the file, hexadecimal.
    """

    file: str
    start: int
    rows: int
    bytes: int
    xxh3_128: str

    @property
    def end(self) -> int:
        """Number behind its last row."""
        return self.start + self.rows


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder of segments holds; see the module."""

    first: int = 0
    end: int = 0
    segment_rows: int = 1
    tensors: dict[str, dict[str, object]] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()

    def write(self, folder: Path) -> None:
        """Publish the manifest of a folder in one step."""
        write_atomic(folder / MANIFEST, json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Read a folder's manifest.

        Raises:
            DatasetError: There is none, or it cannot be read.
        """
        path = folder / MANIFEST
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            version = int(record.pop("format"))
            if version == FORMAT:
                segments = tuple(Segment(**entry) for entry in record.pop("segments"))
                return Manifest(**record, segments=segments)
        except FileNotFoundError:
            raise DatasetError(
                f"'{folder}' is no saved replay: it holds no {MANIFEST}. Give the folder of one."
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DatasetError(f"'{path}' cannot be read: {error}. Save the replay again.") from error
        raise DatasetError(
            f"'{path}' has format {version}; this version of RLinf reads format {FORMAT}. Save it again."
        )


class SegmentFolder:
    """Segments of one folder, by index.

    Args:
        path: The folder; made when the first segment is written.
        segment_rows: Rows of a whole segment.
    """

    def __init__(self, path: Path, segment_rows: int) -> None:
        self.path = path
        self.segment_rows = segment_rows
        self.segments: dict[int, Segment] = {}
        self._mapped: dict[int, Rows] = {}

    def has_whole(self, index: int) -> bool:
        """Return whether the segment at a place is there, and will not grow."""
        return index in self.segments and self.segments[index].end == (index + 1) * self.segment_rows

    def write(self, start: int, rows: Rows) -> None:
        """Write a segment, or a longer one in its place.

        Args:
            start: Number of its first row.
            rows: Its rows.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        count = len(next(iter(rows.values())))
        index = start // self.segment_rows
        path = self.path / f"segment_{start:012d}_{start + count:012d}.safetensors"
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            save_file({name: tensor.contiguous() for name, tensor in rows.items()}, temporary)
            segment = Segment(path.name, start, count, temporary.stat().st_size, _checksum(temporary))
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self.segments[index] = segment
        self._mapped.pop(index, None)

    def adopt(self, source: Path, segment: Segment) -> None:
        """Take over a segment of another folder without copying it, where the file system can."""
        self.path.mkdir(parents=True, exist_ok=True)
        target = self.path / segment.file
        if not (target.exists() and os.path.samefile(source / segment.file, target)):
            target.unlink(missing_ok=True)
            try:
                os.link(source / segment.file, target)
            except OSError:
                shutil.copyfile(source / segment.file, target)
        index = segment.start // self.segment_rows
        self.segments[index] = segment
        self._mapped.pop(index, None)

    def read(self, index: int) -> Rows:
        """Return the rows of a segment, mapped from its file."""
        if index not in self._mapped:
            self._mapped[index] = load_file(self.path / self.segments[index].file)
        return self._mapped[index]

    def gather(self, numbers: torch.Tensor, out: Rows, places: torch.Tensor) -> None:
        """Copy rows.

        Args:
            numbers: int64 [N], of rows that are there.
            out: Where to; a row of ``numbers[i]`` goes to ``places[i]``.
            places: int64 [N].
        """
        indices = numbers // self.segment_rows
        for index in set(indices.tolist()):
            chosen = indices == index
            rows = numbers[chosen] - self.segments[index].start
            for name, tensor in self.read(index).items():
                out[name][places[chosen]] = tensor[rows]

    def drop_before(self, first: int) -> None:
        """Delete segments all of whose rows are older than ``first``."""
        for index in [index for index, segment in self.segments.items() if segment.end <= first]:
            self._mapped.pop(index, None)
            (self.path / self.segments.pop(index).file).unlink(missing_ok=True)

    def clear(self) -> None:
        """Delete everything that makes the folder a saved replay; nothing else that is in it."""
        (self.path / MANIFEST).unlink(missing_ok=True)
        self.segments, self._mapped = {}, {}
        self._delete_strangers()

    def commit(self, first: int, end: int, rows: Rows) -> None:
        """Write the manifest, and delete segments that it does not list.

        Args:
            first: Number of the oldest row.
            end: Number behind the newest.
            rows: Any rows, for types and shapes.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        ordered = tuple(self.segments[index] for index in sorted(self.segments))
        Manifest(first, end, self.segment_rows, describe_rows(rows), ordered).write(self.path)
        self._delete_strangers()

    def _delete_strangers(self) -> None:
        listed = {segment.file for segment in self.segments.values()}
        for pattern in ("segment_*.safetensors", ".segment_*.tmp"):
            for path in self.path.glob(pattern):
                if path.name not in listed:
                    path.unlink(missing_ok=True)


class RowWriter:
    """Writes rows as they come to a new folder, which appears when it is closed; a context manager.

    Args:
        folder: Must not exist.
        segment_bytes: Size that segments aim at.

    Raises:
        DatasetError: ``folder`` exists.
    """

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        if folder.exists():
            raise DatasetError(f"'{folder}' exists; move it away, or name another folder.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.num_rows = 0
        self._segment_bytes = segment_bytes
        self._tensors: dict[str, dict[str, object]] = {}
        self._waiting: list[Rows] = []
        self._num_waiting = 0
        self._segments = SegmentFolder(folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp"), 1)

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def add(self, rows: Rows) -> None:
        """Append rows.

        Raises:
            DatasetError: They are not of the kind of those before.
        """
        tensors, count = describe_rows(rows), len(next(iter(rows.values())))
        if not self._tensors:
            self._tensors = tensors
        if tensors != self._tensors:
            raise DatasetError(f"replays of different tensors cannot be joined: {tensors} and {self._tensors}.")
        if self.num_rows == 0 and count:
            self._segments.segment_rows = max(self._segment_bytes // row_bytes(rows), 1)
        self._waiting.append(rows)
        self._num_waiting += count
        self.num_rows += count
        if self._num_waiting >= self._segments.segment_rows:
            self._write(self._num_waiting // self._segments.segment_rows * self._segments.segment_rows)

    def close(self) -> None:
        """Write the rest and publish the folder."""
        self._write(self._num_waiting)
        ordered = tuple(self._segments.segments[index] for index in sorted(self._segments.segments))
        self._segments.path.mkdir(exist_ok=True)
        Manifest(0, self.num_rows, self._segments.segment_rows, self._tensors, ordered).write(self._segments.path)
        commit_folder(self._segments.path, self.folder)

    def abort(self) -> None:
        """Throw away what was written."""
        shutil.rmtree(self._segments.path, ignore_errors=True)

    def _write(self, count: int) -> None:
        if not self._num_waiting:
            return
        joined = {name: torch.cat([rows[name] for rows in self._waiting]) for name in self._tensors}
        first = self.num_rows - self._num_waiting
        for start in range(0, count, self._segments.segment_rows):
            stop = min(start + self._segments.segment_rows, count)
            self._segments.write(first + start, {name: tensor[start:stop] for name, tensor in joined.items()})
        self._waiting = [{name: tensor[count:].clone() for name, tensor in joined.items()}]
        self._num_waiting -= count


def describe_rows(rows: Rows) -> dict[str, dict[str, object]]:
    """Return type and shape of one row of each tensor."""
    return {
        name: {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape[1:])}
        for name, tensor in sorted(rows.items())
    }


def row_bytes(rows: Rows) -> int:
    """Return the size of one row; there is one at least."""
    return sum(tensor.element_size() * tensor[0].numel() for tensor in rows.values())


def read_numbered(folder: Path) -> Iterator[tuple[Rows, torch.Tensor]]:
    """Read the rows of a folder, the oldest first, a segment at a time, each with the int64 [N] numbers of its rows.

    Raises:
        DatasetError: A file is missing or damaged.
    """
    manifest = Manifest.read(folder)
    for segment in manifest.segments:
        path = folder / segment.file
        try:
            if path.stat().st_size != segment.bytes or _checksum(path) != segment.xxh3_128:
                raise DatasetError(
                    f"'{path}' is damaged: size or checksum are not those of {MANIFEST}. Save the replay again, or use "
                    "another checkpoint."
                )
            rows = load_file(path)
        except (OSError, SafetensorError) as error:
            raise DatasetError(f"'{path}', listed in {MANIFEST}, cannot be read: {error}. Save it again.") from error
        first, end = max(segment.start, manifest.first), min(segment.end, manifest.end)
        if first < end:
            held = slice(first - segment.start, end - segment.start)
            yield {name: tensor[held] for name, tensor in rows.items()}, torch.arange(first, end)


def find_folders(path: Path) -> list[Path]:
    """Return the folders of a saved replay: ``path`` itself, or its parts ``rank_<n>...`` in order.

    Raises:
        DatasetError: There is nothing of the kind.
    """
    if (path / MANIFEST).is_file():
        return [path]
    parts = sorted(path.glob(f"rank_*/{MANIFEST}"), key=lambda part: int(part.parent.name.removeprefix("rank_")))
    if not parts:
        raise DatasetError(
            f"'{path}' holds no saved replay: neither {MANIFEST} nor rank_*/{MANIFEST}. Give a folder that was saved, "
            "for example checkpoints/global_step_<N>/actor/replay of a run."
        )
    return [part.parent for part in parts]


def remove_parts(path: Path, first: int) -> None:
    """Delete the parts of ranks from ``first`` on: of a run that had more ranks."""
    for part in path.glob("rank_*"):
        if int(part.name.removeprefix("rank_")) >= first:
            SegmentFolder(part, 1).clear()


def _checksum(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()
