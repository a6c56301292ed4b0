"""When a response ends, and what is recorded of its tokens."""

from __future__ import annotations

import numpy as np
import pytest

from rlinf.data.messages.generation import SamplingParams
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence, sampling_seed

END, OTHER = 0, 7


def response(*, limit: int = 100, **params: object) -> TokenSequence:
    return TokenSequence(
        key=0,
        request_id="r",
        prompt_ids=(1, 2),
        params=SamplingParams(**params),  # type: ignore[arg-type]
        limit=limit,
        end_ids=frozenset({END}),
        seed=1,
        decode=lambda ids: "".join(chr(ord("a") + token) for token in ids),
    )


def feed(sequence: TokenSequence, tokens: list[int]) -> int:
    """Append tokens until the response ends, and return how many were taken."""
    for count, token in enumerate(tokens, 1):
        sequence.append(token, -0.5 * count, -0.25 * count, version=count)
        if sequence.finish_reason is not None:
            return count
    return 0


@pytest.mark.parametrize("minimum", [0, 1, 2, 3])
def test_an_end_token_counts_from_the_first_token_after_the_minimum(minimum: int) -> None:
    sequence = response(min_new_tokens=minimum)
    assert feed(sequence, [END] * 10) == minimum + 1
    assert sequence.finish_reason == "stop"


def test_the_limit_is_inclusive_and_an_end_token_at_the_limit_is_a_stop() -> None:
    sequence = response(limit=3)
    assert feed(sequence, [OTHER] * 5) == 3
    assert sequence.finish_reason == "length"
    sequence = response(limit=3)
    assert feed(sequence, [OTHER, OTHER, END]) == 3
    assert sequence.finish_reason == "stop"


@pytest.mark.parametrize(("stop", "length"), [(("bcd",), 4), (("x", "cd"), 4), (("ab",), 2), (("e",), 5)])
def test_a_stop_string_ends_a_response_at_its_last_token(stop: tuple[str, ...], length: int) -> None:
    sequence = response(stop=stop)
    sequence.end_ids = frozenset()
    assert feed(sequence, [0, 1, 2, 3, 4, 5]) == length
    assert sequence.finish_reason == "stop"


def test_every_token_keeps_its_own_probability_and_version() -> None:
    sequence = response(limit=3, top_k=5)
    feed(sequence, [OTHER, 8, 9])
    completion = sequence.completion()
    assert completion.token_ids == (OTHER, 8, 9)
    assert completion.logprobs == (-0.5, -1.0, -1.5)
    assert completion.full_logprobs == (-0.25, -0.5, -0.75)
    assert completion.versions == (1, 2, 3)
    sequence = response(limit=1)
    feed(sequence, [OTHER])
    assert sequence.completion().full_logprobs is None


def test_a_seed_depends_on_every_part_and_on_their_order() -> None:
    seeds = {sampling_seed(*parts) for parts in [(1, 2), (2, 1), (1, 3), (12,), (1, 2, 0)]}
    assert len(seeds) == 5
    assert sampling_seed(1, 2) in seeds


def test_a_token_keeps_its_first_route_and_gaps_are_unknown() -> None:
    sequence = response(limit=4)
    assert feed(sequence, [OTHER] * 2) == 0
    sequence.add_routes(np.full((1, 1, 2), 5, dtype=np.uint8))
    sequence.append(OTHER, -1.0, -1.0, version=0)
    sequence.add_routes(np.arange(10, 20, dtype=np.uint8).reshape(5, 1, 2))
    sequence.append(OTHER, -1.0, -1.0, version=0)
    routes = sequence.completion().routes
    assert routes is not None
    assert routes.dtype == np.uint8
    assert routes[:, 0].tolist() == [[0, 0], [0, 0], [0, 0], [5, 5], [18, 19]]
    assert response().num_routes == 0
