"""Messages hold numbers, strings and arrays; everything else is refused on both sides."""

import json
import struct
from typing import Any

import numpy as np
import pytest

from rlinf.envs.guests.guest_wire import MAGIC, SHARED_BYTES, SHARED_MAGIC, WireError, decode, encode


def message(header: Any, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return MAGIC + struct.pack("<I", len(text)) + text + body


def test_what_is_sent_arrives() -> None:
    sent = {
        "images": np.arange(24, dtype=np.uint8).reshape(2, 4, 3),
        "flags": np.array([[True], [False]]),
        "states": np.arange(6, dtype=np.float64).reshape(3, 2).T,
        "empty": np.zeros((0, 5), np.int64),
        "rest": [1, 2.5, None, True, "Würfel", {"deep": np.float32(0.5)}],
    }
    received = decode(encode(sent))
    assert received["rest"] == [1, 2.5, None, True, "Würfel", {"deep": 0.5}]
    for name in ("images", "flags", "states", "empty"):
        assert received[name].dtype == sent[name].dtype  # type: ignore[index]
        assert np.array_equal(received[name], sent[name])  # type: ignore[index]


def test_arrays_begin_at_multiples_of_64_bytes_and_can_be_written_to() -> None:
    sent = encode([np.ones(3, np.uint8), np.full(2, 7, np.int64)])
    (length,) = struct.unpack_from("<I", sent, 4)
    assert [entry["__array"][2] for entry in json.loads(sent[8 : 8 + length])] == [0, 64]
    first, second = decode(sent)
    first[:] = 9
    assert second.tolist() == [7, 7]


@pytest.mark.parametrize("value", [object(), {1: "a"}, {"__array": 1}, np.array(["text"]), np.array([1j]), b"bytes"])
def test_other_values_are_not_sent(value: Any) -> None:
    with pytest.raises(WireError):
        encode([value])


@pytest.mark.parametrize(
    "received",
    [
        b"",
        b"\x80\x04pickled",
        MAGIC + struct.pack("<I", 100) + b"{}",
        message([])[:-2] + b"\xff\xff",
        message({"__array": ["<f4", [2], 0]}, b"1234567"),
        message({"__array": ["<f4", [2], -4]}, b"12345678"),
        message({"__array": ["<f4", [-1], 0]}, b"12345678"),
        message({"__array": ["|O", [1], 0]}, b"12345678"),
        message({"__array": "no"}, b"12345678"),
    ],
)
def test_bytes_that_are_no_message_are_refused(received: bytes) -> None:
    with pytest.raises(WireError):
        decode(received)


@pytest.mark.parametrize("dtype", ["|O", "<c8", "<U2", "<M8[s]"])
def test_an_array_of_anything_but_numbers_is_refused(dtype: str) -> None:
    with pytest.raises(WireError, match="describes no array of numbers"):
        decode(message({"__array": [dtype, [1], 0]}, b"12345678"))


def test_what_is_nested_deeply_is_neither_sent_nor_taken() -> None:
    value: Any = 1
    for _ in range(33):
        value = [value]
    assert decode(encode(value[0])) == value[0]
    with pytest.raises(WireError, match="32 deep"):
        encode([value])
    with pytest.raises(WireError, match="32 deep"):
        decode(message([value]))
    with pytest.raises(WireError, match="deep"):
        encode([itself := [], itself.append(itself)])  # type: ignore[func-returns-value]


def test_large_arrays_lie_in_shared_memory_and_small_ones_in_the_message() -> None:
    shared = memoryview(bytearray(2 * SHARED_BYTES))
    large = np.arange(SHARED_BYTES // 4 + 1, dtype=np.int32)
    sent = encode([large, np.ones(3)], shared)
    assert sent.startswith(SHARED_MAGIC)
    assert len(sent) < 200
    first, second = decode(sent, shared)
    shared[:8] = b"\xff" * 8
    assert np.array_equal(first, large), "what arrived is a copy"
    assert second.tolist() == [1, 1, 1]
    first[:] = 0
    assert encode([large[:-1]], shared).startswith(MAGIC), "not above the limit"
    assert encode([np.zeros(2 * SHARED_BYTES + 1, np.uint8)], shared).startswith(MAGIC), "more than there is room for"


@pytest.mark.parametrize(
    ("size", "shared", "told"),
    [
        (struct.pack("<Q", 4), None, "and there is none"),
        (b"", memoryview(bytes(8)), "does not say how many"),
        (struct.pack("<Q", 9), memoryview(bytes(8)), "9 bytes in shared memory, which has 8"),
        (struct.pack("<Q", 2**63), memoryview(bytes(8)), "which has 8"),
    ],
)
def test_shared_memory_is_not_read_beyond_its_end(size: bytes, shared: memoryview | None, told: str) -> None:
    received = message({"__array": ["|u1", [4], 0]}).replace(MAGIC, SHARED_MAGIC) + size
    with pytest.raises(WireError, match=told):
        decode(received, shared)


def test_an_array_that_reaches_beyond_its_message_is_told_so() -> None:
    with pytest.raises(WireError, match="does not fit into a body of 7 bytes"):
        decode(message({"__array": ["<f4", [2], 0]}, b"1234567"))
