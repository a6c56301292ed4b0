"""The bytes that host and guest exchange: a JSON header, and raw arrays; nothing in them is ever executed.

A message is ``RLG1``, the header's length (u32, little endian), the header, and the arrays at offsets that are
multiples of 64 bytes, counted from the end of the header. In the header ``{"__array": [dtype, shape, offset]}`` stands
for an array.

Where host and guest share memory, a message whose arrays take more than ``SHARED_BYTES`` leaves them there: it begins
with ``RLS1``, and after the header has their length alone (u64).
"""

from __future__ import annotations

import functools
import json
import operator
import struct
from typing import Any

import numpy as np

MAGIC = b"RLG1"
SHARED_MAGIC = b"RLS1"
PROTOCOL = 3
"""Changes with the meaning of messages."""
MAX_BYTES = 2**31 - 1
"""Of one message: a chunk of images of many environments has less."""
MAX_HEADER_BYTES = 2**25
"""Of a message's header, which becomes objects of many times its size; those of a thousand environments have less."""
SHARED_BYTES = 2**20
"""Arrays of a message that take more go through shared memory, where there is one."""
MAX_DEPTH = 32
"""Of lists and mappings within each other, and of an array's dimensions."""
HEARTBEAT_SECONDS = 15.0
"""How often a guest says that it works on a request."""

_ALIGNMENT = 64
_KINDS = "biuf"
"""Kinds of numbers in arrays: booleans, integers and floats."""
_ARRAY = "__array"


class WireError(ValueError):
    """A message is not one of this protocol."""


def encode(value: Any, shared: memoryview | None = None) -> bytes:
    """Return a message.

    Args:
        value: Numbers, strings, None, arrays of numbers, and lists, tuples and mappings with string keys of these.
        shared: Memory that the other end sees, which it has read when it says something again.

    Raises:
        WireError: Something else is in it, or it is larger or deeper than ``MAX_BYTES`` and its like allow.
    """
    arrays: list[tuple[int, Any]] = []
    end = [0]
    header = json.dumps(_describe(value, arrays, end, 0)).encode()
    if len(header) > MAX_HEADER_BYTES:
        raise WireError(f"header of {len(header)} bytes; at most {MAX_HEADER_BYTES} are allowed")
    start = len(MAGIC) + 4 + len(header)
    if start + end[0] > MAX_BYTES:
        raise WireError(f"message of {start + end[0]} bytes; at most {MAX_BYTES} are allowed")
    length = struct.pack("<I", len(header))
    if shared is not None and SHARED_BYTES < end[0] <= len(shared):
        _write(arrays, shared)
        return SHARED_MAGIC + length + header + struct.pack("<Q", end[0])
    message = bytearray(start + end[0])
    message[:start] = MAGIC + length + header
    _write(arrays, memoryview(message)[start:])
    return bytes(message)


def decode(message: bytes, shared: memoryview | None = None) -> Any:
    """Return what a message holds; arrays lie in a copy of it and can be written to.

    What it takes is bounded before it is done: bytes of message and header, depth, and arrays within the bytes that
    are there.

    Args:
        message: The bytes that arrived.
        shared: Memory that the other end may have left arrays in.

    Raises:
        WireError: It is not a message of this protocol.
    """
    start = len(MAGIC) + 4
    if len(message) > MAX_BYTES:
        raise WireError(f"message of {len(message)} bytes; at most {MAX_BYTES} are allowed")
    if len(message) < start or message[: len(MAGIC)] not in (MAGIC, SHARED_MAGIC):
        raise WireError(f"message begins with {message[:start]!r}, not with {MAGIC!r}")
    (length,) = struct.unpack_from("<I", message, len(MAGIC))
    if start + length > len(message) or length > MAX_HEADER_BYTES:
        raise WireError(f"message of {len(message)} bytes has a header of {length}; allowed: {MAX_HEADER_BYTES}")
    try:
        header = json.loads(message[start : start + length].decode())
    except (ValueError, RecursionError) as error:
        raise WireError(f"header is not JSON, or too deep: {error}") from error
    body = memoryview(message)[start + length :]
    if message[: len(MAGIC)] == SHARED_MAGIC:
        body = _shared_body(body, shared)
    return _restore(header, memoryview(bytearray(body)), 0)


def _write(arrays: list[tuple[int, Any]], body: memoryview) -> None:
    """Copy arrays to their offsets, each once."""
    for offset, array in arrays:
        body[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8).data


def _shared_body(said: memoryview, shared: memoryview | None) -> memoryview:
    if shared is None or len(said) != struct.calcsize("<Q"):
        raise WireError("message has its arrays in shared memory, and there is none, or it does not say how many bytes")
    (size,) = struct.unpack("<Q", said)
    if size > len(shared):
        raise WireError(f"message has {size} bytes in shared memory, which has {len(shared)}")
    return shared[:size]


def _describe(value: Any, arrays: list[tuple[int, Any]], end: list[int], depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    _check_depth(depth)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value) or _ARRAY in value:
            raise WireError(f"keys have to be strings other than {_ARRAY!r}; received {list(value)[:5]}")
        return {key: _describe(item, arrays, end, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_describe(item, arrays, end, depth + 1) for item in value]
    if isinstance(value, np.generic):
        return _describe(value.item(), arrays, end, depth + 1)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in _KINDS:
        raise WireError(f"values of type {type(value).__name__} cannot be sent; numbers, strings and arrays can")
    array = np.ascontiguousarray(value)
    offset = -(-end[0] // _ALIGNMENT) * _ALIGNMENT
    arrays.append((offset, array))
    end[0] = offset + array.nbytes
    return {_ARRAY: [array.dtype.str, list(value.shape), offset]}


def _restore(value: Any, body: memoryview, depth: int) -> Any:
    if not isinstance(value, (list, dict)):
        return value
    _check_depth(depth)
    if isinstance(value, list):
        return [_restore(item, body, depth + 1) for item in value]
    if _ARRAY not in value:
        return {key: _restore(item, body, depth + 1) for key, item in value.items()}
    return _restore_array(value[_ARRAY], body)


def _restore_array(described: Any, body: memoryview) -> Any:
    try:
        text, shape, offset = described
        is_described = isinstance(text, str) and all(type(number) is int for number in [offset, *shape])
        dtype = np.dtype(text) if is_described and len(shape) <= MAX_DEPTH else None
    except (TypeError, ValueError, SyntaxError) as error:
        raise WireError(f"{str(described)[:200]} describes no array") from error
    if dtype is None or dtype.kind not in _KINDS or min([offset, *shape]) < 0:
        raise WireError(f"{str(described)[:200]} describes no array of numbers")
    # In Python's integers, which do not overflow.
    size = dtype.itemsize * functools.reduce(operator.mul, shape, 1)
    if offset + size > len(body):
        raise WireError(f"array {str(described)[:200]} does not fit into a body of {len(body)} bytes")
    try:
        return np.frombuffer(body[offset : offset + size], dtype).reshape(shape)
    except (ValueError, OverflowError) as error:  # of more dimensions than numpy has, or one of 2**70 beside one of 0
        raise WireError(f"{str(described)[:200]} describes no array") from error


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise WireError(f"lists and mappings are more than {MAX_DEPTH} deep")
