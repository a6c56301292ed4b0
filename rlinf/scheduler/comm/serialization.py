"""Objects to frames and back: pickle 5 with out-of-band buffers, found wherever they are nested.

The memory of tensors, of arrays and of large ``bytes`` and ``bytearray`` travels next to the pickle.

The pickler (cloudpickle's, which also takes closures and classes of ``__main__``; the plain one for small plain data)
is chosen before a byte is written: no fast path that fails half-way and leaves a corrupt stream. The class of a message
that travels often joins the plain data by ``plain_fields``: the names of its fields that may hold anything, which are
looked through; every other field is plain by its type.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

import cloudpickle

from rlinf.errors import ClusterError, PayloadError
from rlinf.scheduler.comm.segment_pool import copy_bytes

if TYPE_CHECKING:
    import torch

Buffer = bytes | bytearray | memoryview
Park: TypeAlias = "Callable[[torch.Tensor], Any | None]"
"""Keeps a tensor where it is and returns the ticket to send in its place; None where the tensor itself is sent."""
Fetch: TypeAlias = "Callable[[Any], torch.Tensor]"
"""Returns the tensor of a ticket."""

_fetch: ContextVar[Fetch | None] = ContextVar("fetch", default=None)

# No element type needs more; memory that comes less aligned is copied.
_REQUIRED_ALIGNMENT_BYTES = 8
# A copy starts at a cache line.
_COPY_ALIGNMENT_BYTES = 64
# Larger bytes and bytearrays travel next to the pickle.
_OUT_OF_BAND_BYTES = 1 << 16
# First byte of a pickle with such bytes, which takes an unpickler of its own; other pickles begin with 0x80.
_WITH_BYTES = b"\0"
# From this size on, memory is allocated on huge pages.
_HUGE_BYTES = 4 << 20
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)
_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)
# How an object is made without contents, and where they belong.
_NEW_BYTES = (
    _make(("PyBytes_FromStringAndSize", ctypes.pythonapi)),
    _address(("PyBytes_AsString", ctypes.pythonapi)),
)
_NEW_BYTEARRAY = (
    _make(("PyByteArray_FromStringAndSize", ctypes.pythonapi)),
    _address(("PyByteArray_AsString", ctypes.pythonapi)),
)
# Types that every pickler writes alike, and how much of a nest is looked through to find that there are no others.
_PLAIN_TYPES = frozenset({bytes, str, int, float, bool, type(None)})
_PLAIN_NESTS = frozenset({tuple, list, dict})
_PLAIN_DEPTH = 3
_PLAIN_ITEMS = 8
_FIELD_DEPTH = 1


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes the memory of dense tensors out of band, wherever they are in the object."""

    park: Park | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # By identity; what has no other reference must live until the end.
        self.out_of_band: dict[int, tuple[int, Any]] = {}

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if (kind is not bytes and kind is not bytearray) or len(obj) < _OUT_OF_BAND_BYTES:
            return None
        known = self.out_of_band.get(id(obj))
        if known is not None:
            return known[0]
        self.out_of_band[id(obj)] = (len(self.out_of_band), obj)
        return kind is bytearray, pickle.PickleBuffer(obj)

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor):
            reduced = _reduce_tensor(obj, self.park)
            if reduced is not None:
                return reduced
        return _reduce_array(obj) or super().reducer_override(obj)


class _PlainPickler(pickle.Pickler):
    """Tensors out of band, as ``_Pickler``; all else as Python does."""

    park: Park | None = None

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        reduced = _reduce_tensor(obj, self.park) if torch is not None and type(obj) is torch.Tensor else None
        return reduced or _reduce_array(obj) or NotImplemented


class _Unpickler(pickle.Unpickler):
    """Reads a pickle with bytes next to it."""

    def __init__(self, stream: io.BytesIO, buffers: Sequence[Buffer]) -> None:
        super().__init__(stream, buffers=buffers)
        self._beside: list[Any] = []

    def persistent_load(self, pid: Any) -> Any:
        if type(pid) is int:
            return self._beside[pid]
        is_bytearray, data = pid
        self._beside.append(_copy(data, _NEW_BYTEARRAY if is_bytearray else _NEW_BYTES))
        return self._beside[-1]


