"""Each sampled token is trained on once, in its own context, with its own numbers; and no other token is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.agents.recorder import TokenTree, Trajectory
from rlinf.data.messages.generation import Completion
from rlinf.errors import AgentError


def completion(tokens: Sequence[int], *, version: int = 0, first_logprob: float = -1.0) -> Completion:
    """Return a completion whose log-probabilities are all different."""
    return Completion(
        token_ids=tuple(tokens),
        logprobs=tuple(first_logprob - index for index in range(len(tokens))),
        versions=(version,) * len(tokens),
        finish_reason="stop",
    )


def record(tree: TokenTree, prompt: Sequence[int], tokens: Sequence[int], **values: float) -> None:
    tree.commit(tree.begin(prompt), completion(tokens, **values))  # type: ignore[arg-type]


def own(trajectory: Trajectory) -> list[int]:
    return trajectory.loss_mask.astype(int).tolist()


@dataclass(frozen=True)
class Sampled:
    """A turn as a test has played it: all that must come back."""

    number: int
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]


@st.composite
def episodes(draw: st.DrawFn) -> list[Sampled]:
    """Draw turns over a small alphabet, whose prompts continue, repeat, cut and rewrite what was there."""
    token = st.integers(0, 2)
    some = st.lists(token, max_size=3)
    turns: list[Sampled] = []
    for number in range(draw(st.integers(1, 8))):
        prompt: list[int] = []
        if turns:
            before = draw(st.sampled_from(turns))
            whole = [*before.prompt, *before.tokens]
            keep = draw(st.one_of(st.just(len(whole)), st.just(len(before.prompt)), st.integers(0, len(whole))))
            prompt = whole[:keep]
        prompt += draw(some)
        tokens = draw(st.lists(token, min_size=1, max_size=4))
        logprobs = [-1.0 - number - index / 8 for index in range(len(tokens))]
        versions = [draw(st.integers(-1, 3))] * len(tokens)
        turns.append(Sampled(number, tuple(prompt or [0]), tuple(tokens), tuple(logprobs), tuple(versions)))
    return turns


def played(turns: Sequence[Sampled], order: Sequence[int]) -> TokenTree:
    """Submit prompts in the order of turns; completions that need not be there yet come in another order."""
    tree = TokenTree()
    for start in range(0, len(turns), 2):
        batch = [(tree.begin(turn.prompt), turn) for turn in turns[start : start + 2]]
        for call, turn in batch if order[start % len(order)] else batch[::-1]:
            tree.commit(
                call,
                Completion(
                    token_ids=turn.tokens, logprobs=turn.logprobs, versions=turn.versions, finish_reason="length"
                ),
            )
    return tree


def recorded(trajectories: Sequence[Trajectory]) -> list[Sampled]:
    """Return the turns that trajectories train on, with the context of each."""
    found = []
    for trajectory in trajectories:
        whole = [*trajectory.prompt_ids.tolist(), *trajectory.token_ids.tolist()]
        for turn in trajectory.turns:
            span = slice(turn.start, turn.stop)
            found.append(
                Sampled(
                    turn.number,
                    tuple(whole[: len(trajectory.prompt_ids) + turn.start]),
                    tuple(trajectory.token_ids[span].tolist()),
                    tuple(trajectory.logprobs[span].tolist()),
                    tuple(trajectory.versions[span].tolist()),
                )
            )
    return found


@settings(max_examples=300, deadline=None)
@given(turns=episodes(), order=st.lists(st.booleans(), min_size=1, max_size=4))
def test_every_turn_is_trained_on_once_in_its_own_context(turns: list[Sampled], order: list[int]) -> None:
    trajectories = played(turns, order).trajectories()
    assert Counter(recorded(trajectories)) == Counter(turns)


@settings(max_examples=200, deadline=None)
@given(turns=episodes(), order=st.lists(st.booleans(), min_size=1, max_size=4))
def test_masks_are_true_exactly_where_a_turn_was_sampled(turns: list[Sampled], order: list[int]) -> None:
    for trajectory in played(turns, order).trajectories():
        spans = np.zeros(len(trajectory.token_ids), dtype=bool)
        for turn in trajectory.turns:
            assert not spans[turn.start : turn.stop].any()
            spans[turn.start : turn.stop] = True
        assert (trajectory.loss_mask == spans).all()
        assert (trajectory.versions[~spans] == -1).all()
        assert (trajectory.logprobs[~spans] == 0).all()
        assert trajectory.loss_mask[0]
        assert trajectory.loss_mask[-1]


@settings(max_examples=100, deadline=None)
@given(turns=episodes())
def test_trajectories_do_not_depend_on_the_order_in_which_completions_come(turns: list[Sampled]) -> None:
    one, other = (played(turns, [order]).trajectories() for order in (True, False))
    assert Counter(recorded(one)) == Counter(recorded(other))
    assert sorted(len(trajectory.turns) for trajectory in one) == sorted(len(each.turns) for each in other)


def test_a_prompt_that_continues_a_turn_extends_its_trajectory() -> None:
    tree = TokenTree()
    record(tree, [1, 2], [3, 4], version=5)
    record(tree, [1, 2, 3, 4, 9, 9], [7], version=6)
    (trajectory,) = tree.trajectories()
    assert trajectory.prompt_ids.tolist() == [1, 2]
    assert trajectory.token_ids.tolist() == [3, 4, 9, 9, 7]
    assert own(trajectory) == [1, 1, 0, 0, 1]
    assert trajectory.versions.tolist() == [5, 5, -1, -1, 6]
    assert trajectory.logprobs.tolist() == [-1, -2, 0, 0, -1]
    assert [(turn.number, turn.start, turn.stop) for turn in trajectory.turns] == [(0, 0, 2), (1, 4, 5)]
    assert not tree.forks()


def test_the_memory_of_a_turn_is_that_of_its_own_tokens() -> None:
    tree = TokenTree()
    whole: list[int] = []
    for _ in range(50):
        whole += [1] * 10
        call = tree.begin(whole)
        assert call.context.base is None
        tree.commit(call, completion([2] * 10))
        whole += [2] * 10
    (trajectory,) = tree.trajectories()
    assert len(trajectory.turns) == 50
    assert trajectory.token_ids.tolist() == whole[10:]


def test_equal_completions_of_one_prompt_are_two_samples() -> None:
    tree = TokenTree()
    first, second = tree.begin([1]), tree.begin([1])
    tree.commit(second, completion([5]))
    tree.commit(first, completion([5]))
    assert [own(trajectory) for trajectory in tree.trajectories()] == [[1], [1]]
    assert tree.begin([1]).fork is None
    assert not tree.forks()


def test_of_two_prompts_that_continue_a_turn_the_one_submitted_first_extends_it() -> None:
    tree = TokenTree()
    record(tree, [1], [5])
    first, second = tree.begin([1, 5, 8]), tree.begin([1, 5, 8, 8])
    tree.commit(second, completion([6]))
    tree.commit(first, completion([7]))
    long, short = tree.trajectories()
    assert long.token_ids.tolist() == [5, 8, 7]
    assert (short.prompt_ids.tolist(), short.token_ids.tolist()) == ([1, 5, 8, 8], [6])
    assert not tree.forks()


def test_a_call_without_a_completion_leaves_no_trace() -> None:
    tree = TokenTree()
    tree.begin([1])
    tree.commit(tree.begin([1, 2]), completion([]))
    assert tree.trajectories() == ()


def test_a_completion_that_was_cut_forks_and_is_trained_on_where_it_was_sampled() -> None:
    tree = TokenTree(decode=lambda ids: "".join(map(str, ids)))
    record(tree, [1], [5, 6, 7])
    record(tree, [1, 5, 6, 9], [8])
    first, second = tree.trajectories()
    assert (first.token_ids.tolist(), own(first)) == ([5, 6, 7], [1, 1, 1])
    assert (second.prompt_ids.tolist(), own(second)) == ([1, 5, 6, 9], [1])
    assert tree.forks() == {"rewritten": 1}


def test_equal_text_of_other_tokens_is_drift() -> None:
    """Token 3 spells "11", as two tokens 1 do."""
    tree = TokenTree(decode=lambda ids: "".join("11" if token == 3 else str(token) for token in ids))
    record(tree, [2], [1, 1])
    assert tree.begin([2, 3, 5]).fork == "drift"
    assert tree.begin([2, 4, 5]).fork == "rewritten"
    assert tree.begin([7, 7]).fork is None
    assert tree.forks() == {"drift": 1, "rewritten": 1}


def test_another_context_behind_the_same_turn_is_no_fork() -> None:
    tree = TokenTree()
    record(tree, [1], [5])
    record(tree, [1, 5, 8, 8], [6])
    assert tree.begin([1, 5, 8, 9]).fork is None
    assert tree.begin([1, 5, 8, 8, 7]).fork == "rewritten"


def test_log_probabilities_are_those_of_the_full_vocabulary() -> None:
    tree = TokenTree()
    tree.commit(
        tree.begin([1]),
        Completion(token_ids=(2,), logprobs=(-1.0,), full_logprobs=(-3.0,), versions=(0,), finish_reason="stop"),
    )
    assert tree.trajectories()[0].logprobs.tolist() == [-3.0]


def test_what_cannot_be_trained_on_is_refused() -> None:
    tree = TokenTree()
    with pytest.raises(AgentError, match="empty prompt"):
        tree.begin([])
    call = tree.begin([1])
    with pytest.raises(AgentError, match="not finite"):
        tree.commit(call, completion([1], first_logprob=float("nan")))
    with pytest.raises(AgentError, match="received 1 tokens with 0 log-probabilities"):
        tree.commit(call, Completion(token_ids=(1,), logprobs=(), versions=(0,), finish_reason="stop"))


def test_a_turn_that_no_client_has_read_is_no_sample() -> None:
    tree = TokenTree()
    record(tree, [1, 2], [3])
    record(tree, [1, 2, 5], [6], first_logprob=-2.0)
    record(tree, [1, 2, 5, 6, 7], [8])
    tree.discard(0)
    tree.discard(1)
    (trajectory,) = tree.trajectories()
    assert [turn.number for turn in trajectory.turns] == [1, 2], "a turn that is continued has been read"


def routed(tokens: Sequence[int], routes: Sequence[int]) -> Completion:
    """Return a completion whose engine has one layer and sends a token to one expert."""
    return replace(completion(tokens), routes=np.array(routes, dtype=np.uint8).reshape(-1, 1, 1))


def routes_of(trajectory: Trajectory) -> list[int]:
    assert trajectory.routes is not None
    assert trajectory.routes.shape[1:] == (1, 1)
    return trajectory.routes.flatten().tolist()


def test_a_token_keeps_the_route_of_the_first_turn_that_computed_it() -> None:
    tree = TokenTree()
    tree.commit(tree.begin([1, 2]), routed([3, 4], [11, 12, 13]))
    # The second turn computes all tokens anew, with other weights; the last of the first turn for the first time.
    tree.commit(tree.begin([1, 2, 3, 4, 9]), routed([7, 8], [21, 22, 23, 24, 25, 26]))
    tree.commit(tree.begin([1, 2, 3, 4, 9, 7, 8]), routed([5], [31, 32, 33, 34, 35, 36, 37]))
    (trajectory,) = tree.trajectories()
    assert routes_of(trajectory) == [11, 12, 13, 24, 25, 26, 37]


def test_a_branch_takes_its_own_routes_for_its_prompt() -> None:
    tree = TokenTree()
    tree.commit(tree.begin([1, 2]), routed([3, 4], [11, 12, 13]))
    tree.commit(tree.begin([1, 2, 3, 5]), routed([6, 7], [21, 22, 23, 24, 25]))
    first, second = tree.trajectories()
    assert routes_of(first) == [11, 12, 13]
    assert routes_of(second) == [21, 22, 23, 24, 25]


def test_turns_without_routes_leave_them_to_the_next() -> None:
    tree = TokenTree()
    record(tree, [1, 2], [3])
    (trajectory,) = tree.trajectories()
    assert trajectory.routes is None
    tree.commit(tree.begin([1, 2, 3]), routed([4], [11, 12, 13]))
    tree.commit(tree.begin([1, 2, 3, 4]), routed([5], [21, 22]))
    tree.commit(tree.begin([1, 2, 3, 4, 5]), routed([6], [31, 32, 33, 34, 35]))
    (trajectory,) = tree.trajectories()
    assert routes_of(trajectory) == [11, 12, 13, 34, 35]
