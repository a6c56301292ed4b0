"""The checkpoint format of all training engines: parts (chunks) of named tensors, in torch's distributed format.

A checkpoint holds whole tensors under the names and in the shapes of a Hugging Face checkpoint, whichever engine wrote
it and however it split them: ``weight_key(name)`` is ``model.<name>``, ``moment_key(name, "exp_avg")`` is
``optimizer.state.<name>.exp_avg`` (likewise ``exp_avg_sq``, and ``step``, a tensor without dimensions), and
``value_key(name)`` is ``extra.<name>``, a number or a text. An engine says which chunks of which tensors lie where in
its memory, and nothing else, so what one layout wrote any other reads::

    rows = ChunkedTensor((64, 32), [Chunk((32, 0), weight)])    # the lower half of a tensor with 64 rows
    write_state(folder, {weight_key("q_proj.weight"): rows, value_key("num_steps"): 3})
    values = read_state(folder, {weight_key("q_proj.weight"): rows, value_key("num_steps"): None})

Every rank names what it has: ranks that hold the same chunk (data-parallel replicas) all name it, and one of them
writes it; a rank without any part of a tensor (another pipeline stage) leaves its name out. A chunk may be a view of
a larger tensor (rows of a fused QKV matrix); reading fills it in place. On writing, the chunks of all ranks must cover
every tensor exactly once.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.safe_reader import SafePlanner, SafeReader, read_metadata

State = dict[str, Any]
"""Names to ``ChunkedTensor``, or to a number, a text, or a list or mapping of them."""
OwnT = TypeVar("OwnT")
ResultT = TypeVar("ResultT")

# No checkpoint fits into less; what did not fit has been written in part.
_FULL_BYTES = 1 << 20
OWN_RECIPE = (
    "Give a checkpoint of this recipe, or run the recipe that it is of: config.yaml in the folder of its experiment."
)
"""What to do about a checkpoint that does not fit."""


def weight_key(name: str) -> str:
    """Return the key of a parameter or buffer of the model."""
    return f"model.{name}"


def moment_key(name: str, moment: str) -> str:
    """Return the key of what the optimizer keeps of a parameter: ``exp_avg``, ``exp_avg_sq`` or ``step``."""
    return f"optimizer.state.{name}.{moment}"


def value_key(name: str) -> str:
    """Return the key of a further number or text."""
    return f"extra.{name}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A box of a tensor.

    Attributes:
        offsets: Where it begins in the whole tensor, one number for each dimension.
        tensor: What is in it, of any device; filled in place on reading.
    """

    offsets: tuple[int, ...]
    tensor: torch.Tensor


class ChunkedTensor:
    """What this rank holds of a tensor. Implements torch's checkpointable protocol.

    Args:
        shape: Of the whole tensor.
        chunks: Boxes that do not overlap; empty ones are left out. None at all is allowed.
    """

    def __init__(self, shape: Sequence[int], chunks: Sequence[Chunk]) -> None:
        self.shape = torch.Size(shape)
        is_empty = self.shape.numel() == 0
        self.chunks = {torch.Size(c.offsets): c.tensor.detach() for c in chunks if is_empty or c.tensor.numel()}

    @classmethod
    def of(cls, tensor: torch.Tensor) -> ChunkedTensor:
        """Return the chunks of a whole tensor (one), or of a sharded one (this rank's rows).

        Args:
            tensor: Parameter, buffer or moment; it shares its memory with the result.
        """
        if not isinstance(tensor, DTensor):
            return cls(tensor.shape, [Chunk((0,) * tensor.ndim, tensor)])
        _, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        return cls(tensor.shape, [Chunk(tuple(offsets), tensor.to_local())])

    def size(self) -> torch.Size:
        """Return the shape of the whole tensor."""
        return self.shape

    def __create_write_items__(self, name: str, _: object) -> list[WriteItem]:
        return [
            WriteItem(
                index=MetadataIndex(name, offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=ChunkStorageMetadata(offsets=offsets, sizes=tensor.size()),
                    properties=TensorProperties.create_from_tensor(tensor),
                    size=self.shape,
                ),
            )
            for offsets, tensor in self.chunks.items()
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(offsets=offsets, sizes=t.size()) for offsets, t in self.chunks.items()]

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        if index.offset is None:
            raise ValueError(f"no chunk of '{index.fqn}' without an offset")
        return self.chunks[torch.Size(index.offset)]


