"""The host's end of a guest: a process of the pool that runs another interpreter (``rlinf.envs.guests``).

Nothing that a guest sends is unpickled, so that the interpreters need no package in common but numpy.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import rlinf.envs.guests
from rlinf.envs.guests.guest_wire import MAX_BYTES, PROTOCOL, WireError, decode, encode
from rlinf.envs.process_pool import ONE_THREAD, PoolProcess
from rlinf.envs.raw_chunk import ChunkRequest, RawChunk, RawReset
from rlinf.envs.single_env import SingleEnv, SingleEnvSpec, Spaces
from rlinf.errors import EnvironmentFailure

PYTHON_VARIABLE = "RLINF_GUEST_PYTHON"
"""Names the interpreter of guests whose recipe names none."""

_LONGEST_TEXT = 4096
_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSAFEPATH")
"""Variables that would have the guest import packages of this interpreter."""


@dataclass(frozen=True, kw_only=True)
class GuestSetup:
    """How to start a guest.

    Attributes:
        python: Its interpreter.
        adapter: The module that drives its simulator (``rlinf.envs.guests.rows``).
        env_vars: Environment variables that it gets in addition.
        startup_timeout_seconds: How long its interpreter may take to say hello.
    """

    python: str
    adapter: str
    env_vars: dict[str, str] = field(default_factory=dict)
    startup_timeout_seconds: float = 60.0


def made_by_guest(**kwargs: Any) -> SingleEnv:
    """Stand for the factory of a specification whose environments the guest makes; never called.

    Raises:
        EnvironmentFailure: Always.
    """
    raise EnvironmentFailure(f"environments with {sorted(kwargs)} are made by their guest")


class GuestProcess(PoolProcess):
    """A guest with environments of a pool.

    Args:
        spec: Its environments; ``kwargs`` are ``init_params`` and ``episode``, arguments of the adapter.
        first_row: The first of them among the pool's.
        setup: How to start it.

    Raises:
        EnvironmentFailure: It did not start, or does not speak this protocol.
    """

    def __init__(self, spec: SingleEnvSpec, first_row: int, *, setup: GuestSetup) -> None:
        self._setup = setup
        try:
            super().__init__(spec, first_row)
        except OSError as error:
            raise EnvironmentFailure(f"The guest of env_type={spec.env_type} cannot be started: {error}") from error
        try:
            self._greet()
        except BaseException:
            self.connection.close()
            self.process.terminate()
            self.join(time.monotonic() + 1.0)
            raise

    def command(self) -> list[str]:
        """See ``PoolProcess``."""
        return [self._setup.python, str(Path(rlinf.envs.guests.__path__[0]))]

    def environment(self) -> dict[str, str]:
        """Return this process's variables, without those that name its packages, and the guest's own."""
        kept = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
        return {**kept, **ONE_THREAD, **self._setup.env_vars}

    def encode(self, kind: str, *arguments: Any) -> bytes:
        """See ``PoolProcess``."""
        if kind == "build":
            counts = {name: getattr(self.spec, name) for name in ("num_envs", "first_env", "num_recorded")}
            return encode([kind, {"adapter": self._setup.adapter, **self.spec.kwargs, **counts}])
        if kind == "reset":
            return encode([kind, {"rows": arguments[0], "seeds": arguments[1]}])
        return encode([kind, _request(arguments[0])])

    def decode(self, reply: bytes) -> tuple[str, Any]:
        """See ``PoolProcess``; an answer becomes ``Spaces``, ``RawReset`` or ``RawChunk``."""
        try:
            kind, answer = decode(reply)
            if kind == "ok":
                answer = _answer(answer)
        except (WireError, KeyError, TypeError, ValueError) as error:
            raise EnvironmentFailure(f"{self} sent what is no reply: {error}") from error
        return kind, answer

    def __str__(self) -> str:
        return f"guest {super().__str__()}, {self._setup.python}"

    def _greet(self) -> None:
        """Wait for the guest's hello, and compare protocols."""
        if not self.connection.poll(self._setup.startup_timeout_seconds):
            raise EnvironmentFailure(
                f"{self} said nothing within {self._setup.startup_timeout_seconds:.0f} s; "
                "env.*.startup_timeout_seconds says how long it may take."
            )
        try:
            _, hello = decode(self.connection.recv_bytes(MAX_BYTES))
            spoken = hello["protocol"]
        except (EOFError, OSError) as error:
            raise self.death() from error
        except (WireError, KeyError, TypeError, ValueError) as error:
            raise EnvironmentFailure(f"{self} sent no greeting: {error}") from error
        if spoken != PROTOCOL:
            raise EnvironmentFailure(
                f"{self} speaks protocol {spoken}; this host speaks {PROTOCOL}. Both have to be of one version."
            )


def _request(request: ChunkRequest) -> dict[str, Any]:
    return {
        "actions": np.asarray(request.actions),
        "active": request.active,
        "steps": request.steps,
        "next_seeds": request.next_seeds,
        "rule": [request.rule.max_episode_steps, request.rule.ignore_terminations],
        "observes": request.observes,
    }


def _answer(answer: dict[str, Any]) -> Spaces | RawReset | RawChunk:
    if "observation" in answer:
        return Spaces(
            gymnasium.spaces.Box(answer["action_low"], answer["action_high"], dtype=np.float32),
            gymnasium.spaces.Dict({key: _space(shape) for key, shape in answer["observation"].items()}),
        )
    for name in ("frames", "reset_frames", "observations"):
        if name in answer:
            # Keys of JSON are strings.
            answer[name] = {int(row): value for row, value in answer[name].items()}
    return RawChunk(**answer) if "rewards" in answer else RawReset(**answer)


def _space(shape: Any) -> gymnasium.Space[Any]:
    if shape == "text":
        return gymnasium.spaces.Text(_LONGEST_TEXT)
    dtype, size = np.dtype(shape[0]), tuple(shape[1])
    if dtype.kind == "f":
        return gymnasium.spaces.Box(-np.inf, np.inf, size, dtype.type)
    bounds = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return gymnasium.spaces.Box(*bounds, size, dtype.type)
