"""Requests on their way through engines, rewards and inference ranks: none is lost or repeated, and order is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlinf.data.messages.generation import SamplingParams
from rlinf.data.messages.responses import Prompt, RewardedGroup
from rlinf.errors import WorkerDiedError, WorkerError
from rlinf.runners.rollout_pool import RolloutPool, RolloutRequest
from tests.unit.data.messages.response_samples import Sample
from tests.unit.runners.reply_groups import Call, Group, death

PARAMS = SamplingParams(n=2)


def request(group_id: int, split: str = "train") -> RolloutRequest:
    prompt = Prompt(index=group_id, token_ids=(group_id,), text=str(group_id))
    return RolloutRequest(group_id, prompt, PARAMS, split=split)


class Pool(RolloutPool):
    """A pool over groups whose calls the test answers; ``wait()`` without calls moves on what can move."""

    def __init__(
        self,
        *,
        engines: int = 1,
        rewards: int = 1,
        inference: int = 0,
        max_per_rank: int = 100,
        inference_is_sharded: bool = False,
    ) -> None:
        self.rollout: Any = Group("rollout", engines)
        self.reward: Any = Group("reward", rewards, serve_at_once)
        self.inference: Any = Group("inference", inference) if inference else None
        super().__init__(
            self.rollout,
            self.reward,
            max_per_rank=max_per_rank,
            inference=self.inference,
            inference_is_sharded=inference_is_sharded,
        )

    def submit_all(self, *group_ids: int, split: str = "train") -> None:
        for group_id in group_ids:
            self.submit(request(group_id, split))
        self.wait()

    def generating(self) -> dict[tuple[str, int], Call]:
        """Return the calls to engines that have not returned, by split and group."""
        pending = [call for call in self.rollout.calls if not call.future.done()]
        return {(call.keys["split"], call.keys["group_id"]): call for call in pending}

    def rewarding(self) -> dict[int, Call]:
        """Return the calls to rewards that have not returned, by group."""
        calls = [call for call in self.reward.calls if call.method == "score" and not call.future.done()]
        return {call.args[1]: call for call in calls}

    def scoring(self) -> dict[int, Call]:
        """Return the calls to inference ranks that have not returned, by group."""
        return {call.args[0]: call for call in self.inference.calls if not call.future.done()}

    def generate(self, *group_ids: int, split: str = "train") -> None:
        """Have engines generate the responses to some requests."""
        for group_id in group_ids:
            self.generating()[split, group_id].give(None)
        self.wait()

    def give_rewards(self, *group_ids: int) -> None:
        """Have rewards return."""
        for group_id in group_ids:
            reward(self.rewarding()[group_id])
        self.wait()

    def give_logprobs(self, *group_ids: int) -> None:
        """Have inference ranks return."""
        for group_id in group_ids:
            self.scoring()[group_id].give(None)
        self.wait()

    def forgotten(self) -> list[tuple[int, str, list[int]]]:
        """Return what reward ranks have been told to forget: rank, split and groups."""
        return [(c.rank, c.args[0], sorted(c.args[1])) for c in self.reward.calls if c.method == "discard"]


def rewarded(split: str, group_id: int) -> RewardedGroup:
    """Return two rewarded responses: the reward of each is its group's number."""
    sample = Sample(group_id=group_id, reward=float(group_id), reward_terms={split: 1.0})
    return RewardedGroup.of([replace(sample, index=index).response for index in range(2)])


def reward(call: Call) -> None:
    """Have a reward rank return a group's responses."""
    call.give(rewarded(*call.args))


def serve_at_once(call: Call) -> None:
    """Answer the calls that only forget responses."""
    if call.method in {"discard", "clear"}:
        call.give(None)


def groups_of(popped: list[RewardedGroup]) -> list[int]:
    assert all(group.rewards == (group.group_id,) * 2 for group in popped)
    return [group.group_id for group in popped]


