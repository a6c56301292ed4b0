"""Large buffers between processes of one node: copied once into shared memory, mapped by every receiver.

A process owns a pool of segments and reuses them, because fresh pages cost more than the copy. Each use of a segment is
a ``Block``, freed by reference counts. A receiver maps the block privately (its writes stay its own) and notifies the
owner when the last array over the mapping is gone; the death of a receiver counts as a notice. Space is reserved before
it is written, so that a full file system is an error and never a signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import mmap
import os
import shutil
import sys
import threading
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rlinf.scheduler.address import EndpointInfo
from rlinf.scheduler.comm.folders import SHARED_MEMORY, RunFolder, segments_folder, temporary_base
from rlinf.utils.logging import get_logger

# Buffers start at a cache line.
_ALIGNMENT_BYTES = 64
_SMALLEST_BYTES = 1 << 16
# A container's default of 64 MB is gone at once, and others need some of it.
_SMALL_MEMORY_BYTES = 512 << 20
# One process takes at most this part of what the file system holds, and idle segments at most this much, or as much as
# ``reserve`` has handed out at a time: weights are published again and again, and fresh pages cost six times the copy.
_LIMIT_FRACTION = 4
_IDLE_BYTES = 1 << 30
# Each block is a mapping in its receivers, of which a process may have about 65,000.
_MAX_SEGMENTS = 1024

# Unused mappings of others' segments that a process keeps, in bytes.
_IDLE_MAPPED_BYTES = 512 << 20
_PAGEMAP = "/proc/self/pagemap"
# Of that file: bytes of each page's entry, and three of its bits.
_PAGEMAP_BYTES = 8
_PAGE_PRESENT, _PAGE_SWAPPED, _PAGE_OF_FILE = 1 << 63, 1 << 62, 1 << 61
# Advice that Python's mmap has no name for.
_MADV_POPULATE_WRITE = 23

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_MAP_FIXED = 0x10

# A block of memory on its way: path, number of its use, bytes to map.
Reference = tuple[str, int, int]


@dataclass
class _Entry:
    on_free: Callable[[], None]
    holders: Counter[str] = field(default_factory=Counter)
    owned: bool = True


class ReferenceCounts:
    """Counts the holders of each block; a block is freed when its owner and all receivers have released it."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int], _Entry] = {}
        self._lock = threading.Lock()
        # Filled by finalizers, which may run anywhere, also inside of a method of this class.
        self._without_owner: deque[tuple[str, int]] = deque()

    def add(self, path: str, number: int, on_free: Callable[[], None]) -> None:
        """Note a new block, held by its owner."""
        with self._lock:
            self._entries[path, number] = _Entry(on_free)

    def drop_owner(self, path: str, number: int) -> None:
        """The owner has released the block; takes effect with the next other call. Safe in finalizers."""
        self._without_owner.append((path, number))

    def hold(self, path: str, number: int, uid: str) -> None:
        """Count one more reference of the process ``uid``."""
        with self._lock:
            self._entries[path, number].holders[uid] += 1

    def release(self, path: str, number: int, uid: str) -> None:
        """Count one reference of the process ``uid`` less."""
        self.settle()
        with self._lock:
            entry = self._entries.get((path, number))
            if entry is None or not entry.holders[uid]:
                return
            entry.holders[uid] -= 1
            free = self._take_free((path, number))
        for on_free in free:
            on_free()

    def drop(self, uid: str) -> None:
        """Remove all references of a process that is gone."""
        self.settle()
        with self._lock:
            for entry in self._entries.values():
                entry.holders.pop(uid, None)
            free = [on_free for key in list(self._entries) for on_free in self._take_free(key)]
        for on_free in free:
            on_free()

    def settle(self) -> None:
        """Free the blocks that owners have released and no receiver holds."""
        while self._without_owner:
            with contextlib.suppress(IndexError):  # another thread was faster
                key = self._without_owner.popleft()
                with self._lock:
                    entry = self._entries.get(key)
                    if entry is None:
                        continue
                    entry.owned = False
                    free = self._take_free(key)
                for on_free in free:
                    on_free()

    def __len__(self) -> int:
        return len(self._entries)

    def _take_free(self, key: tuple[str, int]) -> list[Callable[[], None]]:
        entry = self._entries[key]
        if entry.owned or any(entry.holders.values()):
            return []
        del self._entries[key]
        return [entry.on_free]


