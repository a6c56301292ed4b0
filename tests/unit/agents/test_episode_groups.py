"""Episodes as responses: tokens with their masks, the text that rewards read, and what is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from rlinf.agents.episode import Episode, EpisodeStatus
from rlinf.agents.episode_groups import make_group
from rlinf.agents.recorder import Trajectory, Turn
from rlinf.data.messages.responses import Prompt
from tests.unit.agents.conversations import QWEN2_5, make_tokenizer

TOKENIZER = make_tokenizer(QWEN2_5)


def ids(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False))


PROMPT = Prompt(index=3, token_ids=tuple(ids("Q")), text="Q", reference="c")


def trajectory(prompt: str = "Q", reason: Literal["stop", "length"] = "stop") -> Trajectory:
    """Return "ab", a tool's "x", and "c"."""
    return Trajectory(
        prompt_ids=np.array(ids(prompt), dtype=np.int32),
        token_ids=np.array(ids("abxc"), dtype=np.int32),
        logprobs=np.array([-1, -2, 0, -3], dtype=np.float32),
        versions=np.array([4, 4, -1, 5], dtype=np.int32),
        loss_mask=np.array([True, True, False, True]),
        turns=(
            Turn(number=0, start=0, stop=2, finish_reason="stop"),
            Turn(number=1, start=3, stop=4, finish_reason=reason),
        ),
    )


def episode(*trajectories: Trajectory, status: EpisodeStatus = "done", outcome: float | None = None) -> Episode:
    return Episode(
        trajectories=trajectories,
        status=status,
        outcome=outcome,
        transcript=({"role": "user", "content": "Q"},),
        metrics={"turns": 2.0},
    )


def test_tokens_lie_end_to_end_with_their_masks() -> None:
    group = make_group(PROMPT, 9, [episode(trajectory(), outcome=0.5), episode(trajectory("tools Q"))], TOKENIZER)
    batch = group.batch
    assert batch.token_ids.tolist() == ids("abxc") * 2
    assert batch.loss_mask.tolist() == [True, True, False, True] * 2
    assert batch.logprobs.tolist() == [-1, -2, 0, -3] * 2
    assert batch.versions.tolist() == [4, 4, -1, 5] * 2
    assert batch.prompt_ids[0] is PROMPT.token_ids
    assert batch.prompt_ids[1] == tuple(ids("tools Q"))
    first = batch.responses[0]
    assert (first.group_id, first.index, first.num_tokens, first.num_prompt_tokens) == (9, 0, 4, 1)
    assert (first.oldest_version, first.newest_version) == (4, 5)
    assert first.episode_metrics == {"turns": 2.0}


def test_rewards_read_the_last_turn_the_transcript_and_the_outcome() -> None:
    first, second = make_group(
        PROMPT, 9, [episode(trajectory(), outcome=0.5), episode(trajectory())], TOKENIZER
    ).queries()
    assert (first.response, first.reference, first.outcome, second.outcome) == ("c", "c", 0.5, None)
    assert first.transcript[0]["content"] == "Q"


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("done", "stop", "stop"),
        ("done", "length", "length"),
        ("length", "stop", "length"),
        ("timeout", "stop", "length"),
    ],
)
def test_an_episode_that_was_cut_off_counts_as_such(
    status: EpisodeStatus, reason: Literal["stop", "length"], expected: str
) -> None:
    group = make_group(PROMPT, 9, [episode(trajectory(reason=reason), status=status)], TOKENIZER)
    assert group.batch.responses[0].finish_reason == expected


def branch(tokens: str, *turns: tuple[int, int, int], prompt: str = "Q") -> Trajectory:
    """Return a branch whose turns have a number, a begin and an end."""
    own = np.zeros(len(tokens), dtype=np.bool_)
    for _, start, stop in turns:
        own[start:stop] = True
    return Trajectory(
        prompt_ids=np.array(ids(prompt), dtype=np.int32),
        token_ids=np.array(ids(tokens), dtype=np.int32),
        logprobs=np.where(own, -1, 0).astype(np.float32),
        versions=np.where(own, 7 + turns[0][0], -1).astype(np.int32),
        loss_mask=own,
        turns=tuple(
            Turn(number=number, start=start, stop=stop, finish_reason="stop" if number else "length")
            for number, start, stop in turns
        ),
    )


