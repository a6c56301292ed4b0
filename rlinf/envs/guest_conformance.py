"""A checker to run on an adapter of one's own: the rules of environments, and those of guests on top."""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from rlinf.config.schema.env import GuestProcessConfig
from rlinf.envs.base import VectorEnv
from rlinf.envs.conformance import check_vector_env, sample_actions
from rlinf.envs.env_registry import make_vector_env
from rlinf.envs.guest_process import GuestProcess, chunk_request
from rlinf.envs.guest_remote import RemoteGuest
from rlinf.envs.guest_replies import read_reply
from rlinf.envs.guests.guest_server import build_rows
from rlinf.envs.guests.guest_tcp import PROOF_SECONDS, ProofError, prove_as_host
from rlinf.envs.guests.guest_wire import decode, encode
from rlinf.envs.process_pool import ProcessPool
from rlinf.envs.raw_chunk import ChunkRequest, EpisodeRule, RawChunk
from rlinf.envs.single_env_vector import SingleEnvVectorEnv
from rlinf.errors import ConformanceError, EnvironmentFailure, NumericalError

_CHUNKS = 4
_DEATH_SECONDS = 20.0
"""Within which the end of a guest has to be reported; most of them pass while the operating system ends it."""


def check_guest(cfg: GuestProcessConfig, *, in_process: bool = False, **rules: Any) -> dict[str, str]:
    """Check that a guest keeps the rules of environments, and those of guests.

    Those are: another guest beside it changes nothing; a request that it does not know, or that is no message, is an
    error and not its end; a message that is too long ends it; what is pickled is not unpickled; an action that is not a
    number does not reach it; when it is killed, its host reports that at once. One on another machine speaks to no
    host that has another key, and where its host would kill it, the connection is cut.

    Args:
        cfg: Its section, ``env_type: guest`` or another one that guests step. Two environments and a low
            ``max_episode_steps`` keep the check short.
        in_process: Also compare it with the adapter in this interpreter, which then needs its simulator.
        rules: Further arguments of ``check_vector_env``.

    Returns:
        The versions of its Python, numpy and the packages that its adapter names.

    Raises:
        ConformanceError: The first rule found broken; its message says what was expected.
        ConfigError: There is no interpreter.
        EnvironmentFailure: The guest did not start, or its simulator failed.
    """
    with _make(cfg) as env:
        check_vector_env(env, rebuild=lambda: _make(cfg), **rules)
        alone = _play(_pool(env), env)
        _check_actions(env)
        _check_requests(_guest(env))
        versions = dict(_guest(env).versions)
        if isinstance(_guest(env), RemoteGuest):
            _check_key(_guest(env))
    with _make(cfg) as first, _make(replace(cfg, num_env_processes=min(cfg.total_num_envs, 2))) as other:
        _require_equal("guest-beside", alone, _play(_pool(other), other), "two guests, beside a third,")
        _require_equal("guest-beside", alone, _play(_pool(first), first), "a guest beside others")
        if in_process:
            _check_in_process(_guest(first), first, alone)
        _check_death(_pool(first), first)
    with _make(cfg) as env:
        _check_length(_guest(env))
    return versions


def _make(cfg: GuestProcessConfig) -> VectorEnv:
    return make_vector_env(cfg, num_envs=cfg.total_num_envs)


def _pool(env: VectorEnv) -> ProcessPool:
    assert isinstance(env, SingleEnvVectorEnv)
    assert env.pool is not None
    return env.pool


def _guest(env: VectorEnv) -> GuestProcess:
    guest = _pool(env).processes[0]
    assert isinstance(guest, GuestProcess)
    return guest


@dataclass(frozen=True, slots=True)
class _Script:
    """The same seeds and actions for all that play them."""

    seeds: Any
    requests: list[ChunkRequest]

    @classmethod
    def of(cls, env: VectorEnv) -> _Script:
        """Return the requests to all environments, with episodes that end and begin in the midst of chunks."""
        rule = EpisodeRule(env.cfg.max_episode_steps, ignore_terminations=False)
        seeds = np.arange(10, 10 + env.num_envs)
        requests = []
        for number in range(_CHUNKS):
            actions = sample_actions(env.action_space, num_envs=env.num_envs, num_chunks=3, seed=number).numpy()
            everything = np.ones(env.num_envs, np.bool_)
            steps = np.full(env.num_envs, 3 * number, np.int64)
            requests.append(ChunkRequest(actions, everything, steps, seeds + number + 1, rule))
        return cls(seeds, requests)


