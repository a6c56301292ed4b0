"""Which server a request goes to, what becomes of those of a dead one, and when one that was away is used again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest
import torch
from served_engines import PATIENT, ServerThread

from rlinf.data.messages.generation import GenerationRequest, SamplingParams
from rlinf.errors import EngineDiedError, EngineError, WeightSyncError
from rlinf.hybrid_engines.serving.remote_engine import Patience, RemoteEngine
from rlinf.hybrid_engines.serving.routed_engine import RoutedEngine
from tests.unit.hybrid_engines.packing import pack_weights

T = TypeVar("T")
Serve = Callable[..., ServerThread]
LIVELY = Patience(timeout_seconds=20.0, health_interval_seconds=0.1, start_timeout_seconds=20.0)


def request(name: str, group: str = "", **params: Any) -> GenerationRequest:
    return GenerationRequest(
        request_id=name, prompt_ids=(5, 6), params=SamplingParams(seed=1, **params), prefix_group=group
    )


def engine_of(thread: ServerThread) -> Any:
    return thread.engine


def play(
    scene: Callable[[RoutedEngine], Awaitable[T]], threads: Sequence[ServerThread], patience: Patience = PATIENT
) -> T:
    async def run() -> T:
        router = RoutedEngine([RemoteEngine(thread.url, patience) for thread in threads])
        try:
            await router.start()
            return await scene(router)
        finally:
            await router.close()

    return asyncio.run(asyncio.wait_for(run(), 60))


async def arrived(threads: Sequence[ServerThread], count: int) -> list[int]:
    """Wait until so many requests are there, and return how many each server has."""
    while sum(len(engine_of(thread).requests) for thread in threads) < count:
        await asyncio.sleep(0.01)
    return [len(engine_of(thread).requests) for thread in threads]


def hold(threads: Sequence[ServerThread], *, back: bool = True) -> None:
    for thread in threads:
        thread.set(engine_of(thread).free, to=not back)


async def update(router: RoutedEngine, version: int) -> None:
    manifest, (bucket,) = pack_weights([("a", torch.full((3,), float(version)))], version=version, bucket_bytes=64)
    await router.pause("keep")
    await router.begin_update(manifest)
    await router.load_bucket(0, bucket)
    await router.commit()
    await router.resume()


def test_requests_go_to_the_server_with_the_fewest(serve: Serve) -> None:
    threads = [serve(), serve()]

    async def scene(router: RoutedEngine) -> list[int]:
        hold(threads)
        tasks = [asyncio.ensure_future(router.generate(request(str(number)))) for number in range(7)]
        counts = await arrived(threads, 7)
        hold(threads, back=False)
        await asyncio.gather(*tasks)
        return counts

    assert sorted(play(scene, threads)) == [3, 4]


def test_a_group_stays_with_the_server_that_has_its_prefix(serve: Serve) -> None:
    threads = [serve(), serve(), serve()]

    async def scene(router: RoutedEngine) -> list[int]:
        for turn in range(4):
            for group in range(12):
                await router.generate(request(f"{group}-{turn}", group=str(group)))
        return await arrived(threads, 48)

    play(scene, threads)
    homes = [Counter(r.prefix_group for r in engine_of(thread).requests) for thread in threads]
    assert all(set(home.values()) <= {4} for home in homes)
    assert all(homes)


def test_requests_of_a_dead_server_are_sent_to_another(serve: Serve) -> None:
    threads = [serve(), serve()]

    async def scene(router: RoutedEngine) -> list[int]:
        hold(threads)
        tasks = [asyncio.ensure_future(router.generate(request(str(number)))) for number in range(8)]
        assert await arrived(threads, 8) == [4, 4]
        await asyncio.to_thread(threads[0].close)
        await arrived(threads[1:], 8)
        hold(threads[1:], back=False)
        results = await asyncio.gather(*tasks)
        assert [result.request_id for result in results] == [str(number) for number in range(8)]
        assert router._load == [0, 0]
        return [len(result.completions[0].token_ids) for result in results]

    assert play(scene, threads) == [2] * 8


def test_requests_of_a_server_whose_engine_fails_are_sent_to_another(serve: Serve) -> None:
    threads = [serve(), serve()]
    broken = engine_of(threads[0])

    async def scene(router: RoutedEngine) -> list[int]:
        # The router has seen it in order.
        broken.refuses, broken.fails = "the device is gone", True
        result = await router.generate(request("a"))
        assert result.completions[0].finish_reason == "stop"
        return await arrived(threads, 2)

    assert play(scene, threads) == [1, 1]
    broken.fails = False
    with pytest.raises(EngineError, match="the device is gone") as caught:
        play(lambda router: router.generate(request("a")), threads)
    assert not isinstance(caught.value, EngineDiedError)


def test_without_a_server_the_error_names_all(serve: Serve) -> None:
    threads = [serve(), serve()]

    async def scene(router: RoutedEngine) -> None:
        for thread in threads:
            await asyncio.to_thread(thread.close)
        with pytest.raises(EngineDiedError) as caught:
            await router.generate(request("a"))
        assert all(thread.url in str(caught.value) for thread in threads)
        with pytest.raises(EngineDiedError):
            await router.health()

    play(scene, threads)


def test_all_servers_get_every_update(serve: Serve) -> None:
    threads = [serve(), serve()]

    async def scene(router: RoutedEngine) -> None:
        assert not router.is_synced
        await update(router, 3)
        assert (router.version, router.is_synced) == (3, True)
        assert (await router.stats()).num_waiting == 4
        weights = await router.read_weights(["a"])
        assert weights is not None
        assert weights["a"].tolist() == [3.0] * 3

    play(scene, threads)
    assert [engine_of(thread).version for thread in threads] == [3, 3]


def test_an_update_goes_on_where_a_server_dies_in_it(serve: Serve) -> None:
    threads = [serve(), serve()]
    manifest, (bucket,) = pack_weights([("a", torch.ones(3))], version=0, bucket_bytes=64)

    async def scene(router: RoutedEngine) -> None:
        await router.pause("keep")
        await router.begin_update(manifest)
        await asyncio.to_thread(threads[1].close)
        await router.load_bucket(0, bucket)
        await router.commit()
        await router.resume()
        assert router.version == 0
        result = await router.generate(request("a"))
        assert result.completions[0].versions == (0, 0)
        with pytest.raises(WeightSyncError, match="begin_update"):
            await router.commit()

    play(scene, threads)


def test_a_server_that_missed_an_update_is_not_used(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [serve(), serve()]

    async def fail(index: int, bucket: torch.Tensor) -> None:
        raise WeightSyncError("its memory is full")

    async def scene(router: RoutedEngine) -> list[int]:
        await update(router, 0)
        with monkeypatch.context() as patch:
            patch.setattr(threads[0].engine, "load_bucket", fail)
            await update(router, 1)
        # It answers, and its engine says that it is in order.
        engine_of(threads[0]).is_complete = True
        await asyncio.sleep(0.5)
        assert router._servers[0].is_alive
        for number in range(4):
            result = await router.generate(request(str(number)))
            assert result.completions[0].versions == (1, 1)
        return await arrived(threads, 4)

    assert play(scene, threads, LIVELY) == [0, 4]


def test_a_server_that_comes_back_is_used_once_it_has_the_weights(serve: Serve) -> None:
    threads = [serve(), serve()]

    async def scene(router: RoutedEngine) -> None:
        await update(router, 0)
        await asyncio.to_thread(threads[0].close)
        threads[0] = await asyncio.to_thread(lambda: serve(port=threads[0].port))
        while not router._servers[0].is_alive or router._servers[0].version == 0:
            await asyncio.sleep(0.02)
        assert not router.is_synced
        for number in range(4):
            await router.generate(request(str(number)))
        assert await arrived(threads, 4) == [0, 4]
        await update(router, 1)
        hold(threads)
        tasks = [asyncio.ensure_future(router.generate(request(f"b{number}"))) for number in range(4)]
        assert await arrived(threads, 8) == [2, 6]
        hold(threads, back=False)
        results = await asyncio.gather(*tasks)
        assert {result.completions[0].versions for result in results} == {(1, 1)}

    play(scene, threads, LIVELY)


def test_a_request_that_is_aborted_while_its_server_dies_ends_without_tokens(serve: Serve) -> None:
    threads = [serve(), serve()]

    async def scene(router: RoutedEngine) -> None:
        hold(threads)
        task = asyncio.ensure_future(router.generate(request("a", n=2, top_k=3)))
        (number,) = [number for number, count in enumerate(await arrived(threads, 1)) if count]
        router._aborted.add("a")
        await asyncio.to_thread(threads[number].close)
        result = await task
        assert [(c.token_ids, c.full_logprobs, c.finish_reason) for c in result.completions] == [((), (), "abort")] * 2
        assert not router._aborted

    play(scene, threads)


def test_an_abort_reaches_the_server_of_the_request(serve: Serve) -> None:
    threads = [serve(), serve()]

    async def scene(router: RoutedEngine) -> list[str]:
        hold(threads)
        tasks = [asyncio.ensure_future(router.generate(request(str(number)))) for number in range(2)]
        await arrived(threads, 2)
        await router.abort(["1"])
        hold(threads, back=False)
        return [result.completions[0].finish_reason for result in await asyncio.gather(*tasks)]

    assert play(scene, threads) == ["stop", "abort"]