def test_agents_of_turns_are_known() -> None:
    """Also where two agents share a branch; a response of one agent alone does without."""
    shared = branch("abxc", (0, 0, 2), (2, 3, 4))
    shared = replace(shared, turns=(shared.turns[0], replace(shared.turns[1], agent="worker.1")))
    (response,) = make_group(PROMPT, 9, [episode(shared)], TOKENIZER).batch.responses
    assert (response.turn_spans, response.turn_agents) == (((0, 2), (3, 4)), ("", "worker.1"))
    assert response.branch_lengths == ()
    other = branch("d", (1, 0, 1), prompt="Q!")
    (response,) = make_group(PROMPT, 9, [episode(shared, other)], TOKENIZER).batch.responses
    assert response.turn_spans == ((0, 2), (4, 5), (3, 4))
    assert response.turn_agents == ("", "", "worker.1")
    (alone,) = make_group(PROMPT, 9, [episode(trajectory(), trajectory())], TOKENIZER).batch.responses
    assert alone.turn_agents == ()


def test_rewards_of_turns_are_kept_in_the_order_of_turns() -> None:
    first, second = branch("abxc", (0, 0, 2), (2, 3, 4)), branch("d", (1, 0, 1), prompt="Q!")
    second = replace(second, turns=(replace(second.turns[0], reward=0.25),))
    (response,) = make_group(PROMPT, 9, [episode(first, second)], TOKENIZER).batch.responses
    assert (response.turn_spans, response.turn_rewards) == (((0, 2), (4, 5), (3, 4)), (0.0, 0.25, 0.0))
    alone = replace(first, turns=(first.turns[0], replace(first.turns[1], reward=-1.0)))
    (response,) = make_group(PROMPT, 9, [episode(alone)], TOKENIZER).batch.responses
    assert (response.turn_spans, response.turn_rewards) == (((0, 2), (3, 4)), (0.0, -1.0))
    (without,) = make_group(PROMPT, 9, [episode(first)], TOKENIZER).batch.responses
    assert (without.turn_spans, without.turn_rewards) == ((), ())


def test_branches_are_sequences_of_one_response() -> None:
    branches = branch("abxc", (0, 0, 2), (3, 3, 4)), branch("de", (1, 0, 2), prompt="Q!"), branch("f", (2, 0, 1))
    group = make_group(PROMPT, 9, [episode(*branches), episode(trajectory())], TOKENIZER)
    batch = group.batch
    assert [response.index for response in batch.responses] == [0, 1]
    assert batch.lengths == [4, 2, 1, 4]
    assert batch.episode_ids == (0, 0, 0, 1)
    assert [TOKENIZER.decode(list(ids)) for ids in batch.prompt_ids] == ["Q", "Q!", "Q", "Q"]
    first, second = batch.responses
    assert (first.num_tokens, first.branch_lengths, second.branch_lengths) == (7, (4, 2, 1), ())
    assert first.turn_spans == ((0, 2), (4, 6), (6, 7), (3, 4))
    assert (first.oldest_version, first.newest_version, first.finish_reason) == (7, 9, "stop")
    # The turn that was submitted last.
    assert group.texts == ("c", "c")
    assert len(group.queries()) == 2


def test_routes_follow_the_tokens_of_every_branch() -> None:
    columns = [np.arange(begin, begin + 4, dtype=np.uint8).reshape(4, 1, 1) for begin in (1, 21)]
    first, second = (replace(trajectory(), routes=column) for column in columns)
    batch = make_group(PROMPT, 9, [episode(first), episode(trajectory("tools Q"), second)], TOKENIZER).batch
    assert batch.routes is not None
    found = [part.flatten().tolist() for part in batch.routes.split(batch.sequence_lengths)]
    assert found == [[1, 2, 3, 4, 0], [0] * (len(ids("tools Q")) + 4), [21, 22, 23, 24, 0]]
    assert make_group(PROMPT, 9, [episode(trajectory())], TOKENIZER).batch.routes is None