def test_responses_come_back_in_the_order_of_submission() -> None:
    pool = Pool()
    pool.submit_all(3, 1, 4, 2)
    pool.generate(2)
    pool.generate(4)
    pool.generate(3, 1)
    pool.give_rewards(1)
    pool.give_rewards(2, 3, 4)
    assert pool.num_unconsumed() == 4
    assert groups_of(pool.pop(3)) == [3, 1, 4]
    assert pool.num_unconsumed() == 1
    assert groups_of(pool.pop(1)) == [2]
    assert pool.num_unconsumed() == 0


def test_a_prompt_goes_to_the_engine_with_the_fewest_in_flight() -> None:
    pool = Pool(engines=3)
    pool.submit_all(0, 1, 2, 3, 4)
    assert [call.rank for call in pool.rollout.calls] == [0, 1, 2, 0, 1]
    pool.generate(1, 4)
    pool.submit_all(5, 6, 7)
    assert [call.rank for call in pool.rollout.calls[5:]] == [1, 1, 2]


def test_no_engine_is_given_more_than_the_bound() -> None:
    pool = Pool(engines=2, max_per_rank=2)
    pool.submit_all(*range(7))
    assert [call.rank for call in pool.generating().values()] == [0, 1, 0, 1]
    pool.generate(2)
    pool.wait()
    # What is being rewarded takes no room of an engine.
    assert [call.rank for call in pool.generating().values()] == [0, 1, 1, 0]
    assert set(pool.rewarding()) == {2}


def test_rewards_share_the_groups_whatever_the_order() -> None:
    pool = Pool(rewards=2)
    pool.submit_all(0, 1, 2, 3)
    pool.generate(3, 0)
    pool.generate(2, 1)
    assert {group: call.rank for group, call in pool.rewarding().items()} == {0: 0, 1: 1, 2: 0, 3: 1}


def test_responses_that_are_rewarded_at_once_need_no_further_call() -> None:
    pool = Pool(engines=2, max_per_rank=1)
    pool.submit_all(0, 1, 2)
    pool.generating()["train", 1].give(rewarded("train", 1))
    pool.wait()
    assert not pool.rewarding()
    pool.wait()
    assert set(pool.generating()) == {("train", 0), ("train", 2)}
    pool.generate(0)  # Its reward takes longer.
    assert set(pool.rewarding()) == {0}
    pool.give_rewards(0)
    pool.generating()["train", 2].give(rewarded("train", 2))
    assert groups_of(pool.pop(3)) == [0, 1, 2]


def test_log_probabilities_of_responses_that_are_rewarded_at_once_are_computed() -> None:
    pool = Pool(inference=1)
    pool.submit_all(0)
    pool.submit_all(0, split="eval")
    for split, group_id in list(pool.generating()):
        pool.generating()[split, group_id].give(rewarded(split, group_id))
    pool.wait()
    assert groups_of(pool.pop(1, "eval")) == [0]
    assert set(pool.scoring()) == {0}
    pool.give_logprobs(0)
    assert groups_of(pool.pop(1)) == [0]


def test_what_was_rewarded_at_once_before_a_death_is_not_generated_again() -> None:
    pool = Pool(engines=2)
    pool.submit_all(0, 1)
    calls = pool.generating()
    calls["train", 0].give(rewarded("train", 0))
    calls["train", 1].fail(death("rollout", 1))
    with pytest.raises(WorkerDiedError):
        pool.pop(2)
    pool.requeue()
    pool.rollout.calls.clear()
    pool.wait()
    assert set(pool.generating()) == {("train", 1)}
    pool.generating()["train", 1].give(rewarded("train", 1))
    assert groups_of(pool.pop(2)) == [0, 1]


def test_unfinished_requests_are_processed_again_once_and_the_rest_is_kept() -> None:
    pool = Pool(max_per_rank=4)
    pool.submit_all(*range(6))
    pool.generate(0, 1, 2)
    pool.give_rewards(1)
    stale = [*pool.generating().values(), *pool.rewarding().values()]
    # 1 is finished, 0 and 2 are being rewarded, 3, 4 and 5 generated.
    submitted = len(pool.rollout.calls)
    pool.requeue()
    pool.wait()
    again = pool.rollout.calls[submitted:]
    assert [call.keys["group_id"] for call in again] == [0, 2, 3, 4]
    for call in stale:  # What the dead had still returned changes nothing.
        call.give(None) if call.method == "generate" else reward(call)
    pool.wait()
    assert not pool.rewarding()
    pool.generate(2, 0)
    pool.wait()
    pool.generate(3, 4, 5)
    pool.give_rewards(0, 2, 3, 4, 5)
    assert groups_of(pool.pop(6)) == list(range(6))