class PendingWrite:
    """A checkpoint of which every rank knows what it will write; made by ``plan_write``.

    All ranks call ``write`` and then ``finish``, or ``start``, later ``finish``; nothing counts before ``finish``.
    """

    def __init__(self, path: Path, planner: _SavePlanner, writer: FileSystemWriter, metadata: Metadata | None) -> None:
        self._path, self._planner, self._writer, self._metadata = path, planner, writer, metadata
        self._written: Future[list[WriteResult]] = Future()

    def write(self) -> None:
        """Write this rank's chunks and flush them; an error waits for ``finish``."""
        try:
            self._written.set_result(self._write())
        except Exception as error:  # noqa: BLE001 - every kind of failure is reported to all ranks by ``finish``
            self._written.set_exception(error)

    def start(self) -> None:
        """Copy this rank's chunks to host memory, and let a thread write the copies: the originals may change."""
        self._planner.copy_to_host()
        thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._written = thread.submit(self._write)
        thread.shutdown(wait=False)

    @property
    def is_written(self) -> bool:
        """Whether this rank has written its chunks, or failed to."""
        return self._written.done()

    def finish(self) -> None:
        """Wait for all ranks and write down what is where; called by all of them together.

        Raises:
            CheckpointError: A rank's chunks cannot be written; the disk is full, say. Raised on all ranks.
        """
        _on_rank_0(self._written.result, self._describe, functools.partial(_unwritable, self._path))

    def _write(self) -> list[WriteResult]:
        written: list[WriteResult] = self._writer.write_data(self._planner.plan, self._planner).wait()
        return written

    def _describe(self, results: list[list[WriteResult]]) -> list[None]:
        if self._metadata is None:
            raise RuntimeError("the rank that planned the checkpoint describes it")
        self._writer.finish(self._metadata, results)
        return [None] * len(results)


def plan_write(path: Path, state: State) -> PendingWrite:
    """Agree with all ranks on who writes what; called by all of them together.

    Args:
        path: The folder; made here.
        state: What this rank has.

    Raises:
        CheckpointError: The chunks do not cover a tensor, or overlap; or the folder cannot be written to.
    """
    rank = dist.get_rank() if dist.is_initialized() else 0
    planner, writer = _SavePlanner(), _Writer(path, overwrite=True)
    metadata: list[Metadata] = []

    def plan_own() -> SavePlan:
        planner.set_up_planner(state, is_coordinator=rank == 0)
        writer.set_up_storage_writer(rank == 0, rank=rank, use_collectives=True)
        return writer.prepare_local_plan(planner.create_local_plan())

    def plan_all(plans: list[SavePlan]) -> list[SavePlan]:
        all_plans, described = planner.create_global_plan(plans)
        metadata.append(described)
        return writer.prepare_global_plan(all_plans)

    planner.finish_plan(_on_rank_0(plan_own, plan_all, functools.partial(_unwritable, path)))
    return PendingWrite(path, planner, writer, metadata[0] if metadata else None)


def write_state(path: Path, state: State) -> None:
    """Write a checkpoint; called by all ranks together.

    Args:
        path: The folder; made here.
        state: What this rank has.

    Raises:
        CheckpointError: It cannot be written; the disk is full, say. Raised on all ranks.
    """
    pending = plan_write(path, state)
    pending.write()
    pending.finish()


def read_state(path: Path, state: State) -> dict[str, Any]:
    """Fill tensors from a checkpoint, in place; called by all ranks together, or by a process without others.

    Args:
        path: The folder.
        state: What this rank wants: tensors, and the names of other values with anything in their place.

    Returns:
        The values that are not tensors, by name.

    Raises:
        CheckpointError: The folder holds no checkpoint, a damaged one, or not all of this. Raised on all ranks.
    """

    def read() -> None:
        reader, planner = SafeReader(_require_checkpoint(path)), SafePlanner()
        found = reader.read_metadata()
        planner.set_up_planner(state, found, is_coordinator=True)
        reader.set_up_storage_reader(found, True)
        plan = planner.finish_plan(reader.prepare_local_plan(planner.create_local_plan()))
        reader.read_data(plan, planner).wait()

    _on_rank_0(read, lambda results: results, functools.partial(_unfit, path))
    return {name: value for name, value in state.items() if not isinstance(value, ChunkedTensor)}


