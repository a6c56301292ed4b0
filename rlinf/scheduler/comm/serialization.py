"""Objects to frames and back: pickle 5 with out-of-band buffers, tensors found wherever they are nested.

There is one pickler (cloudpickle's, which also takes closures and classes of ``__main__``), chosen before a byte is
written: no fast path that fails half-way and leaves a corrupt stream.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    import torch

Buffer = bytes | bytearray | memoryview

# No element type needs more; memory that comes less aligned is copied.
_REQUIRED_ALIGNMENT_BYTES = 8
# A copy starts at a cache line.
_COPY_ALIGNMENT_BYTES = 64


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Takes the memory of dense tensors out of band, wherever they are in the object."""

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor):
            reduced = _reduce_tensor(obj)
            if reduced is not None:
                return reduced
        return super().reducer_override(obj)


def encode(obj: Any) -> list[Buffer]:
    """Turn an object into frames: first the pickle, then one frame for each large buffer.

    The buffer frames alias the object's memory: send or copy them before the object changes.

    Raises:
        TypeError: Or another error of pickle: the object cannot be pickled. Nothing has been sent then.
    """
    stream = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(obj)
    return [stream.getvalue(), *(buffer.raw() for buffer in buffers)]


def decode(frames: Sequence[Buffer]) -> Any:
    """Rebuild the object from the frames of ``encode``; its arrays and tensors are writable, maybe on their memory."""
    return pickle.loads(frames[0], buffers=[_writable(frame) for frame in frames[1:]])


class UnreadableFrames(list[Any]):
    """In place of frames that did not arrive: whoever decodes them gets the reason.

    Args:
        error: The reason.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__([b""])
        self._error = error

    def __getitem__(self, index: Any) -> Any:
        raise self._error


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor in row-major order, through host memory if it lives elsewhere."""
    import torch

    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


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


def _reduce_tensor(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    import torch

    kind = type(tensor)
    if kind not in {torch.Tensor, torch.nn.Parameter} or tensor.layout is not torch.strided or tensor.is_quantized:
        return None  # torch's own pickling knows sparse, quantized and subclassed tensors
    if tensor.device.type == "meta":
        return None
    requires_grad = tensor.requires_grad and tensor.is_leaf
    state = (tensor.dtype, tuple(tensor.shape), tensor.device.type, requires_grad, kind is torch.nn.Parameter)
    return _rebuild_tensor, (pickle.PickleBuffer(tensor_bytes(tensor)), *state)


def _rebuild_tensor(
    data: Any, dtype: torch.dtype, shape: tuple[int, ...], device_type: str, requires_grad: bool, is_parameter: bool
) -> torch.Tensor:
    import torch

    if memoryview(data).nbytes:
        tensor = torch.frombuffer(data, dtype=dtype).reshape(shape)
    else:
        tensor = torch.empty(shape, dtype=dtype)
    if device_type == "cuda" and torch.cuda.is_available():
        tensor = tensor.to(torch.device("cuda", torch.cuda.current_device()))
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
