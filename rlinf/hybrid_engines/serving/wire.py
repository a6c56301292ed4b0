"""How requests, results, manifests and errors are written as JSON between a server and its clients.

Numbers keep their exact values: Python writes floats so that they are read back to the bit.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args

import torch

from rlinf.data.messages.generation import Completion, EngineStats, GenerationRequest, GenerationResult, SamplingParams
from rlinf.errors import EngineDiedError, EngineError, WeightSyncError
from rlinf.hybrid_engines.weights.bucket import Manifest, TensorEntry
from rlinf.hybrid_engines.weights.checksum import ChecksumKind

_ERRORS: dict[str, type[EngineError | WeightSyncError]] = {
    cls.__name__: cls for cls in (EngineError, WeightSyncError, EngineDiedError)
}
_PARAMS_TUPLES = ("stop", "stop_token_ids")
_COMPLETION_TUPLES = ("token_ids", "logprobs", "versions")


def to_bytes(message: object) -> bytes:
    """Return a message as JSON: dataclasses of this module's messages, dictionaries, lists and plain values."""
    return json.dumps(message, default=_fields, separators=(",", ":")).encode()


def _fields(value: object) -> object:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def read_request(message: dict[str, Any]) -> GenerationRequest:
    """Return a request of what ``to_bytes`` wrote.

    Raises:
        EngineError: A field is missing, unknown or of another type.
    """
    try:
        params = dict(message["params"])
        params |= {name: tuple(params[name]) for name in _PARAMS_TUPLES}
        return GenerationRequest(
            request_id=str(message["request_id"]),
            prompt_ids=tuple(map(int, message["prompt_ids"])),
            params=SamplingParams(**params),
            prefix_group=str(message["prefix_group"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError(f"This is no request of this version of RLinf: {error!r}.") from error


def read_result(message: dict[str, Any]) -> GenerationResult:
    """Return a result of what ``to_bytes`` wrote."""
    completions = []
    for fields in message["completions"]:
        full = fields["full_logprobs"]
        tuples = {name: tuple(fields[name]) for name in _COMPLETION_TUPLES}
        full_logprobs = None if full is None else tuple(full)
        completions.append(Completion(**{**fields, **tuples, "full_logprobs": full_logprobs}))
    return GenerationResult(request_id=message["request_id"], completions=tuple(completions))


def read_stats(message: dict[str, Any]) -> EngineStats:
    """Return an engine's counters of what ``to_bytes`` wrote."""
    return EngineStats(**message)


def read_manifest(message: dict[str, Any]) -> Manifest:
    """Return a manifest of what ``to_bytes`` wrote, without its ways: the buckets come from the client.

    Raises:
        WeightSyncError: A field is missing or of another type.
    """
    try:
        entries = tuple(
            TensorEntry(
                name=str(entry["name"]),
                dtype=getattr(torch, entry["dtype"]),
                shape=tuple(map(int, entry["shape"])),
                bucket=int(entry["bucket"]),
                offset=int(entry["offset"]),
            )
            for entry in message["entries"]
        )
        return Manifest(
            version=int(message["version"]),
            entries=entries,
            bucket_sizes=tuple(map(int, message["bucket_sizes"])),
            bucket_owners=tuple(map(int, message["bucket_owners"])),
            left_out=tuple(map(str, message["left_out"])),
            checksum_kind=_checksum_kind(message["checksum_kind"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WeightSyncError(f"This is no manifest of this version of RLinf: {error!r}.") from error


def _checksum_kind(name: str) -> ChecksumKind:
    kinds: dict[str, ChecksumKind] = {kind: kind for kind in get_args(ChecksumKind)}
    return kinds[name]


def error_to_bytes(error: EngineError | WeightSyncError) -> bytes:
    """Return an error as JSON."""
    kind = next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in _ERRORS)
    return to_bytes({"error": kind, "message": str(error)})


def read_error(body: bytes) -> EngineError | WeightSyncError:
    """Return the error that a server has answered with; ``EngineError`` if it says nothing that is known."""
    try:
        message = json.loads(body)
        return _ERRORS[message["error"]](message["message"])
    except (ValueError, KeyError, TypeError):
        return EngineError(f"The server answers with an error: {body[:200]!r}.")
