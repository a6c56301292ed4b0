"""Plays a simulator from a transcript: a list of the calls that it takes, in order, with its answers.

The first line says where the calls come from, and which modules and lasting attributes there are. A further line has
one of these keys, each with a name such as ``env.reset``:

- ``call``: a call with ``args`` and ``kwargs``, and its ``answer``, or what it ``raises``. ``callback`` names a
  function that the adapter has put in place of the simulator's; this call calls it, and it has to return ``returns``;
- ``get``: an attribute is read, which has the ``answer`` this time;
- ``set``: an attribute is set to ``value``.

Values are those of JSON, and ``{"__array": [dtype, shape, numbers or one number]}``, ``{"__tensor": ...}`` in the same
form, ``{"__tuple": [...]}``, ``{"__object": name}``, ``{"__error": name}``, ``{"__generator": seed}`` and
``{"__any": 0}``, which every value is equal to.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parent


class Transcript:
    """A transcript, and the place where it is.

    Args:
        name: That of ``NAME_transcript.jsonl`` in this folder.
    """

    def __init__(self, name: str) -> None:
        lines = [json.loads(line) for line in (FOLDER / f"{name}_transcript.jsonl").read_text().splitlines()]
        self.header, self.lines = lines[0], lines[1:]
        self.place = 0
        self.errors: dict[str, type[Exception]] = {}
        self.functions: dict[str, Any] = {}
        self.constants: dict[str, Any] = self.header.setdefault("constants", {})
        self.called = {line["call"] for line in self.lines if "call" in line}
        self.read = {line["get"] for line in self.lines if "get" in line}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the modules of the header imported in place of the simulator's."""
        for module, name in self.header["modules"].items():
            monkeypatch.setitem(sys.modules, module, Played(self, name))

    def following(self, kind: str, name: str) -> dict[str, Any]:
        """Return the next line, which has to be this one."""
        assert self.place < len(self.lines), f"{kind} {name}: the transcript is over"
        line: dict[str, Any] = self.lines[self.place]
        assert line.get(kind) == name, f"line {self.place + 2}: {kind} {name}, expected {str(line)[:120]}"
        self.place += 1
        return line

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call."""
        line = self.following("call", name)
        where = f"line {self.place + 1}: {name}"
        check_equal(list(args), self.value(line.get("args", [])), where)
        check_equal(kwargs, self.value(line.get("kwargs", {})), where)
        if "callback" in line:
            check_equal(self.functions[line["callback"]](), self.value(line["returns"]), where)
        if "raises" in line:
            raise self.error(line["raises"])(where)
        return self.value(line.get("answer"))

    def finish(self) -> None:
        """Check that everything was called."""
        assert self.place == len(self.lines), f"not called: {str(self.lines[self.place :])[:300]}"

    def error(self, name: str) -> type[Exception]:
        """Return the class of an error of the simulator."""
        return self.errors.setdefault(name, type(name, (Exception,), {}))

    def value(self, found: Any) -> Any:
        """Return what a value of the transcript stands for."""
        if isinstance(found, list):
            return [self.value(entry) for entry in found]
        if not isinstance(found, dict):
            return found
        if "__array" in found:
            return array_of(*found["__array"])
        if "__tensor" in found:
            return torch.from_numpy(array_of(*found["__tensor"]))
        if "__tuple" in found:
            return tuple(self.value(found["__tuple"]))
        if "__object" in found:
            return Played(self, found["__object"])
        if "__error" in found:
            return self.error(found["__error"])
        if "__generator" in found:
            return np.random.default_rng(found["__generator"])
        return {key: self.value(entry) for key, entry in found.items()}


class Played:
    """An object of the simulator: what is called, read and set is the transcript's to answer.

    Args:
        transcript: The transcript.
        name: The object's name there.
    """

    def __init__(self, transcript: Transcript, name: str) -> None:
        self.__dict__.update(_transcript=transcript, _name=name)

    def __getattr__(self, attribute: str) -> Any:
        transcript, name = self.__dict__["_transcript"], f"{self.__dict__['_name']}.{attribute}"
        if name in transcript.called:
            return lambda *args, **kwargs: transcript.call(name, args, kwargs)
        if name in transcript.constants:
            return transcript.value(transcript.constants[name])
        if name in transcript.read:
            return transcript.value(transcript.following("get", name)["answer"])
        raise AttributeError(f"the transcript has no {name}")

    def __setattr__(self, attribute: str, value: Any) -> None:
        name = f"{self._name}.{attribute}"
        line = self._transcript.following("set", name)
        check_equal(value, self._transcript.value(line["value"]), f"line {self._transcript.place + 1}: {name}")
        self._transcript.functions[name] = value


def array_of(dtype: str, shape: list[int], numbers: Any) -> np.ndarray:
    """Return an array of numbers, or full of one."""
    return np.broadcast_to(np.asarray(numbers, dtype).reshape(shape if isinstance(numbers, list) else ()), shape).copy()


def check_equal(received: Any, expected: Any, where: str) -> None:
    """Check that values are equal, with their types, shapes and kinds of numbers."""
    if isinstance(expected, dict) and "__any" in expected:
        return
    if isinstance(expected, np.random.Generator):
        assert received.bit_generator.state == expected.bit_generator.state, f"{where}: another generator"
    elif isinstance(expected, dict):
        assert isinstance(received, dict), f"{where}: {received!r}"
        assert received.keys() == expected.keys(), f"{where}: {sorted(received)}, expected {sorted(expected)}"
        for key, value in expected.items():
            check_equal(received[key], value, f"{where}, {key}")
    elif isinstance(expected, list):
        assert isinstance(received, list | tuple), f"{where}: {received!r}, expected {expected!r}"
        assert len(received) == len(expected), f"{where}: {received!r}, expected {expected!r}"
        for number, value in enumerate(expected):
            check_equal(received[number], value, f"{where}, {number}")
    elif isinstance(expected, Played):
        assert isinstance(received, Played), f"{where}: {received!r}"
        assert received._name == expected._name, f"{where}: {received._name}, expected {expected._name}"
    elif isinstance(expected, np.ndarray | torch.Tensor):
        assert type(received) is type(expected), f"{where}: a {type(received).__name__}"
        assert received.dtype == expected.dtype, f"{where}: {received.dtype}, expected {expected.dtype}"
        assert received.shape == expected.shape, f"{where}: {received.shape}, expected {expected.shape}"
        assert np.allclose(received, expected), f"{where}: {received}, expected {expected}"
    else:
        assert type(received) is type(expected), f"{where}: {received!r}, expected {expected!r}"
        assert received == expected, f"{where}: {received!r}, expected {expected!r}"
