"""Prompts reach engines as they are, and completions become batches of responses."""

from __future__ import annotations

import numpy as np
import torch

from rlinf.data.messages.generation import Completion
from rlinf.data.messages.responses import Prompt, ResponseBatch
from rlinf.scheduler.comm.serialization import decode, encode


def test_a_prompt_is_the_same_after_it_has_been_sent() -> None:
    prompt = Prompt(index=3, token_ids=(5, 1 << 40, 0), text="ab", reference=[1], metadata={"level": 2})
    found = decode([bytes(frame) for frame in encode(prompt)])
    assert found == prompt
    assert (type(found.token_ids), hash(found.token_ids)) == (tuple, hash(prompt.token_ids))


def test_responses_keep_the_images_of_their_prompts() -> None:
    prompt = Prompt(index=3, token_ids=(5,), text="a", images=(b"one", b"two"))
    assert decode([bytes(frame) for frame in encode(prompt)]) == prompt
    completion = Completion(token_ids=(3,), logprobs=(-1.0,), versions=(7,), finish_reason="stop")
    seeing = ResponseBatch.of(prompt, 1, [completion, completion])
    blind = ResponseBatch.of(Prompt(index=4, token_ids=(5,), text="a"), 2, [completion])
    assert seeing.images == (prompt.images, prompt.images)
    assert ResponseBatch.concat([blind, seeing]).images == ((), prompt.images, prompt.images)
    assert ResponseBatch.concat([blind, blind]).images == ()


def test_routes_of_prompts_and_responses_lie_end_to_end() -> None:
    prompt = Prompt(index=3, token_ids=(5, 6), text="ab")
    plain = {"logprobs": (-1.0, -1.0), "versions": (7, 7), "finish_reason": "stop"}
    routes = np.arange(1, 7, dtype=np.uint8).reshape(3, 2, 1)
    known = Completion(token_ids=(3, 4), routes=routes, **plain)  # type: ignore[arg-type]
    unknown = Completion(token_ids=(3, 4), **plain)  # type: ignore[arg-type]
    batch = ResponseBatch.of(prompt, 1, [unknown, known])
    assert batch.routes is not None
    assert batch.routes.dtype == torch.uint8
    assert batch.routes.shape == (8, 2, 1)
    assert batch.sequence_lengths == [4, 4]
    laid = [[0, 0]] * 4 + [[1, 2], [3, 4], [5, 6], [0, 0]]
    assert batch.routes.squeeze(-1).tolist() == laid
    sent = decode([bytes(frame) for frame in encode(batch)])
    assert torch.equal(sent.routes, batch.routes)
    none = ResponseBatch.of(prompt, 2, [unknown])
    joined = ResponseBatch.concat([batch, none, batch]).routes
    assert joined is not None
    assert joined.squeeze(-1).tolist() == [*laid, *[[0, 0]] * 4, *laid]
    assert none.routes is None
    assert ResponseBatch.concat([none, none]).routes is None


def test_engines_may_return_arrays() -> None:
    completion = Completion(
        token_ids=np.array([3, 4], np.int64), logprobs=torch.tensor([-1.0, -2.0]), versions=[7, 6], finish_reason="stop"
    )
    batch = ResponseBatch.of(Prompt(index=3, token_ids=(5, 6), text="ab"), 1, [completion])
    assert (batch.token_ids.tolist(), batch.logprobs.tolist(), batch.versions.tolist()) == ([3, 4], [-1, -2], [7, 6])
    assert (batch.responses[0].oldest_version, batch.responses[0].newest_version) == (6, 7)


def test_a_completion_that_was_aborted_before_its_first_token_is_an_empty_response() -> None:
    empty = Completion(token_ids=(), logprobs=(), versions=(), finish_reason="abort")
    whole = Completion(token_ids=(3,), logprobs=(-1.0,), versions=(7,), finish_reason="stop")
    batch = ResponseBatch.of(Prompt(index=3, token_ids=(5, 6), text="ab"), 1, [empty, whole])
    assert [(found.num_tokens, found.oldest_version) for found in batch.responses] == [(0, 0), (1, 7)]
    assert (batch.lengths, batch.token_ids.tolist()) == ([0, 1], [3])
