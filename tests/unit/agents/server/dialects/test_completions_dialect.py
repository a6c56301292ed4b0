"""Completions of texts and of tokens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rlinf.agents.server.dialects.completions_dialect import CompletionsDialect
from rlinf.agents.server.dialects.dialect import RequestError
from tests.unit.agents.server.served_episode import serve


def test_a_completion_and_its_events() -> None:
    async def check() -> None:
        async with serve([" time.", " time."]) as served:
            body = {"model": "m", "prompt": "Once"}
            _, found = await served.post("/completions", body)
            assert found["object"] == "text_completion"
            choice = {"index": 0, "text": " time.", "finish_reason": "stop", "logprobs": None}
            assert found["choices"] == [choice]
            keys = {"stream": True, "stream_options": {"include_usage": True}}
            _, text = await served.post("/completions", {**body, **keys})
            *parts, last = text.strip().split("\n\n")
            said, end, usage = (json.loads(part.removeprefix("data: ")) for part in parts)
            assert (said["choices"][0]["text"], end["choices"][0]["finish_reason"], last) == (
                " time.",
                "stop",
                "data: [DONE]",
            )
            assert end["choices"][0]["text"] == ""
            assert usage["usage"]["completion_tokens"] == 7

    asyncio.run(check())


def test_tokens_are_taken_as_they_are() -> None:
    async def check() -> None:
        async with serve(["x"]) as served:
            await served.post("/completions", {"model": "m", "prompt": [5, 6, 7]})
            assert served.client.requests[0].prompt_ids == (5, 6, 7)

    asyncio.run(check())


@pytest.mark.parametrize("prompt", ["Hi", ["Hi"]])
def test_one_text_may_be_in_a_list(prompt: Any) -> None:
    assert CompletionsDialect().read({"prompt": prompt}).prompt == "Hi"
    assert CompletionsDialect().read({"prompt": [[1, 2]]}).prompt == (1, 2)


@pytest.mark.parametrize(
    "body", [{}, {"prompt": ""}, {"prompt": ["a", "b"]}, {"prompt": [1.5]}, {"prompt": [-1]}, {"prompt": []}]
)
def test_other_prompts_are_refused(body: Any) -> None:
    with pytest.raises(RequestError, match="prompt: received"):
        CompletionsDialect().read(body)


@pytest.mark.parametrize("key", ["suffix", "echo", "n", "best_of"])
def test_what_a_completion_here_is_not(key: str) -> None:
    with pytest.raises(RequestError, match=f"{key}: received"):
        CompletionsDialect().read({"prompt": "Hi", key: 2})