class Block:
    """One use of a shared segment; its owner holds it as long as this object lives.

    Attributes:
        path: The segment's file.
        number: Number of this use.
        num_bytes: Bytes that receivers map.
    """

    def __init__(
        self, reference_counts: ReferenceCounts, path: str, number: int, num_bytes: int, on_free: Callable[[], None]
    ) -> None:
        self.path = path
        self.number = number
        self.num_bytes = num_bytes
        self._reference_counts = reference_counts
        self._view: memoryview | None = None
        reference_counts.add(path, number, on_free)
        weakref.finalize(self, reference_counts.drop_owner, path, number).atexit = False

    @property
    def reference(self) -> Reference:
        """What a receiver needs to map the block."""
        return self.path, self.number, self.num_bytes

    def hold(self, uid: str) -> None:
        """Note that a process is about to get the block."""
        self._reference_counts.hold(self.path, self.number, uid)

    def release(self, uid: str) -> None:
        """Take back one ``hold``: the process will not get the block."""
        self._reference_counts.release(self.path, self.number, uid)

    def view(self) -> memoryview:
        """Return the block's bytes in this process."""
        if self._view is None:
            self._view = memoryview(map_file(self.path, self.num_bytes, shared=False))
        return self._view


@dataclass(frozen=True)
class SharedFrame:
    """A frame of a message that lies in shared memory.

    Attributes:
        block: The block it is part of.
        offset: Where it starts, in bytes.
        length: Its size in bytes.
    """

    block: Block
    offset: int
    length: int

    def view(self) -> memoryview:
        """Return its bytes in this process."""
        return self.block.view()[self.offset : self.offset + self.length]


@dataclass
class _Segment:
    path: str
    size: int
    memory: mmap.mmap


