"""Messages come back from JSON as they were; what is none is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from rlinf.data.messages.generation import Completion, EngineStats, GenerationRequest, GenerationResult, SamplingParams
from rlinf.errors import EngineDiedError, EngineError, WeightSyncError
from rlinf.hybrid_engines.serving import wire
from tests.unit.hybrid_engines.packing import pack_weights

REQUEST = GenerationRequest(
    request_id="a", prompt_ids=(1, 2), params=SamplingParams(stop=("é",), stop_token_ids=(9,)), prefix_group="g"
)


def test_messages_come_back_as_they_were() -> None:
    completion = Completion(
        token_ids=(1, 2), logprobs=(-1 / 3, -1e-300), full_logprobs=(-0.1, -7.0), versions=(0, 1), finish_reason="stop"
    )
    result = GenerationResult(request_id="a", completions=(completion,))
    stats = EngineStats(num_running=1, num_waiting=2, num_generated_tokens=3, version=4)
    assert wire.read_request(json.loads(wire.to_bytes(REQUEST))) == REQUEST
    assert wire.read_result(json.loads(wire.to_bytes(result))) == result
    assert wire.read_stats(json.loads(wire.to_bytes(stats))) == stats


def test_a_manifest_comes_back_without_its_ways() -> None:
    weights = {"a": torch.zeros(3, 2), "b": torch.zeros(5, dtype=torch.bfloat16)}
    manifest, _ = pack_weights(weights.items(), version=7, bucket_bytes=16)
    for each in (manifest, replace(manifest, checksum_kind="words"), replace(manifest, left_out=("c", "d"))):
        assert wire.read_manifest(json.loads(wire.to_bytes(each.content))) == each


@pytest.mark.parametrize("error", [EngineError("a"), EngineDiedError("b"), WeightSyncError("c")])
def test_errors_keep_their_type(error: EngineError | WeightSyncError) -> None:
    found = wire.read_error(wire.error_to_bytes(error))
    assert (type(found), str(found)) == (type(error), str(error))


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "Exit", "message": "x"}'])
def test_an_unknown_error_is_an_engine_s(body: bytes) -> None:
    assert type(wire.read_error(body)) is EngineError


@pytest.mark.parametrize("change", [{"params": {"top_q": 1, "stop": [], "stop_token_ids": []}}, {"prompt_ids": ["x"]}])
def test_what_is_no_request_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(EngineError, match="no request"):
        wire.read_request({**json.loads(wire.to_bytes(REQUEST)), **change})
    with pytest.raises(WeightSyncError, match="no manifest"):
        wire.read_manifest({"version": 1, "entries": [{"name": "a", "dtype": "float33"}]})


def test_what_is_no_message_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="set"):
        wire.to_bytes({"a": {1}})