def test_a_death_surfaces_and_loses_nothing() -> None:
    pool = Pool(engines=2)
    pool.submit_all(0, 1, 2)
    pool.generate(0)
    pool.generating()["train", 1].fail(death("rollout", 1))
    with pytest.raises(WorkerDiedError, match="rollout:1 is gone"):
        pool.pop(3)
    with pytest.raises(WorkerDiedError):  # It stays so until somebody acts.
        pool.wait()
    pool.requeue()
    pool.rollout.calls.clear()
    pool.reward.calls.clear()
    pool.wait()
    assert set(pool.generating()) == {("train", 0), ("train", 1), ("train", 2)}
    pool.generate(0, 1, 2)
    pool.give_rewards(2, 1, 0)
    assert groups_of(pool.pop(3)) == [0, 1, 2]


def test_a_reward_that_fails_surfaces_and_its_request_can_be_processed_again() -> None:
    pool = Pool()
    pool.submit_all(0, 1)
    pool.generate(0, 1)
    pool.rewarding()[0].fail(death("reward"))
    reward(pool.rewarding()[1])
    with pytest.raises(WorkerDiedError, match="reward:0"):
        pool.pop(1)
    pool.requeue()
    pool.wait()
    assert ("train", 0) in pool.generating()
    pool.generate(*[group for _, group in pool.generating()])
    pool.give_rewards(*pool.rewarding())
    assert groups_of(pool.pop(2)) == [0, 1]


def test_pop_is_all_or_nothing() -> None:
    pool = Pool()
    pool.submit_all(0, 1)
    pool.generate(0)
    pool.give_rewards(0)
    pool.generating()["train", 1].fail(WorkerError("it broke", group="rollout", rank=0))
    with pytest.raises(WorkerError, match="it broke"):
        pool.pop(2)
    assert pool.num_unconsumed() == 2


def test_training_and_evaluation_do_not_mix() -> None:
    pool = Pool()
    pool.submit_all(0, 1)
    pool.submit_all(0, 1, 2, split="eval")
    assert (pool.num_unconsumed(), pool.num_unconsumed("eval"), pool.num_unconsumed("other")) == (2, 3, 0)
    pool.generate(1, 2, 0, split="eval")
    pool.give_rewards(0, 1, 2)
    found = pool.pop(3, "eval")
    assert groups_of(found) == [0, 1, 2]
    assert {name for group in found for name in group.scores} == {"eval"}
    pool.generate(0, 1)
    pool.give_rewards(0, 1)
    assert {name for group in pool.pop(2) for name in group.scores} == {"train"}


def test_one_split_can_be_cleared_wherever_its_requests_are() -> None:
    pool = Pool(max_per_rank=5)
    pool.submit_all(0, 1, 2, 3, split="eval")
    pool.submit_all(7, 8)
    pool.generate(0, 1, split="eval")
    pool.give_rewards(0)
    forgotten = [*pool.generating().values(), *pool.rewarding().values()]
    pool.clear("eval")
    assert (pool.num_unconsumed(), pool.num_unconsumed("eval")) == (2, 0)
    for call in forgotten:
        if call.keys.get("split") == "train":
            continue
        call.give(None) if call.method == "generate" else reward(call)
    pool.wait()
    assert not pool.rewarding()
    pool.generate(7, 8)
    pool.give_rewards(7, 8)
    assert groups_of(pool.pop(2)) == [7, 8]
    pool.submit_all(9)
    pool.clear()
    assert pool.num_unconsumed() == 0