def stored_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return what tensors a checkpoint holds, by key: their shapes and types, on device ``meta``.

    Args:
        path: The folder.

    Raises:
        CheckpointError: It holds no checkpoint, or a damaged one.
    """
    found = read_metadata(_require_checkpoint(path) / ".metadata").state_dict_metadata
    return {
        name: torch.empty(entry.size, dtype=entry.properties.dtype, device="meta")
        for name, entry in found.items()
        if isinstance(entry, TensorStorageMetadata)
    }


class _SavePlanner(DefaultSavePlanner):
    """Takes a flat state of ``ChunkedTensor`` and other values."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._copies: dict[MetadataIndex, torch.Tensor] | None = None

    def lookup_object(self, index: MetadataIndex) -> Any:
        if self._copies is not None and index in self._copies:
            return self._copies[index]
        found = self.state_dict[index.fqn]
        return found.__get_tensor_shard__(index) if isinstance(found, ChunkedTensor) else found

    def copy_to_host(self) -> None:
        """Copy what this rank's plan names, and forget the originals."""
        items = [item for item in self.plan.items if item.type != WriteItemType.BYTE_IO]
        originals = {item.index: self.lookup_object(item.index) for item in items}
        self._copies = {index: _host_copy(tensor) for index, tensor in originals.items()}
        for device in {tensor.device for tensor in originals.values() if not tensor.is_cpu}:
            torch.get_device_module(device).synchronize(device)
        self.state_dict = {name: v for name, v in self.state_dict.items() if not isinstance(v, ChunkedTensor)}


class _Writer(FileSystemWriter):
    """Writes one file for each rank, and holds one tensor of it at a time: torch's keeps all until the end."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        name, results = f"{plan.storage_data.prefix}0.distcp", []
        with self.fs.create_stream(self.fs.concat_path(self.path, name), "wb") as file:
            for item in plan.items:
                begin = file.tell()
                data = planner.resolve_data(item)
                if isinstance(data, torch.Tensor):
                    host = data.detach().cpu().contiguous()
                    # Of a view, all that it views would be written.
                    is_view = host.untyped_storage().nbytes() != host.nbytes
                    torch.save(host.clone() if is_view else host, cast(IO[bytes], file))
                else:
                    file.write(data.getbuffer())
                size = file.tell() - begin
                results.append(WriteResult(item.index, size, _StorageInfo(name, begin, size)))
            file.flush()
            os.fsync(file.fileno())
        future: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        future.set_result(results)
        return future


def _host_copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_cpu:
        return tensor.clone()
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)


def _on_rank_0(
    own: Callable[[], OwnT],
    combine: Callable[[list[OwnT]], list[ResultT]],
    refusal: Callable[[Exception], CheckpointError],
) -> ResultT:
    """Return this rank's share of what rank 0 makes of every rank's part.

    Args:
        own: Makes this rank's part.
        combine: Makes of all parts, in rank order, one share for each rank.
        refusal: Makes the error of what they raise: every rank raises one, or none does.
    """
    mine = _attempt(own, refusal)
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    is_alone = size == 1
    parts: list[Any] | None = [mine] * size if rank == 0 else None
    if not is_alone:
        dist.gather_object(mine, parts)
    shares: list[Any] | None = None if parts is None else _combined(parts, combine, refusal)
    received: list[Any] = [None] if shares is None else shares[:1]
    if not is_alone:
        dist.scatter_object_list(received, shares)
    result = mine if isinstance(mine, CheckpointError) else received[0]
    if isinstance(result, CheckpointError):
        raise result
    return cast(ResultT, result)


def _combined(
    parts: list[Any], combine: Callable[[list[Any]], list[ResultT]], refusal: Callable[[Exception], CheckpointError]
) -> list[ResultT] | list[CheckpointError]:
    """Return every rank's share, or one error for all."""
    failed = next((part for part in parts if isinstance(part, CheckpointError)), None)
    made = failed if failed is not None else _attempt(lambda: combine(parts), refusal)
    return [made] * len(parts) if isinstance(made, CheckpointError) else made


def _attempt(make: Callable[[], OwnT], refusal: Callable[[Exception], CheckpointError]) -> OwnT | CheckpointError:
    """Return what is made, or the error instead."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - of torch's planner, writer or reader, of pickle or of the file system
        found = error if isinstance(error, CheckpointError) else refusal(error)
        found.__cause__ = None if found is error else error
        return found


def _unwritable(path: Path, error: Exception) -> CheckpointError:
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    reason = _last_line(error)
    if shutil.disk_usage(existing).free < _FULL_BYTES:
        # Which torch's writer does not report.
        reason = f"{os.strerror(errno.ENOSPC)}."
    return CheckpointError(f"The checkpoint in '{path}' cannot be written: {reason}")


def _unfit(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint in '{path}' does not fit this recipe's model and optimizer: {_last_line(error)} {OWN_RECIPE}"
    )


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _require_checkpoint(path: Path) -> Path:
    if not (path / ".metadata").is_file():
        raise CheckpointError(f"'{path}' holds no distributed checkpoint (no .metadata file in it).")
    return path
