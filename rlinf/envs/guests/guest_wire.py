"""The bytes that host and guest exchange: a JSON header, and raw arrays; nothing in them is ever executed.

A message is ``RLG1``, the header's length (u32, little endian), the header, and the arrays at offsets that are
multiples of 64 bytes, counted from the end of the header. In the header ``{"__array": [dtype, shape, offset]}`` stands
for an array.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

MAGIC = b"RLG1"
PROTOCOL = 1
"""Changes with the meaning of messages."""
MAX_BYTES = 2**31 - 1
"""Of one message: a chunk of images of many environments has less."""

_ALIGNMENT = 64
_KINDS = "biuf"
"""Kinds of numbers in arrays: booleans, integers and floats."""
_ARRAY = "__array"


class WireError(ValueError):
    """A message is not one of this protocol."""


def encode(value: Any) -> bytes:
    """Return a message.

    Args:
        value: Numbers, strings, None, arrays of numbers, and lists, tuples and mappings with string keys of these.

    Raises:
        WireError: Something else is in it, or it is larger than ``MAX_BYTES``.
    """
    arrays: list[tuple[int, Any]] = []
    end = [0]
    header = json.dumps(_describe(value, arrays, end)).encode()
    start = len(MAGIC) + 4 + len(header)
    if start + end[0] > MAX_BYTES:
        raise WireError(f"message of {start + end[0]} bytes; at most {MAX_BYTES} are allowed")
    message = bytearray(start + end[0])
    message[:start] = MAGIC + struct.pack("<I", len(header)) + header
    for offset, array in arrays:
        # Each array is copied once.
        message[start + offset : start + offset + array.nbytes] = array.reshape(-1).view(np.uint8).data
    return bytes(message)


def decode(message: bytes) -> Any:
    """Return what a message holds; arrays lie in a copy of it and can be written to.

    Raises:
        WireError: It is not a message of this protocol.
    """
    start = len(MAGIC) + 4
    if len(message) < start or message[: len(MAGIC)] != MAGIC:
        raise WireError(f"message begins with {message[:start]!r}, not with {MAGIC!r}")
    (length,) = struct.unpack_from("<I", message, len(MAGIC))
    if start + length > len(message):
        raise WireError(f"message of {len(message)} bytes has a header of {length}")
    try:
        header = json.loads(message[start : start + length].decode())
    except ValueError as error:
        raise WireError(f"header is not JSON: {error}") from error
    return _restore(header, memoryview(bytearray(message[start + length :])))


def _describe(value: Any, arrays: list[tuple[int, Any]], end: list[int]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value) or _ARRAY in value:
            raise WireError(f"keys have to be strings other than {_ARRAY!r}; received {list(value)[:5]}")
        return {key: _describe(item, arrays, end) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_describe(item, arrays, end) for item in value]
    if isinstance(value, np.generic):
        return _describe(value.item(), arrays, end)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in _KINDS:
        raise WireError(f"values of type {type(value).__name__} cannot be sent; numbers, strings and arrays can")
    array = np.ascontiguousarray(value)
    offset = -(-end[0] // _ALIGNMENT) * _ALIGNMENT
    arrays.append((offset, array))
    end[0] = offset + array.nbytes
    return {_ARRAY: [array.dtype.str, list(value.shape), offset]}


def _restore(value: Any, body: memoryview) -> Any:
    if isinstance(value, list):
        return [_restore(item, body) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY not in value:
        return {key: _restore(item, body) for key, item in value.items()}
    try:
        text, shape, offset = value[_ARRAY]
        dtype = np.dtype(text)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    except (TypeError, ValueError) as error:
        raise WireError(f"{value[_ARRAY]!r} describes no array") from error
    if dtype.kind not in _KINDS or min([offset, *shape], default=0) < 0 or offset + size > len(body):
        raise WireError(f"array {value[_ARRAY]!r} does not fit into a body of {len(body)} bytes")
    return np.frombuffer(body[offset : offset + size], dtype).reshape(shape)