def test_other_calls_are_waited_for_while_responses_come_in() -> None:
    pool = Pool()
    trainer = Group("actor", 1, lambda call: call.give({}))
    pool.submit(request(0))
    pool.wait(trainer.run_training(step=1))
    assert set(pool.generating()) == {("train", 0)}
    broken = Group("actor", 1, lambda call: call.fail(WorkerError("no gradient", group="actor", rank=0)))
    with pytest.raises(WorkerError, match="no gradient"):
        pool.wait(broken.run_training(step=2))


def test_peek_leaves_the_responses_in_the_pool() -> None:
    pool = Pool()
    pool.submit_all(0, 1, 2)
    pool.generate(0, 1)
    pool.give_rewards(0, 1)
    assert groups_of(pool.peek(2)) == groups_of(pool.peek(2)) == [0, 1]
    assert pool.num_unconsumed() == 3
    pool.discard(2)
    pool.generate(2)
    pool.give_rewards(2)
    assert groups_of(pool.pop(1)) == [2]


def test_cancelled_requests_end_wherever_they_are_and_can_be_submitted_again() -> None:
    pool = Pool(engines=2, max_per_rank=3)
    pool.submit_all(*range(8))  # 6 and 7 wait
    pool.generate(0, 3, 5)
    pool.give_rewards(0, 5)
    submitted = {call.keys["group_id"]: call for call in pool.generating().values()}
    assert set(submitted) == {1, 2, 4, 6, 7}
    scoring = pool.rewarding()[3]
    aborted = []

    def serve(call: Call) -> None:
        if call.method == "abort":
            aborted.append((call.rank, sorted(call.args[0]), call.keys["split"]))
            call.give(None)
            for group in call.args[0]:
                submitted[group].give(None)

    pool.rollout.on_call = serve
    pool.cancel(5)
    assert sorted(aborted) == [(0, [4, 7], "train"), (1, [6], "train")]
    reward(scoring)
    assert pool.num_unconsumed() == 3
    pool.rollout.calls.clear()
    pool.submit_all(3, 4)
    assert [call.keys["group_id"] for call in pool.rollout.calls] == [3, 4]
    for group in (1, 2):
        submitted[group].give(None)
    pool.wait()
    pool.generate(3, 4)
    pool.give_rewards(1, 2, 3, 4)
    assert groups_of(pool.pop(5)) == [0, 1, 2, 3, 4]


def test_requests_are_cancelled_even_if_their_engine_is_gone() -> None:
    pool = Pool()
    pool.submit_all(0, 1, 2)

    def die(call: Call) -> None:
        if call.method == "abort":
            call.fail(death("rollout"))
            for begun in pool.generating().values():
                begun.fail(death("rollout"))

    pool.rollout.on_call = die
    with pytest.raises(WorkerDiedError):
        pool.cancel(2)
    pool.rollout.calls.clear()
    pool.requeue()
    pool.wait()
    assert [call.keys["group_id"] for call in pool.rollout.calls] == [0]


def test_log_probabilities_are_computed_as_soon_as_a_group_is_rewarded() -> None:
    pool = Pool(inference=2)
    pool.submit_all(0, 1, 2, 3)
    pool.submit_all(0, split="eval")
    pool.generate(2, 0)
    pool.give_rewards(2)
    # 0 is being rewarded, 1 and 3 generated.
    assert set(pool.scoring()) == {2}
    pool.give_logprobs(2)
    pool.generate(0, split="eval")
    pool.give_rewards(0, 0)
    assert groups_of(pool.pop(1, "eval")) == [0]
    pool.generate(1, 3)
    pool.give_rewards(3, 1)
    # Those in flight are spread over the ranks.
    assert [(call.args[0], call.rank) for call in pool.inference.calls] == [(2, 0), (0, 0), (3, 1), (1, 0)]
    pool.give_logprobs(3, 1, 0)
    assert groups_of(pool.pop(4)) == [0, 1, 2, 3]


