"""Which engine a request goes to, and that one which is not needed any more is aborted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.errors import WorkerDiedError
from rlinf.workers.agent.engine_client import EngineClient


class Result:
    """A call in flight, which ends when a test says so."""

    def __init__(self, ended: asyncio.Event, value: Any) -> None:
        self.ended, self.value = ended, value

    async def async_wait(self) -> list[Any]:
        await self.ended.wait()
        return [self.value]


class Group:
    """A rollout group of three engines."""

    world_size = 3

    def __init__(self, pid: int = 1, *, is_dead: bool = False) -> None:
        self.worker_info_list = [SimpleNamespace(node_ip="", pid=pid)]
        self.is_dead = is_dead
        self.calls: list[tuple[int, str, Any]] = []
        self.ended = asyncio.Event()
        self.rank = -1

    def execute_on(self, rank: int) -> Group:
        self.rank = rank
        return self

    def complete(self, *requests: GenerationRequest) -> Result:
        assert {request.prefix_group for request in requests} == {"4"}
        self.calls.append((self.rank, "complete", " ".join(request.request_id for request in requests)))
        if self.is_dead:
            raise WorkerDiedError("it is gone", group="RolloutGroup", rank=self.rank)
        return Result(self.ended, [_completion(int(request.request_id[1:] or 1)) for request in requests])

    def abort_requests(self, request_ids: list[str]) -> None:
        self.calls.append((self.rank, "abort", request_ids))


def _completion(token: int) -> Completion:
    return Completion(token_ids=(token,), logprobs=(-1.0,), versions=(0,), finish_reason="stop")


def request(name: str) -> GenerationRequest:
    return GenerationRequest(request_id=name, prompt_ids=(1,), params=SamplingParams())


def test_requests_are_spread_and_the_load_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        group, client = Group(), EngineClient("RolloutGroup")
        monkeypatch.setattr("rlinf.workers.agent.engine_client.WorkerGroup.from_group_name", lambda *_: group)
        tasks = [asyncio.ensure_future(client.at(4).generate(request(f"r{number}"))) for number in range(6)]
        await asyncio.sleep(0.05)
        assert sorted(rank for rank, _, _ in group.calls) == [0, 1, 1, 1, 2, 2]
        tasks[0].cancel()
        await asyncio.sleep(0)
        assert group.calls[-1] == (1, "abort", ["r0"])
        group.ended.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert all(isinstance(each, Completion) for each in done[1:])
        assert client._load == [0, 0, 0]

    asyncio.run(play())


def test_engines_that_were_launched_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        groups = [Group(1, is_dead=True), Group(2)]
        groups[1].ended.set()
        monkeypatch.setattr("rlinf.workers.agent.engine_client.WorkerGroup.from_group_name", lambda *_: groups.pop(0))
        client = EngineClient("RolloutGroup")
        launched = groups[1]
        completion = await client.at(4).generate(request("r"))
        assert completion.token_ids == (1,)
        assert [name for _, _, name in launched.calls] == ["r"]
        assert client._load == [0, 0, 0]

    asyncio.run(play())


def test_engines_that_were_not_are_the_callers_business(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        dead = Group(1, is_dead=True)
        monkeypatch.setattr("rlinf.workers.agent.engine_client.WorkerGroup.from_group_name", lambda *_: dead)
        with pytest.raises(WorkerDiedError, match="it is gone"):
            await EngineClient("RolloutGroup").at(4).generate(request("r"))
        assert len(dead.calls) == 1

    asyncio.run(play())


@pytest.mark.parametrize("num_cancelled", [0, 1, 3])
def test_requests_of_a_group_that_come_at_once_are_one_call(
    monkeypatch: pytest.MonkeyPatch, num_cancelled: int
) -> None:
    async def play() -> None:
        group = Group()
        monkeypatch.setattr("rlinf.workers.agent.engine_client.WorkerGroup.from_group_name", lambda *_: group)
        client = EngineClient("RolloutGroup")
        joined = client.at(4, joins=True)
        tasks = [asyncio.ensure_future(joined.generate(request(f"r{number}"))) for number in range(3)]
        while not group.calls:
            await asyncio.sleep(0.01)
        assert group.calls == [(1, "complete", "r0 r1 r2")]
        assert client._load == [0, 3, 0]
        for task in tasks[:num_cancelled]:
            task.cancel()
        await asyncio.wait(tasks[:num_cancelled]) if num_cancelled else None
        await asyncio.sleep(0.01)
        assert group.calls[1:] == ([(1, "abort", ["r0", "r1", "r2"])] if num_cancelled == 3 else [])
        group.ended.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [each.token_ids for each in done[num_cancelled:]] == [(0,), (1,), (2,)][num_cancelled:]  # type: ignore[union-attr]
        assert client._load == [0, 0, 0]

    asyncio.run(play())


def test_an_engine_that_dies_fails_all_requests_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        dead = Group(1, is_dead=True)
        monkeypatch.setattr("rlinf.workers.agent.engine_client.WorkerGroup.from_group_name", lambda *_: dead)
        joined = EngineClient("RolloutGroup").at(4, joins=True)
        done = await asyncio.gather(*(joined.generate(request(f"r{n}")) for n in range(2)), return_exceptions=True)
        assert [type(each) for each in done] == [WorkerDiedError, WorkerDiedError]

    asyncio.run(play())
