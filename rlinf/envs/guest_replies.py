"""What a guest's replies say, checked against the request: all bytes that are no reply raise ``WireError``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from rlinf.envs.guests.guest_wire import WireError, decode
from rlinf.envs.raw_chunk import RawChunk, RawObservation, RawReset
from rlinf.envs.single_env import Spaces

_LONGEST_TEXT = 4096
_LARGEST_ENTRY = 2**28
"""Bytes of an entry of one row's observation; gymnasium allocates that much for its space."""
_CHUNK_ARRAYS = {
    "rewards": np.float32,
    "terminations": np.bool_,
    "truncations": np.bool_,
    "successes": np.bool_,
    "executed": np.bool_,
}
"""Arrays [B, C] of a chunk."""
_ERROR_TEXTS = 3
"""Class, message and traceback."""


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """The last request to a guest.

    Attributes:
        kind: ``build``, ``reset``, ``chunk`` or ``versions``.
        shape: (rows,) of a reset, (B, C) of a chunk.
        spaces: Of its environments; None until it has built them.
    """

    kind: str
    shape: tuple[int, ...] = ()
    spaces: Spaces | None = None


def read_hello(message: bytes) -> dict[str, Any]:
    """Return what a greeting says: ``protocol``, and ``versions`` by package.

    Raises:
        WireError: It is no greeting.
    """
    kind, hello = _pair(decode(message))
    is_hello = kind == "hello" and isinstance(hello, dict) and "protocol" in hello
    _require(is_hello and isinstance(hello.get("versions", {}), dict), f"no hello, but {str(kind)[:50]!r}")
    return {"versions": {}, **hello}


def read_reply(message: bytes, request: PendingRequest, shared: memoryview | None = None) -> tuple[str, Any]:
    """Return a reply.

    Args:
        message: The bytes that arrived.
        request: What they answer.
        shared: Memory that the guest may have left arrays in.

    Returns:
        ``ok`` with ``Spaces``, ``RawReset``, ``RawChunk`` or versions by name; ``error`` with class, message and
        traceback; ``alive`` with ``doing``, ``seconds`` and ``progress``.

    Raises:
        WireError: It is no such reply, or does not fit the request.
    """
    kind, answer = _pair(decode(message, shared))
    if kind == "error":
        is_error = isinstance(answer, list) and len(answer) == _ERROR_TEXTS
        _require(is_error and all(isinstance(text, str) for text in answer), "an error without its three texts")
        return kind, answer
    _require(kind in {"ok", "alive"}, f"a reply of kind {str(kind)[:50]!r}; known: ok, error, alive")
    _require(isinstance(answer, dict), f"'{kind}' with a {type(answer).__name__}")
    if kind == "alive":
        numbers = [answer.get(name) for name in ("seconds", "progress")]
        _require(all(type(number) in (int, float) for number in numbers), "a heartbeat without its numbers")
        return kind, answer
    if request.kind == "build":
        return kind, _read_spaces(answer)
    if request.kind == "versions":
        _require(all(isinstance(version, str) for version in answer.values()), "versions that are no strings")
        return kind, answer
    assert request.spaces is not None
    space = request.spaces.observation
    return kind, _read_chunk(answer, request, space) if request.kind == "chunk" else _read_reset(answer, request, space)


def _read_spaces(answer: dict[str, Any]) -> Spaces:
    low, high, observation = (answer.get(name) for name in ("action_low", "action_high", "observation"))
    for bound in (low, high):
        is_bound = isinstance(bound, np.ndarray) and bound.dtype == np.float32 and bound.ndim == 1
        _require(is_bound, "action_low and action_high are not two float32 [A]")
    assert isinstance(low, np.ndarray)
    assert isinstance(high, np.ndarray)
    _require(low.shape == high.shape and low.size > 0, f"actions of {low.shape} and {high.shape} numbers")
    _require(isinstance(observation, dict) and len(observation) > 0, "no observation")
    assert isinstance(observation, dict)
    return Spaces(
        gymnasium.spaces.Box(low, high, dtype=np.float32),
        gymnasium.spaces.Dict({key: _space(key, described) for key, described in observation.items()}),
    )


def _space(key: str, described: Any) -> gymnasium.Space[Any]:
    if described == "text":
        return gymnasium.spaces.Text(_LONGEST_TEXT)
    text, size = _pair(described)
    is_shape = isinstance(size, list) and all(type(length) is int and length >= 0 for length in size)
    try:
        dtype = np.dtype(text) if isinstance(text, str) and is_shape else np.dtype(object)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype(object)
    _require(dtype.kind in "biuf", f"observation '{key}' is {str(described)[:100]}, which is no array")
    _require(
        math.prod(size) * dtype.itemsize <= _LARGEST_ENTRY, f"observation '{key}' has {math.prod(size)} numbers a row"
    )
    if dtype.kind == "f":
        return gymnasium.spaces.Box(-np.inf, np.inf, tuple(size), dtype.type)
    bounds = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype.str).min, np.iinfo(dtype.str).max)
    return gymnasium.spaces.Box(*bounds, tuple(size), dtype.type)