class SegmentPool:
    """The segments of one process.

    Args:
        namespace: Name of the run.
        uid: Name of the process.
        bases: Folders to use in order of preference; None is shared memory if there is enough of it, else the
            temporary folder.
    """

    def __init__(self, namespace: str, uid: str, bases: Sequence[Path] | None = None) -> None:
        self.reference_counts = ReferenceCounts()
        self._namespace = namespace
        self._uid = uid
        self._bases = bases
        self._folders: dict[Path, RunFolder] = {}
        self._path: Path | None = None
        self._limit_bytes = 0
        self._total_bytes = 0
        self._num_segments = 0
        self._idle: dict[int, list[_Segment]] = defaultdict(list)
        self._idle_bytes = 0
        self._reserved_bytes = 0
        self._idle_limit_bytes = _IDLE_BYTES
        self._numbers = itertools.count()
        self._reserved: dict[int, Block] = {}
        self._lock = threading.Lock()
        self._opened = self._closed = False

    def write(self, buffers: Sequence[memoryview]) -> list[SharedFrame] | None:
        """Copy buffers of bytes into one block, or return None when there is no room for them.

        Those in memory that ``reserve`` has returned stay where they are.
        """
        in_place = [self._find_reserved(buffer) for buffer in buffers]
        others = [buffer for buffer, frame in zip(buffers, in_place, strict=True) if frame is None]
        if len(others) < len(buffers):
            copied = self.write(others) if others else []
            if copied is None:
                return None
            remaining = iter(copied)
            return [next(remaining) if frame is None else frame for frame in in_place]
        offsets, end = [], 0
        for buffer in buffers:
            offsets.append(end)
            end += buffer.nbytes + -buffer.nbytes % _ALIGNMENT_BYTES
        segment = self._take(max(end, 1))
        if segment is None:
            return None
        target = memoryview(segment.memory)
        for buffer, offset in zip(buffers, offsets, strict=True):
            copy_bytes(target[offset : offset + buffer.nbytes], buffer)
        block = Block(self.reference_counts, segment.path, next(self._numbers), end, lambda: self._give_back(segment))
        return [SharedFrame(block, offset, buffer.nbytes) for buffer, offset in zip(buffers, offsets, strict=True)]

    def reserve(self, num_bytes: int) -> memoryview | None:
        """Return memory that ``write`` need not copy, or None when there is no room.

        The caller fills it before it is sent for the first time, and not afterwards: receivers look at this
        very memory. It is free again when neither they nor the owner hold an array over it.
        """
        import numpy as np

        segment = self._take(max(num_bytes, 1))
        if segment is None:
            return None
        array = np.frombuffer(segment.memory, np.uint8, num_bytes)
        address = array.ctypes.data
        with self._lock:
            self._reserved_bytes += segment.size
            self._idle_limit_bytes = max(self._idle_limit_bytes, self._reserved_bytes)
        self._reserved[address] = Block(
            self.reference_counts, segment.path, next(self._numbers), num_bytes, lambda: self._end_reserved(segment)
        )
        weakref.finalize(array, self._reserved.pop, address, None).atexit = False
        return memoryview(array.data)

    def adopt(self, reference: Reference, on_free: Callable[[], None]) -> Block:
        """Give another process's block a name of this one, under which it stays when that process dies.

        Args:
            reference: The block.
            on_free: Called when it has no holder under the new name.

        Raises:
            OSError: The block is gone.
        """
        path, _, num_bytes = reference
        with self._lock:
            folder = self._open_folder(Path(path).parents[2])
        number = next(self._numbers)
        name = str(folder / f"a{number}")
        os.link(path, name)

        def free() -> None:
            with contextlib.suppress(OSError):
                os.unlink(name)
            on_free()

        return Block(self.reference_counts, name, number, num_bytes, free)

    def close(self) -> None:
        """Remove the segments; receivers keep what they have mapped."""
        with self._lock:
            self._closed = True
            for base, folder in self._folders.items():
                shutil.rmtree(segments_folder(base, self._namespace, self._uid), ignore_errors=True)
                folder.close()
            self._folders.clear()

    def _find_reserved(self, buffer: memoryview) -> SharedFrame | None:
        if not self._reserved or not buffer.nbytes:
            return None
        import numpy as np

        start = np.frombuffer(buffer, np.uint8).ctypes.data
        for address, block in list(self._reserved.items()):
            if address <= start and start + buffer.nbytes <= address + block.num_bytes:
                return SharedFrame(block, start - address, buffer.nbytes)
        return None

    def _take(self, num_bytes: int) -> _Segment | None:
        self.reference_counts.settle()
        size = size_class(num_bytes)
        with self._lock:
            if self._closed:
                return None
            candidate = size
            while candidate <= 2 * size:
                if self._idle.get(candidate):
                    self._idle_bytes -= candidate
                    return self._idle[candidate].pop()
                candidate = size_class(candidate + 1)
            return self._create(size)

    def _create(self, size: int) -> _Segment | None:
        if not self._opened:
            self._opened = True
            self._open()
        if self._path is None:
            return None
        if self._total_bytes + size > self._limit_bytes or self._num_segments >= _MAX_SEGMENTS:
            self._drop_idle(0)
            if self._total_bytes + size > self._limit_bytes or self._num_segments >= _MAX_SEGMENTS:
                return None
        path = str(self._path / f"s{next(self._numbers)}")
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            memory = _map(descriptor, size, shared=True)
            # One call instead of a fault for each page, of which Linux before 5.14 does not know.
            with contextlib.suppress(OSError):
                memory.madvise(_MADV_POPULATE_WRITE)
        except OSError as error:
            os.unlink(path)
            if error.errno not in {errno.ENOSPC, errno.ENOMEM, errno.EDQUOT}:
                raise
            return None
        finally:
            os.close(descriptor)
        self._total_bytes += size
        self._num_segments += 1
        return _Segment(path, size, memory)

    def _end_reserved(self, segment: _Segment) -> None:
        with self._lock:
            self._reserved_bytes -= segment.size
        self._give_back(segment)

    def _give_back(self, segment: _Segment) -> None:
        with self._lock:
            if self._closed:
                return
            self._idle[segment.size].append(segment)
            self._idle_bytes += segment.size
            if self._idle_bytes > self._idle_limit_bytes:
                self._drop_idle(self._idle_limit_bytes)

    def _drop_idle(self, keep_bytes: int) -> None:
        for size in sorted(self._idle, reverse=True):
            while self._idle[size] and self._idle_bytes > keep_bytes:
                segment = self._idle[size].pop()
                with contextlib.suppress(OSError):
                    os.unlink(segment.path)
                self._idle_bytes -= size
                self._total_bytes -= size
                self._num_segments -= 1

    def _open(self) -> None:
        for base in self._bases or usable_bases():
            try:
                self._path = self._open_folder(base)
                space = os.statvfs(base)
            except OSError as error:
                get_logger(__name__).debug("No segments in %s: %s", base, error)
                continue
            # A disk is shared with everybody's files; memory is bounded by its size.
            blocks = space.f_blocks if base == SHARED_MEMORY else space.f_bavail
            self._limit_bytes = space.f_frsize * blocks // _LIMIT_FRACTION
            return

    def _open_folder(self, base: Path) -> Path:
        """Return this process's folder under ``base``, made if need be."""
        path = segments_folder(base, self._namespace, self._uid)
        if base not in self._folders:
            self._folders[base] = RunFolder(base, self._namespace)
            path.mkdir(mode=0o700, exist_ok=True)
        return path