def _play(pool: ProcessPool, env: VectorEnv) -> list[RawChunk]:
    script = _Script.of(env)
    pool.reset(np.arange(env.num_envs), script.seeds)
    chunks = []
    for request in script.requests:
        pool.send_chunk(request)
        chunks.append(pool.recv_chunk())
    return chunks


def _check_in_process(guest: GuestProcess, env: VectorEnv, expected: list[RawChunk]) -> None:
    script, rows = _Script.of(env), build_rows(guest.build_request())
    rows.spaces()
    rows.reset(np.arange(env.num_envs), script.seeds)
    played = []
    for request in script.requests:
        # By way of the wire, so that both have the same types.
        reply = encode(["ok", rows.run_chunk(decode(encode(chunk_request(request))))])
        played.append(read_reply(reply, guest.pending_request(request))[1])
    rows.close()
    _require_equal("guest-in-process", expected, played, "the adapter in this interpreter")


def _check_actions(env: VectorEnv) -> None:
    env.reset(0)
    actions = sample_actions(env.action_space, num_envs=env.num_envs, num_chunks=1, seed=0).float() * torch.nan
    with suppress(NumericalError):
        env.chunk_step(actions)
        raise ConformanceError("guest-actions", "an action that is not a number was taken; it has to be refused.")


def _check_requests(guest: GuestProcess) -> None:
    """What is no request is an error, and the guest goes on."""
    for what, message in (("unknown", encode(["dance", {}])), ("pickled", b"\x80\x04N.")):
        guest.connection.send_bytes(message)
        kind, answer = decode(guest.receive())
        if kind != "error":
            raise ConformanceError("guest-requests", f"{guest} answers a request that is {what} with {answer!r}.")


def _check_key(guest: GuestProcess) -> None:
    """A host that has another key gets nothing but a closed connection."""
    assert guest.setup.address is not None
    with socket.create_connection(guest.setup.address, timeout=PROOF_SECONDS) as connection:
        try:
            prove_as_host(connection, os.urandom(32))
        except ProofError:
            return
    raise ConformanceError("guest-key", f"{guest} takes a host that has another key.")


def _check_death(pool: ProcessPool, env: VectorEnv) -> None:
    """A guest that is killed in the midst of a chunk is reported by its name."""
    guest, request = _guest(env), _Script.of(env).requests[0]
    guest.freeze()
    pool.send_chunk(request)
    guest.kill()
    began = time.monotonic()
    try:
        pool.recv_chunk()
    except EnvironmentFailure as error:
        seconds = time.monotonic() - began
        if str(guest) not in str(error) or seconds > _DEATH_SECONDS:
            raise ConformanceError(
                "guest-death", f"the end of {guest} was reported after {seconds:.0f} s: {error}"
            ) from error
    else:
        raise ConformanceError("guest-death", f"{guest} was killed within a chunk, and yet it has answered.")


def _check_length(guest: GuestProcess) -> None:
    """A message that claims to be too long ends the guest, before it takes memory for it."""
    os.write(guest.connection.fileno(), struct.pack("!iQ", -1, 2**50))
    if not guest.connection.poll(_DEATH_SECONDS):
        raise ConformanceError("guest-length", f"{guest} waits for a message of 2**50 bytes.")


def _require_equal(rule: str, expected: list[RawChunk], played: list[RawChunk], who: str) -> None:
    for number, (first, second) in enumerate(zip(expected, played, strict=True)):
        for name in (field.name for field in fields(RawChunk)):
            if _bytes(getattr(first, name)) != _bytes(getattr(second, name)):
                raise ConformanceError(
                    rule,
                    f"{who} differs in '{name}' of chunk {number} from a guest alone, for the same seeds and actions: "
                    "an episode may depend on nothing else.",
                )


def _bytes(value: Any) -> bytes:
    return encode({str(row): part for row, part in value.items()} if isinstance(value, dict) else value)