def _read_reset(answer: dict[str, Any], request: PendingRequest, space: gymnasium.spaces.Dict) -> RawReset:
    return RawReset(
        obs=_observation(answer.get("obs"), request.shape[0], space, "obs"),
        frames={row: _frame(frame) for row, frame in _by_row(answer, "frames").items()},
        render_error=_text_or_none(answer, "render_error"),
    )


def _read_chunk(answer: dict[str, Any], request: PendingRequest, space: gymnasium.spaces.Dict) -> RawChunk:
    num_envs, num_steps = request.shape
    arrays = {
        name: _array(answer.get(name), (num_envs, num_steps), dtype, name) for name, dtype in _CHUNK_ARRAYS.items()
    }
    ended = np.flatnonzero((arrays["terminations"] | arrays["truncations"]).any(axis=1))
    final_ids = _array(answer.get("final_ids"), ended.shape, np.int64, "final_ids")
    _require(bool((final_ids == ended).all()), f"final_ids {final_ids.tolist()}, but rows {ended.tolist()} ended")
    seen = _by_row(answer, "observations")
    for row, rows in seen.items():
        _require(isinstance(rows, list) and row < num_envs, "observations are not lists by row")
        for each in rows:
            _check_row(each, space)
    reports = answer.get("reports_success")
    _require(isinstance(reports, bool), "reports_success is not true or false")
    return RawChunk(
        **arrays,
        obs=_observation(answer.get("obs"), num_envs, space, "obs"),
        final_ids=final_ids,
        final_obs=_observation(answer.get("final_obs"), len(ended), space, "final_obs") if len(ended) else None,
        frames={row: [_frame(frame) for frame in _list(frames)] for row, frames in _by_row(answer, "frames").items()},
        reset_frames={row: _frame(frame) for row, frame in _by_row(answer, "reset_frames").items()},
        render_error=_text_or_none(answer, "render_error"),
        observations=seen,
        reports_success=bool(reports),
    )


def _observation(found: Any, num_rows: int, space: gymnasium.spaces.Dict, where: str) -> RawObservation:
    _require(isinstance(found, dict), f"no {where}")
    _require(set(found) == set(space.spaces), f"{where} has {sorted(found)}; first it had {sorted(space.spaces)}")
    for key, value in found.items():
        entry = space.spaces[key]
        if isinstance(entry, gymnasium.spaces.Text):
            is_texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
            _require(is_texts and len(value) == num_rows, f"{where}: '{key}' is no list of {num_rows} strings")
        else:
            _array(value, (num_rows, *(entry.shape or ())), entry.dtype, f"{where}: '{key}'")
    return dict(found)


def _check_row(found: Any, space: gymnasium.spaces.Dict) -> None:
    _require(isinstance(found, dict) and set(found) == set(space.spaces), "an observation within a chunk lacks keys")
    for key, value in found.items():
        entry = space.spaces[key]
        if isinstance(entry, gymnasium.spaces.Text):
            _require(isinstance(value, str), f"'{key}' within a chunk is no string")
        else:
            _array(value, entry.shape or (), entry.dtype, f"'{key}' within a chunk")


def _array(value: Any, shape: tuple[int, ...], dtype: Any, where: str) -> Any:
    is_array = isinstance(value, np.ndarray) and value.shape == shape and value.dtype == dtype
    got = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
    _require(is_array, f"{where} is {got}, expected {np.dtype(dtype)} {list(shape)}")
    return value


def _frame(value: Any) -> Any:
    is_image = isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3
    _require(is_image, "a frame that is not uint8 [H, W, 3]")
    return value


def _by_row(answer: Mapping[str, Any], name: str) -> dict[int, Any]:
    """Return a mapping by row; keys of JSON are strings."""
    found = answer.get(name, {})
    _require(isinstance(found, dict) and all(len(key) < 10 and key.isdecimal() for key in found), f"{name} by row")
    return {int(row): value for row, value in found.items()}


def _list(value: Any) -> list[Any]:
    _require(isinstance(value, list), f"a {type(value).__name__} in place of a list")
    return list(value)


def _text_or_none(answer: Mapping[str, Any], name: str) -> str | None:
    value = answer.get(name)
    _require(value is None or isinstance(value, str), f"{name} is a {type(value).__name__}")
    return value


def _pair(value: Any) -> tuple[Any, Any]:
    _require(isinstance(value, list) and len(value) == 2, f"{str(value)[:100]} in place of two values")
    return value[0], value[1]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise WireError(message)