class Mappings:
    """Blocks of other processes that this one looks at.

    A mapping is kept when its last array is gone: senders reuse their segments, and mapping 64 MB anew costs as much as
    copying them. It serves again if none of its pages was written to, for those would hide what the sender wrote since.

    Args:
        on_release: Called with the owner and the mapping when the last array over it is gone. It may be called
            anywhere, in any thread, so it must do next to nothing; ``keep`` and a message to the owner must follow.
    """

    def __init__(self, on_release: Callable[[EndpointInfo, Mapping], None]) -> None:
        self._on_release = on_release
        self._process = os.getpid()
        self._idle: dict[tuple[int, int], Mapping] = {}
        self._idle_bytes = 0
        self._lock = threading.Lock()

    def open(self, reference: Reference, owner: EndpointInfo) -> memoryview:
        """Map a block; what is written to it stays in this process.

        Raises:
            OSError: The block is gone, because its owner is.
        """
        import numpy as np

        path, number, num_bytes = reference
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if status.st_size < num_bytes:
                raise OSError(errno.EINVAL, "The file is shorter than what was to be mapped", path)
            # A mapping keeps its file, so another one cannot get the same number meanwhile.
            file = (status.st_dev, status.st_ino)
            memory = self._take(file)
            if memory is None:
                memory = _map(descriptor, status.st_size, shared=False)
        finally:
            os.close(descriptor)
        array = np.frombuffer(memory, np.uint8, num_bytes)
        mapping = Mapping((path, number), file, memory)
        weakref.finalize(array, self._release, owner, mapping).atexit = False
        return memoryview(array.data)

    def keep(self, mapping: Mapping) -> None:
        """Keep an unused mapping for the next use of its file."""
        size = len(mapping.memory)
        with self._lock:
            if mapping.file not in self._idle:
                self._idle[mapping.file] = mapping
                self._idle_bytes += size
            while self._idle_bytes > _IDLE_MAPPED_BYTES:
                oldest = next(iter(self._idle))
                self._idle_bytes -= len(self._idle.pop(oldest).memory)

    def forget(self, uid: str) -> None:
        """Drop what is kept of a process's segments: it is gone."""
        with self._lock:
            for file, mapping in list(self._idle.items()):
                if Path(mapping.block[0]).parent.name == f"{uid}.d":
                    self._idle_bytes -= len(self._idle.pop(file).memory)

    def _take(self, file: tuple[int, int]) -> mmap.mmap | None:
        with self._lock:
            mapping = self._idle.pop(file, None)
            if mapping is None:
                return None
            self._idle_bytes -= len(mapping.memory)
        return None if was_written(mapping.memory) else mapping.memory

    def _release(self, owner: EndpointInfo, mapping: Mapping) -> None:
        if os.getpid() == self._process:  # the copy of a forked child is not ours to give back
            self._on_release(owner, mapping)


