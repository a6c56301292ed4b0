"""Whatever a guest sends, its reply fits what was pending, or there is one kind of error."""

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlinf.envs.guest_replies import PendingRequest, read_hello, read_reply
from rlinf.envs.guests.guest_wire import MAGIC, WireError, encode
from rlinf.envs.raw_chunk import RawChunk, RawReset
from rlinf.envs.single_env import Spaces

B, C = 2, 3
Answer = dict[str, Any]


def described() -> Answer:
    return {
        "action_low": np.full(2, -1, np.float32),
        "action_high": np.ones(2, np.float32),
        "observation": {"states": ["<f4", [4]], "main_images": ["|u1", [4, 5, 3]], "task_descriptions": "text"},
    }


def spaces() -> Spaces:
    found = read_reply(encode(["ok", described()]), PendingRequest("build"))[1]
    assert isinstance(found, Spaces)
    return found


def row() -> Answer:
    return {"states": np.zeros(4, np.float32), "main_images": np.zeros((4, 5, 3), np.uint8), "task_descriptions": "go"}


def rows(number: int) -> Answer:
    return {
        "states": np.zeros((number, 4), np.float32),
        "main_images": np.zeros((number, 4, 5, 3), np.uint8),
        "task_descriptions": ["go"] * number,
    }


def chunk() -> Answer:
    flags = {name: np.zeros((B, C), np.bool_) for name in ("truncations", "successes", "executed")}
    return {
        "rewards": np.ones((B, C), np.float32),
        "terminations": np.array([[False] * C, [True] + [False] * (C - 1)]),
        **flags,
        "obs": rows(B),
        "final_ids": np.array([1]),
        "final_obs": rows(1),
        "frames": {"0": [np.zeros((8, 8, 3), np.uint8)]},
        "reset_frames": {"1": np.zeros((8, 8, 3), np.uint8)},
        "render_error": None,
        "observations": {"0": [row()]},
        "reports_success": True,
    }


def reset() -> Answer:
    return {"obs": rows(B), "frames": {"0": np.zeros((8, 8, 3), np.uint8)}, "render_error": "no display"}


CHUNK, RESET = PendingRequest("chunk", (B, C), spaces()), PendingRequest("reset", (B,), spaces())


def test_replies_become_what_the_pool_works_with() -> None:
    found = read_reply(encode(["ok", chunk()]), CHUNK)[1]
    assert isinstance(found, RawChunk)
    assert (list(found.frames), list(found.reset_frames), list(found.observations)) == ([0], [1], [0])
    assert found.final_ids.tolist() == [1]
    began = read_reply(encode(["ok", reset()]), RESET)[1]
    assert isinstance(began, RawReset)
    assert began.render_error == "no display"
    assert read_reply(encode(["alive", {"seconds": 1.5, "progress": 3}]), CHUNK)[0] == "alive"
    assert read_hello(encode(["hello", {"protocol": 2}])) == {"protocol": 2, "versions": {}}


def changed(make: Callable[[], Answer], **changes: Any) -> bytes:
    return encode(["ok", {**make(), **changes}])