def test_ranks_that_share_a_model_all_compute_every_group_in_the_same_order() -> None:
    pool = Pool(inference=2, inference_is_sharded=True)
    pool.submit_all(0, 1)
    pool.generate(1, 0)
    pool.give_rewards(1, 0)
    calls = pool.inference.calls
    assert [(call.args[0], call.rank) for call in calls] == [(1, 0), (1, 1), (0, 0), (0, 1)]
    for call in calls[:2]:
        call.give(None)
    pool.wait()
    for call in calls[2:]:
        call.give(None)
    assert groups_of(pool.pop(2)) == [0, 1]


def test_requests_at_inference_ranks_are_processed_again_cancelled_or_cleared() -> None:
    pool = Pool(inference=1)
    pool.submit_all(0, 1, 2, 3)
    pool.generate(0, 1, 2, 3)
    pool.give_rewards(0, 1, 2, 3)
    pool.cancel(1)
    pool.scoring()[0].fail(death("inference"))
    with pytest.raises(WorkerDiedError, match="inference:0"):
        pool.pop(1)
    stale = list(pool.scoring().values())
    pool.requeue()
    pool.wait()
    for call in stale:
        call.give(None)
    assert set(pool.generating()) == {("train", 0), ("train", 1), ("train", 2)}
    pool.generate(0, 1, 2)
    pool.give_rewards(0, 1, 2)
    pool.give_logprobs(2, 1, 0)
    assert groups_of(pool.pop(3)) == [0, 1, 2]
    pool.submit_all(4, 5)
    pool.generate(4, 5)
    pool.give_rewards(4, 5)
    pool.clear()
    for call in pool.scoring().values():
        call.give(None)
    pool.submit_all(6)
    assert pool.num_unconsumed() == 1


def test_reward_ranks_forget_what_is_discarded_cancelled_or_cleared() -> None:
    pool = Pool(rewards=2)
    pool.submit_all(0, 1, 2, 3, 4)
    pool.submit_all(0, split="eval")
    pool.generate(0, 1, 2)
    pool.give_rewards(0, 1, 2)
    pool.discard(3)
    assert pool.forgotten() == []
    pool.wait()
    assert sorted(pool.forgotten()) == [(0, "train", [0, 2]), (1, "train", [1])]
    pool.generate(3, 4)
    pool.give_rewards(3, 4)
    pool.reward.calls.clear()
    pool.cancel(1)
    assert pool.forgotten() == [(0, "train", [4])]
    pool.clear("eval")
    assert [(call.rank, call.args) for call in pool.reward.calls if call.method == "clear"] == [
        (0, ("eval",)),
        (1, ("eval",)),
    ]


def test_finished_requests_are_processed_again_where_their_responses_are_lost() -> None:
    pool = Pool()
    pool.submit_all(0, 1, 2)
    pool.generate(0, 1)
    pool.give_rewards(0)
    pool.requeue()
    pool.wait()
    assert set(pool.generating()) >= {("train", 1), ("train", 2)}
    assert ("train", 0) not in pool.generating()
    pool.requeue(finished=True)
    pool.rollout.calls.clear()
    pool.wait()
    assert [call.keys["group_id"] for call in pool.rollout.calls] == [0, 1, 2]
    assert pool.num_unconsumed() == 3


def test_what_completes_together_with_a_failure_is_not_lost() -> None:
    pool = Pool()
    pool.submit_all(0, 1)
    calls = pool.generating()
    calls["train", 1].fail(WorkerError("it broke", group="rollout", rank=0))
    calls["train", 0].give(None)
    with pytest.raises(WorkerError, match="it broke"):
        pool.wait()
    pool.rollout.on_call = lambda call: call.give(None)
    with pytest.raises(WorkerError, match="it broke"):  # The engine fails to end it, too.
        pool.cancel(1)
    pool.wait()
    pool.give_rewards(0)
    assert groups_of(pool.pop(1)) == [0]


def test_cancelling_leaves_the_requests_of_another_split_alone() -> None:
    pool = Pool()
    pool.submit_all(0, 1)
    pool.submit_all(0, 1, split="eval")
    pool.generate(0, 1)
    pool.give_rewards(0, 1)
    pool.cancel(2)
    pool.generate(0, 1, split="eval")
    pool.give_rewards(0, 1)
    assert groups_of(pool.pop(2, "eval")) == [0, 1]