@dataclass(slots=True)
class Mapping:
    """A private mapping of another process's block.

    Attributes:
        block: Path and number of the block.
        file: Device and inode of its file.
        memory: The mapping.
    """

    block: tuple[str, int]
    file: tuple[int, int]
    memory: mmap.mmap


def was_written(memory: mmap.mmap) -> bool:
    """Whether a page of a private mapping of a file was written to and is its own since, or the kernel cannot tell."""
    import numpy as np

    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    count = -(-len(memory) // mmap.PAGESIZE)
    try:
        descriptor = os.open(_PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, count * _PAGEMAP_BYTES, address // mmap.PAGESIZE * _PAGEMAP_BYTES)
        finally:
            os.close(descriptor)
    except OSError:  # some sandboxes (gVisor) have no such file
        return True
    pages = np.frombuffer(data, np.uint64)
    in_use = pages & np.uint64(_PAGE_PRESENT | _PAGE_SWAPPED) != 0
    own = pages & np.uint64(_PAGE_OF_FILE) == 0
    return len(pages) < count or bool((in_use & own).any())


def usable_bases() -> list[Path]:
    """Return where segments may be, best first: shared memory unless there is little of it, then the disk."""
    bases = [temporary_base()]
    total = shared_memory_bytes()
    if total >= _SMALL_MEMORY_BYTES:
        bases.insert(0, SHARED_MEMORY)
    else:
        get_logger(__name__).info(
            "%s holds %d MB only; large messages go through files in %s.", SHARED_MEMORY, total >> 20, bases[0]
        )
    return bases


def shared_memory_bytes() -> int:
    """Return the size of this node's shared memory, 0 when there is none."""
    try:
        space = os.statvfs(SHARED_MEMORY)
    except OSError:
        return 0
    return space.f_frsize * space.f_blocks


def size_class(num_bytes: int) -> int:
    """Return the size of the segment for a number of bytes: four steps from one power of two to the next."""
    if num_bytes <= _SMALLEST_BYTES:
        return _SMALLEST_BYTES
    step = max(1 << ((num_bytes - 1).bit_length() - 3), mmap.PAGESIZE)
    return -(-num_bytes // step) * step


def copy_bytes(target: memoryview, source: memoryview) -> None:
    """Copy bytes, letting other threads run meanwhile where numpy is loaded."""
    numpy = sys.modules.get("numpy")
    if numpy is None or source.nbytes < _SMALLEST_BYTES:
        target[:] = source
    else:
        numpy.copyto(numpy.frombuffer(target, numpy.uint8), numpy.frombuffer(source, numpy.uint8))


def map_file(path: str, num_bytes: int, *, shared: bool) -> mmap.mmap:
    """Map the first bytes of a file: ``shared``, or privately, copied when written to.

    Raises:
        OSError: The file is gone, or shorter than that.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size < num_bytes:
            raise OSError(errno.EINVAL, "The file is shorter than what was to be mapped", path)
        return _map(descriptor, num_bytes, shared=shared)
    finally:
        os.close(descriptor)


def _map(descriptor: int, num_bytes: int, *, shared: bool) -> mmap.mmap:
    # Python's own mapping of a file keeps a descriptor open each. So this takes an anonymous one, which frees its range
    # of addresses in the end, and puts the file in its place.
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    flags = _MAP_FIXED | (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
    if _libc.mmap(address, num_bytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0) != address:
        raise OSError(ctypes.get_errno(), "mmap failed")
    return memory
