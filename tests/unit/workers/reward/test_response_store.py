"""Responses between engine and actor: they wait at their reward rank, in the order in which they are asked for."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError, WorkerError
from rlinf.scheduler import WorkerGroup, WorkerGroupFuncResult
from rlinf.scheduler.address import WorkerAddress
from rlinf.scheduler.calls import RemoteFailure
from rlinf.scheduler.comm.endpoint import Reply
from rlinf.scheduler.comm.serialization import encode
from rlinf.workers.reward.response_client import ResponseClient
from rlinf.workers.reward.response_store import ResponseStore
from rlinf.workers.reward.reward_worker import RewardWorker
from tests.unit.data.messages.response_samples import Sample, group_of


def group(group_id: int, texts: tuple[str, ...] = ("yes", "no"), first_token: int = 0) -> Any:
    """Return a group whose responses have one token more each."""
    samples = [
        Sample(group_id=group_id, index=index, token_ids=tuple(range(first_token, first_token + index + 1)))
        for index in range(len(texts))
    ]
    return group_of(samples, texts, reference="yes")


class Rewards:
    """A reward group in this process: every call goes to a rank's worker, and its result through the serialization.

    Args:
        world_size: Ranks.
    """

    def __init__(self, world_size: int) -> None:
        keys = ["~reward.rewards.math", "+reward.rewards.it={reward_type: vqa}"]
        cfg = validate_cfg(load_recipe("tiny_math_grpo", keys))
        self.world_size, self.ranks = world_size, [RewardWorker(cfg) for _ in range(world_size)]
        for rank, worker in enumerate(self.ranks):
            worker._rank, worker._world_size = rank, world_size
            worker.init_worker()
        self.target = 0
        self.closers = [worker.rewards.close for worker in self.ranks]

    def execute_on(self, rank: int) -> Rewards:
        self.target = rank
        return self

    def __getattr__(self, method: str) -> Any:
        address = WorkerAddress("RewardGroup", self.target)
        function = getattr(self.ranks[self.target], method)

        def call(*args: Any) -> WorkerGroupFuncResult:
            future: Future[Reply] = Future()

            def run() -> None:
                try:
                    value = asyncio.run(function(*args))
                except RewardError as error:
                    about = RemoteFailure(address, 0, method, "RewardError", str(error), "", None)
                    future.set_result(Reply((False, about), []))
                else:
                    future.set_result(Reply((True, 0.0), [memoryview(bytes(f)) for f in encode(value)]))

            try:
                asyncio.get_running_loop()
            except RuntimeError:
                run()
            else:
                thread = threading.Thread(target=run)
                thread.start()
                thread.join()
            return WorkerGroupFuncResult(method, [(address, future)])

        return call


@pytest.fixture
def rewards() -> Iterator[Rewards]:
    made = Rewards(3)
    yield made
    for close in made.closers:
        close()


def put(rewards: Rewards, *groups: Any, split: str = "train") -> ResponseClient:
    client = ResponseClient("RewardGroup")
    vars(client)["_group"] = rewards

    async def run() -> None:
        for one in groups:
            await client.put(split, one)

    asyncio.run(run())
    return client


def test_groups_that_are_put_at_the_same_time_share_calls(rewards: Rewards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlinf.workers.reward.reward_worker._MOMENT_SECONDS", 60.0)
    calls: list[list[int]] = []
    plain = RewardWorker.put_responses

    async def record(self: RewardWorker, split: str, *groups: Any) -> Any:
        calls.append([each.group_id for each in groups])
        return await plain(self, split, *groups)

    monkeypatch.setattr(RewardWorker, "put_responses", record)
    client = ResponseClient("RewardGroup")
    vars(client)["_group"] = rewards

    async def run() -> list[Any]:
        puts = [asyncio.ensure_future(client.put("train", group(number))) for number in range(60)]
        await asyncio.sleep(0)
        puts[5].cancel()
        return await asyncio.gather(*puts, return_exceptions=True)

    found = asyncio.run(run())
    assert isinstance(found.pop(5), asyncio.CancelledError)
    assert [each.group_id for each in found] == [number for number in range(60) if number != 5]
    assert sorted(map(len, calls)) == [4, 4, 4, 16, 16, 16]
    assert sorted(number for call in calls for number in call) == list(range(60))


def test_each_caller_gets_the_failure_of_a_call_that_it_shares(
    rewards: Rewards, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: RewardWorker, split: str, *groups: Any) -> Any:
        raise RewardError("gone")

    monkeypatch.setattr(RewardWorker, "put_responses", fail)
    client = ResponseClient("RewardGroup")
    vars(client)["_group"] = rewards

    async def run() -> list[Any]:
        return await asyncio.gather(*(client.put("eval", group(3)) for _ in range(3)), return_exceptions=True)

    failures = asyncio.run(run())
    assert len(failures) == 3
    assert all("RewardError: gone" in str(failure) for failure in failures)


def test_groups_come_back_in_the_order_that_is_asked_for_whichever_ranks_keep_them(rewards: Rewards) -> None:
    client = put(rewards, *(group(number, first_token=10 * number) for number in (4, 0, 5, 2, 7)))
    kept = [sorted(number for _, number in worker.store._groups) for worker in rewards.ranks]
    assert kept == [[0], [4, 7], [2, 5]]
    batch = client.fetch([7, 2, 4])
    assert [(r.group_id, r.index, r.num_tokens) for r in batch.responses] == [
        (7, 0, 1),
        (7, 1, 2),
        (2, 0, 1),
        (2, 1, 2),
        (4, 0, 1),
        (4, 1, 2),
    ]
    assert batch.token_ids.tolist() == [70, 70, 71, 20, 20, 21, 40, 40, 41]
    assert [part.tolist() for part in batch.split(batch.token_ids)] == [[70], [70, 71], [20], [20, 21], [40], [40, 41]]
    assert batch.trainer_logprobs is None


def test_rewards_stay_with_the_tokens(rewards: Rewards) -> None:
    client = put(rewards, group(3))
    (returned,) = rewards.execute_on(0).score("train", 3).wait()
    assert (returned.group_id, returned.rewards, returned.scores) == (3, (1.0, 0.0), {"it": (1.0, 0.0)})
    assert (returned.num_tokens, returned.num_prompt_tokens, len(returned)) == ((1, 2), 1, 2)
    kept = client.fetch([3]).responses
    assert [response.reward for response in kept] == [1.0, 0.0]
    assert kept[0].reward_terms == {"it": 1.0}


def test_the_trainers_log_probabilities_are_added_to_a_group(rewards: Rewards) -> None:
    client = put(rewards, group(3), group(4))
    client.put_trainer_logprobs(3, torch.tensor([-1.0, -2.0, -3.0]))
    found = client.fetch([3]).trainer_logprobs
    assert found is not None
    assert found.tolist() == [-1, -2, -3]
    # Half of a column is none: the actor must not mistake it for the whole.
    assert client.fetch([3, 4]).trainer_logprobs is None
    client.put_trainer_logprobs(4, torch.tensor([-4.0, -5.0, -6.0]))
    assert client.fetch([4, 3]).trainer_logprobs.tolist() == [-4, -5, -6, -1, -2, -3]  # type: ignore[union-attr]


def test_groups_that_are_not_kept_are_named(rewards: Rewards) -> None:
    client = put(rewards, group(3), group(6))
    put(rewards, group(3), split="eval")
    rewards.execute_on(0).discard("train", [3, 9]).wait()
    with pytest.raises(WorkerError, match="train group 3 are not on this reward rank"):
        client.fetch([6, 3])
    assert client.fetch([6]).responses[0].group_id == 6
    assert rewards.execute_on(0).score("eval", 3).wait()[0].rewards == (1.0, 0.0)
    rewards.execute_on(0).clear("eval").wait()
    with pytest.raises(WorkerError, match="eval group 3"):
        rewards.execute_on(0).score("eval", 3).wait()
    assert client.fetch([6]).responses[0].group_id == 6


def test_what_is_generated_again_keeps_its_own_rewards() -> None:
    store, old, new = ResponseStore(), group(1), group(1, texts=("no",))
    store.put("train", old)
    store.put("train", new)
    store.replace("train", old, responses=old.batch.responses)  # A late reward of the first generation.
    assert store.get("train", 1) is new
    store.discard("train", [1])
    store.replace("train", new, responses=())
    with pytest.raises(RewardError):
        store.get("train", 1)
    store.put("train", new)
    store.replace("train", new, responses=tuple(replace(r, reward=2.0) for r in new.batch.responses))
    assert store.get("train", 1).batch.responses[0].reward == 2.0
    assert store.get("train", 1).texts == ("no",)


def test_a_table_has_the_groups_of_all_ranks_in_order(
    rewards: Rewards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(rewards, *(group(number) for number in range(5)))
    monkeypatch.setattr(WorkerGroup, "from_group_name", lambda worker_class, name: rewards)
    path = tmp_path / "samples" / "step.jsonl"
    asyncio.run(rewards.ranks[0].write_samples(str(path), "train", [1, 3, 4]))
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(row["group"], row["member"], row["answer"]) for row in rows] == [
        (number, index, text) for number in (1, 3, 4) for index, text in enumerate(("yes", "no"))
    ]


class Scores:
    """Rewards that take as long as the test says, and score a response by its number of tokens.

    Attributes:
        scored: Tokens of each group that scoring has begun of.
        go_on: Scoring waits for it.
        failure: Ends it instead.
    """

    def __init__(self, worker: RewardWorker) -> None:
        self.scored: list[list[int]] = []
        self.go_on = asyncio.Event()
        self.failure: RewardError | None = None
        self.rewarded = worker.rewards.rewarded

    async def score(self, queries: list[RewardQuery]) -> list[dict[str, float]]:
        self.scored.append([query.num_tokens for query in queries])
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        return [{"it": float(query.num_tokens)} for query in queries]


@pytest.fixture
def slow(rewards: Rewards, monkeypatch: pytest.MonkeyPatch) -> tuple[RewardWorker, Scores]:
    """Return a reward rank whose rewards take longer than a call that brings responses waits for them."""
    monkeypatch.setattr("rlinf.workers.reward.reward_worker._MOMENT_SECONDS", 0.001)
    worker = rewards.ranks[0]
    scores = Scores(worker)
    monkeypatch.setattr(worker, "rewards", scores)
    return worker, scores


def test_the_call_that_brings_responses_returns_their_rewards(
    rewards: Rewards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlinf.workers.reward.reward_worker._MOMENT_SECONDS", 60.0)
    ((found, other),) = rewards.execute_on(0).put_responses("train", group(3), group(6)).wait()
    assert (found.group_id, found.rewards) == (3, (1.0, 0.0))
    assert other.group_id == 6
    assert rewards.ranks[0].store.get("train", 3).batch.responses[0].reward == 1.0


def test_rewards_that_take_longer_are_computed_once(slow: tuple[RewardWorker, Scores]) -> None:
    worker, scores = slow

    async def run() -> Any:
        assert await worker.put_responses("train", group(3)) == [None]
        waiting = asyncio.ensure_future(worker.score("train", 3))
        await asyncio.sleep(0)
        assert not waiting.done()
        scores.go_on.set()
        return await waiting

    assert asyncio.run(run()).rewards == (1.0, 2.0)
    assert scores.scored == [[1, 2]]


def test_a_reward_that_fails_fails_the_call_that_waits_for_it(slow: tuple[RewardWorker, Scores]) -> None:
    worker, scores = slow
    scores.failure = RewardError("no service")
    scores.go_on.set()

    async def run() -> None:
        assert await worker.put_responses("train", group(3)) == [None]
        with pytest.raises(RewardError, match="no service"):
            await worker.score("train", 3)

    asyncio.run(run())
    assert len(scores.scored) == 1


def test_responses_of_a_stopped_engine_are_scored_only_if_they_are_needed(slow: tuple[RewardWorker, Scores]) -> None:
    worker, scores = slow
    scores.go_on.set()
    samples = [Sample(group_id=3), Sample(group_id=3, index=1, finish_reason="abort")]

    async def run() -> Any:
        assert await worker.put_responses("train", group_of(samples)) == [None]
        assert not scores.scored
        return await worker.score("train", 3)

    assert asyncio.run(run()).finish_reasons == ("stop", "abort")


def test_what_is_generated_again_does_not_get_the_first_generations_rewards(slow: tuple[RewardWorker, Scores]) -> None:
    worker, scores = slow
    discarded = group(6)

    async def run() -> Any:
        await worker.put_responses("train", group(3))
        await worker.put_responses("train", discarded)
        await worker.discard("train", [6])
        await worker.put_responses("train", group(3, texts=("one",)))
        await worker.put_responses("train", group(9))
        await worker.put_responses("train", group_of([Sample(group_id=9, finish_reason="abort")]))
        scores.go_on.set()
        with pytest.raises(RewardError, match="train group 6"):
            await worker.score("train", 6)
        assert (await worker.score("train", 9)).finish_reasons == ("abort",)
        return await worker.score("train", 3)

    assert asyncio.run(run()).rewards == (1.0,)
    assert len(worker.store.get("train", 3).batch.responses) == 1