def _copy(data: Buffer, new: tuple[Any, Any]) -> Any:
    """Return a copy of the data in a new object, on huge pages where it is large: faults cost more than the copy."""
    make, address_of = new
    source = memoryview(data)
    made = make(None, source.nbytes)
    address = address_of(made)
    if source.nbytes >= _HUGE_BYTES:
        start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
        _madvise(start, (address + source.nbytes - start) // mmap.PAGESIZE * mmap.PAGESIZE, mmap.MADV_HUGEPAGE)
    # The object is not visible yet: filling it is what Python's own constructors do.
    copy_bytes(memoryview((ctypes.c_char * source.nbytes).from_address(address)).cast("B"), source)
    return made


def encode(obj: Any, park: Park | None = None) -> list[Buffer]:
    """Turn an object into frames: first the pickle, then one frame for each large buffer.

    The buffer frames alias the object's memory: send or copy them before the object changes.

    Args:
        obj: Anything.
        park: Called for each dense tensor; None sends them all.

    Raises:
        TypeError: Or another error of pickle: the object cannot be pickled. Nothing has been sent then.
    """
    plainness = _plainness(obj, _PLAIN_DEPTH, sys.modules.get("torch"))
    if plainness == 2:
        return [pickle.dumps(obj, protocol=5)]
    stream = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    pickler = _PlainPickler if plainness else _Pickler
    writer = pickler(stream, protocol=5, buffer_callback=buffers.append)
    writer.park = park
    writer.dump(obj)
    frames: list[Buffer] = [stream.getvalue(), *(buffer.raw() for buffer in buffers)]
    if isinstance(writer, _Pickler) and writer.out_of_band:
        frames[0] = _WITH_BYTES + frames[0]
    return frames


def _plainness(obj: Any, depth: int, torch: Any) -> int:
    """Return whether ``obj`` is small and of types that every pickler writes alike, so that a faster one does.

    Returns:
        2 if Python's own function writes it; 1 if it holds memory that travels next to the pickle; 0 otherwise.
    """
    kind = type(obj)
    if kind in _PLAIN_TYPES:
        return 2 if kind is not bytes or len(obj) < _OUT_OF_BAND_BYTES else 0
    if kind in _PLAIN_NESTS:
        if not depth or len(obj) > _PLAIN_ITEMS:
            return 0
        parts: Iterable[Any] = (*obj, *obj.values()) if kind is dict else obj
        depth -= 1
    elif (fields := kind.__dict__.get("plain_fields")) is not None:
        parts, depth = [getattr(obj, name) for name in fields], _FIELD_DEPTH
    else:
        has_strides = torch is not None and kind is torch.Tensor and obj.layout is torch.strided
        return 1 if has_strides or _is_plain_array(obj) else 0
    least = 2
    for part in parts:
        found = _plainness(part, depth, torch)
        if not found:
            return 0
        least = min(least, found)
    return least


def decode(frames: Sequence[Buffer], fetch: Fetch | None = None) -> Any:
    """Rebuild the object from the frames of ``encode``; its arrays and tensors are writable, maybe on their memory.

    Args:
        frames: What ``encode`` returned.
        fetch: Gets the tensors that the sender has parked.
    """
    token = _fetch.set(fetch)
    try:
        head, buffers = frames[0], [_writable(frame) for frame in frames[1:]]
        if head[:1] == _WITH_BYTES:
            return _Unpickler(io.BytesIO(head[1:]), buffers).load()
        return pickle.loads(head, buffers=buffers)
    finally:
        _fetch.reset(token)


class UnreadableFrames(list[Any]):
    """In place of frames that did not arrive: reading them raises the reason.

    Args:
        reason: Returns the error; may wait a moment for what explains it.
    """

    def __init__(self, reason: Callable[[], BaseException]) -> None:
        super().__init__([b""])
        self.reason = reason

    def __getitem__(self, index: Any) -> Any:
        raise self.reason()

    def __iter__(self) -> Iterator[Any]:
        raise self.reason()


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor in row-major order, through host memory if it lives elsewhere."""
    import torch

    if not tensor.numel():
        return memoryview(b"")
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg() or tensor.device.type != "cpu" or not tensor.is_contiguous():
        tensor = _on_host(tensor.resolve_conj().resolve_neg().contiguous())
    if tensor.dtype is not torch.float32:
        # numpy does not know every type of torch. The stride is given because that of a single element may be any.
        tensor = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    return memoryview(tensor.numpy().reshape(-1).data).cast("B")


def check_dense(tensor: torch.Tensor, where: str) -> None:
    """Check that a tensor's elements lie in memory as they are, so that they can travel as bytes.

    Raises:
        PayloadError: They do not; the message begins with ``where``.
    """
    import torch

    kinds = {
        "nested": tensor.is_nested,
        "quantized": tensor.is_quantized,
        "meta": tensor.is_meta,
        str(tensor.layout): tensor.layout is not torch.strided,
    }
    found = [kind for kind, holds in kinds.items() if holds]
    if found:
        raise PayloadError(
            f"{where} works on the bytes of dense tensors; this one is {', '.join(found)} ({tensor.dtype}). "
            "Make it dense, or use send and recv, which take any object."
        )


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if tensor.device.type != "cuda":
        return tensor.cpu()
    # Page-locked memory, which torch keeps for the next time, is several times faster to copy to.
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor)


def fill_tensor(tensor: torch.Tensor, data: Buffer) -> None:
    """Copy the bytes of ``tensor_bytes`` into a tensor of the same size.

    Raises:
        ValueError: The sizes differ.
    """
    import torch

    expected = tensor.numel() * tensor.element_size()
    if len(data) != expected:
        raise ValueError(
            f"recv_tensor got {len(data)} bytes for a tensor of {tuple(tensor.shape)} {tensor.dtype} = {expected} "
            "bytes; both sides must use the same shape and dtype."
        )
    if expected:
        source = torch.frombuffer(_writable(data), dtype=tensor.dtype).reshape(tensor.shape)
        with torch.no_grad():
            tensor.copy_(source)


def _reduce_tensor(tensor: torch.Tensor, park: Park | None) -> tuple[Any, ...] | None:
    import torch

    kind = type(tensor)
    if kind not in {torch.Tensor, torch.nn.Parameter} or tensor.layout is not torch.strided or tensor.is_quantized:
        return None  # torch's own pickling knows sparse, quantized and subclassed tensors
    device = tensor.device.type
    if device == "meta":
        return None
    if kind is torch.Tensor and device == "cpu" and not tensor.requires_grad and park is None:
        return _rebuild_plain_tensor, (pickle.PickleBuffer(tensor_bytes(tensor)), tensor.dtype, tuple(tensor.shape))
    requires_grad = tensor.requires_grad and tensor.is_leaf
    ticket = None if park is None else park(tensor)
    if ticket is not None:
        return _rebuild_parked, (ticket, requires_grad, kind is torch.nn.Parameter)
    state = (tensor.dtype, tuple(tensor.shape), device, requires_grad, kind is torch.nn.Parameter)
    return _rebuild_tensor, (pickle.PickleBuffer(tensor_bytes(tensor)), *state)


def _is_plain_array(obj: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(obj) is numpy.ndarray and obj.dtype.isbuiltin == 1 and not obj.dtype.hasobject


def _reduce_array(obj: Any) -> tuple[Any, ...] | None:
    """Reduce an array whose elements do not lie side by side: numpy itself would write them into the pickle."""
    if not _is_plain_array(obj) or obj.flags.forc:
        return None
    reduced: tuple[Any, ...] = sys.modules["numpy"].ascontiguousarray(obj).__reduce_ex__(5)
    return reduced


def _rebuild_plain_tensor(data: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    import torch

    if not memoryview(data).nbytes:
        return torch.empty(shape, dtype=dtype)
    tensor = torch.frombuffer(data, dtype=dtype)
    return tensor if len(shape) == 1 else tensor.view(shape)


def _rebuild_tensor(
    data: Any, dtype: torch.dtype, shape: tuple[int, ...], device_type: str, requires_grad: bool, is_parameter: bool
) -> torch.Tensor:
    import torch

    tensor = _rebuild_plain_tensor(data, dtype, shape)
    if device_type == "cuda" and torch.cuda.is_available():
        tensor = tensor.to(torch.device("cuda", torch.cuda.current_device()))
    return _as_leaf(tensor, requires_grad, is_parameter)


def _rebuild_parked(ticket: Any, requires_grad: bool, is_parameter: bool) -> torch.Tensor:
    fetch = _fetch.get()
    if fetch is None:
        raise ClusterError("A message holds a tensor that its sender has parked, but did not come from a worker.")
    return _as_leaf(fetch(ticket), requires_grad, is_parameter)


def _as_leaf(tensor: torch.Tensor, requires_grad: bool, is_parameter: bool) -> torch.Tensor:
    import torch

    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _writable(frame: Buffer) -> Buffer:
    view = memoryview(frame)
    if view.nbytes == 0:
        return frame
    if not view.readonly and ctypes.addressof(ctypes.c_char.from_buffer(view)) % _REQUIRED_ALIGNMENT_BYTES == 0:
        return frame
    padded = bytearray(view.nbytes + _COPY_ALIGNMENT_BYTES)
    offset = -ctypes.addressof(ctypes.c_char.from_buffer(padded)) % _COPY_ALIGNMENT_BYTES
    aligned = memoryview(padded)[offset : offset + view.nbytes]
    aligned[:] = view.cast("B")
    return aligned