@pytest.mark.parametrize(
    ("message", "pending", "told"),
    [
        (encode(["ok", 3]), CHUNK, "'ok' with a int"),
        (encode(["done", {}]), CHUNK, "kind 'done'"),
        (encode({"ok": {}}), CHUNK, "in place of two values"),
        (encode(["error", ["ValueError", "text"]]), CHUNK, "three texts"),
        (encode(["error", ["ValueError", "text", 3]]), CHUNK, "three texts"),
        (encode(["alive", {"seconds": "1", "progress": 3}]), CHUNK, "heartbeat"),
        (changed(chunk, rewards=np.ones((B, C + 1), np.float32)), CHUNK, r"rewards is float32 \[2, 4\], expected"),
        (changed(chunk, rewards=np.ones((B, C))), CHUNK, "rewards is float64"),
        (changed(chunk, executed=None), CHUNK, "executed is NoneType"),
        (changed(chunk, final_ids=np.array([0])), CHUNK, r"final_ids \[0\], but rows \[1\] ended"),
        (changed(chunk, final_obs=None), CHUNK, "no final_obs"),
        (changed(chunk, obs=rows(B + 1)), CHUNK, "obs: 'states' is float32"),
        (changed(chunk, obs={"states": np.zeros((B, 4), np.float32)}), CHUNK, "first it had"),
        (changed(chunk, frames={"0": [np.zeros((8, 8), np.uint8)]}), CHUNK, "frame that is not"),
        (changed(chunk, frames={"zero": []}), CHUNK, "frames by row"),
        (changed(chunk, observations={"7": [row()]}), CHUNK, "lists by row"),
        (changed(chunk, observations={"0": [{**row(), "states": np.zeros(3, np.float32)}]}), CHUNK, "within a chunk"),
        (changed(chunk, reports_success=None), CHUNK, "reports_success"),
        (changed(reset, obs={**rows(B), "task_descriptions": ["go", 1]}), RESET, "no list of 2 strings"),
        (changed(reset, render_error=3), RESET, "render_error"),
        (changed(described, action_low=np.zeros((1, 2), np.float32)), PendingRequest("build"), "action_low"),
        (changed(described, action_low=np.zeros(3, np.float32)), PendingRequest("build"), r"\(3,\) and \(2,\)"),
        (changed(described, observation={"states": ["|O", [1]]}), PendingRequest("build"), "no array"),
        (changed(described, observation={"states": ["<f4", [2**40]]}), PendingRequest("build"), "numbers a row"),
        (changed(described, observation={"states": ["<f4", [-1]]}), PendingRequest("build"), "no array"),
        (changed(described, observation={}), PendingRequest("build"), "no observation"),
    ],
)
def test_what_does_not_fit_is_named(message: bytes, pending: PendingRequest, told: str) -> None:
    with pytest.raises(WireError, match=told):
        read_reply(message, pending)


def deep(depth: int) -> bytes:
    header = b'["ok",' + b"[" * depth + b"]" * depth + b"]"
    return MAGIC + struct.pack("<I", len(header)) + header


def array(shape: list[int], dtype: str = "<f4") -> bytes:
    header = json.dumps(["ok", {"__array": [dtype, shape, 0]}]).encode()
    return MAGIC + struct.pack("<I", len(header)) + header + bytes(8)


@pytest.mark.parametrize(
    "message",
    [deep(40), deep(10**6), array([2**62, 2**62]), array([2**70, 0]), array([0] * 70), array([1] * 40)]
    + [array([2**31, 2**31, 4]), array([2], "<f4,<f4"), array([2], "4096V"), array([8], "|S1"), array([1], "<M8[s]")],
)
def test_bombs_are_refused_as_any_other_bytes(message: bytes) -> None:
    with pytest.raises(WireError):
        read_reply(message, CHUNK)


@pytest.mark.parametrize("kind", ["random", "truncated", "flipped", "header"])
@pytest.mark.parametrize("seed", range(3))
def test_damaged_bytes_give_a_reply_that_fits_or_one_kind_of_error(kind: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    build = PendingRequest("build")
    valid = [(encode(["ok", chunk()]), CHUNK), (encode(["ok", reset()]), RESET), (changed(described), build)]
    refused = 0
    for number in range(400):
        whole, pending = valid[number % 3]
        damaged = bytearray(whole)
        if kind == "random":
            noise = generator.bytes(int(generator.integers(0, 200)))
            damaged = bytearray(MAGIC + struct.pack("<I", len(noise) // 2) + noise if number % 2 else noise)
        elif kind == "truncated":
            damaged = damaged[: int(generator.integers(0, len(damaged)))]
        else:
            (length,) = struct.unpack_from("<I", whole, 4)
            stop = 8 + length if kind == "header" else len(damaged)
            for place in generator.integers(8 if kind == "header" else 0, stop, int(generator.integers(1, 4))):
                damaged[place] = int(generator.integers(0, 256)) if number % 2 else damaged[place] ^ 1
        try:
            _, answer = read_reply(bytes(damaged), pending)
        except WireError:
            refused += 1
        else:
            assert isinstance(answer, RawChunk | RawReset | Spaces)
    assert refused > {"random": 399, "truncated": 395, "flipped": 20, "header": 200}[kind]
