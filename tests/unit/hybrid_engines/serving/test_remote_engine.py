"""What a client of an engine server sees of its engine, of its death and of other clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import torch
from served_engines import PATIENT, ServerThread, TokenEngine

from rlinf.data.messages.generation import GenerationRequest, GenerationResult, SamplingParams
from rlinf.errors import EngineDiedError, EngineError, WeightSyncError
from rlinf.hybrid_engines.serving.remote_engine import Patience, RemoteEngine
from tests.unit.hybrid_engines.packing import pack_weights

T = TypeVar("T")
Serve = Callable[..., ServerThread]
HASTY = Patience(timeout_seconds=0.5, health_interval_seconds=0.1, start_timeout_seconds=1.0)


def request(name: str = "r", **params: object) -> GenerationRequest:
    return GenerationRequest(request_id=name, prompt_ids=(5, 6, 7), params=SamplingParams(**params))  # type: ignore[arg-type]


def play(scene: Callable[[RemoteEngine], Awaitable[T]], url: str, patience: Patience = PATIENT, token: str = "") -> T:
    """Connect, play and disconnect."""

    async def run() -> T:
        engine = RemoteEngine(url, patience, token=token)
        try:
            await engine.start()
            return await scene(engine)
        finally:
            await engine.close()

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_requests_and_results_travel_as_they_are(serve: Serve) -> None:
    thread = serve()
    sent = GenerationRequest(
        request_id="train-3",
        prompt_ids=(1, 2, 3, 4),
        params=SamplingParams(top_k=5, n=2, seed=1 << 60, stop=("\n", "é"), stop_token_ids=(3,), first_index=1),
        prefix_group="7",
    )
    result = play(lambda engine: engine.generate(sent), thread.url)
    (received,) = thread.engine.requests  # type: ignore[attr-defined]
    assert received.request_id.endswith("/train-3")
    assert (received.prompt_ids, received.params, received.prefix_group) == (sent.prompt_ids, sent.params, "7")
    assert result.request_id == "train-3"
    assert [c.token_ids for c in result.completions] == [(4, 2)] * 2
    assert result.completions[0].logprobs == (-0.1, -1 / 3)
    assert result.completions[0].full_logprobs == (-0.2, -2 / 3)
    assert result.completions[0].versions == (-1, -1)


def test_a_refusal_is_the_engine_s(serve: Serve) -> None:
    thread = serve()
    thread.engine.refuses = "sampling field 'top_k' is 0"  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match="'top_k' is 0") as caught:
        play(lambda engine: engine.generate(request()), thread.url)
    assert not isinstance(caught.value, EngineDiedError)


def test_weights_travel_with_their_version_and_can_be_read(serve: Serve) -> None:
    thread = serve()
    weights = {"a": torch.arange(7.0), "b": torch.ones(3, 2, dtype=torch.bfloat16)}
    manifest, buckets = pack_weights(weights.items(), version=4, bucket_bytes=16)

    async def scene(engine: RemoteEngine) -> dict[str, torch.Tensor] | None:
        await engine.pause("keep")
        await engine.begin_update(manifest)
        assert not engine.is_synced
        for index, bucket in enumerate(buckets):
            await engine.load_bucket(index, bucket)
        await engine.commit()
        await engine.resume()
        assert (engine.version, engine.is_synced) == (4, True)
        assert (await engine.stats()).version == 4
        return await engine.read_weights(["b", "a"])

    read = play(scene, thread.url)
    assert read is not None
    assert all(torch.equal(read[name], weights[name]) for name in weights)
    assert [call for call in thread.engine.calls if call != "start"] == ["pause keep", "resume"]  # type: ignore[attr-defined]


def test_what_was_true_before_an_update_does_not_come_after_it(serve: Serve) -> None:
    manifest, (bucket,) = pack_weights([("a", torch.arange(7.0))], version=4, bucket_bytes=64)

    async def scene(engine: RemoteEngine) -> None:
        send, late, held = engine._http.send, asyncio.Event(), asyncio.Event()

        async def send_late(*args: Any) -> tuple[int, bytes]:
            answer = await send(*args)
            if args[1] == "/health":
                held.set()
                await late.wait()
            return answer

        engine._http.send = send_late  # type: ignore[method-assign]
        looking = asyncio.ensure_future(engine._look())
        await held.wait()
        await engine.begin_update(manifest)
        await engine.load_bucket(0, bucket)
        await engine.commit()
        late.set()
        assert await looking
        assert (engine.version, engine.is_synced) == (4, True)

    play(scene, serve().url, Patience(timeout_seconds=60.0, health_interval_seconds=60.0, start_timeout_seconds=60.0))


def test_a_damaged_bucket_is_refused(serve: Serve) -> None:
    manifest, (bucket,) = pack_weights([("a", torch.arange(7.0))], version=0, bucket_bytes=64)
    bucket[3] += 1

    async def scene(engine: RemoteEngine) -> None:
        await engine.begin_update(manifest)
        with pytest.raises(WeightSyncError, match="checksum"):
            await engine.load_bucket(0, bucket)
        with pytest.raises(WeightSyncError, match="expects no bucket 0"):
            await engine.load_bucket(0, bucket[:-8])
        with pytest.raises(WeightSyncError, match="missing: 0"):
            await engine.commit()

    play(scene, serve().url)


def test_a_server_that_ends_ends_its_requests(serve: Serve) -> None:
    thread = serve()
    thread.set(thread.engine.free, to=False)  # type: ignore[attr-defined]

    async def scene(engine: RemoteEngine) -> None:
        task = asyncio.ensure_future(engine.generate(request()))
        while not thread.engine.requests:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        await asyncio.to_thread(thread.close)
        with pytest.raises(EngineDiedError, match=thread.url):
            await task
        assert not engine.is_alive
        with pytest.raises(EngineDiedError, match="is gone"):
            await engine.generate(request())

    play(scene, thread.url)


def test_a_server_that_hangs_is_dead_after_its_time(serve: Serve) -> None:
    thread = serve()
    thread.set(thread.engine.free, to=False)  # type: ignore[attr-defined]

    async def scene(engine: RemoteEngine) -> None:
        task = asyncio.ensure_future(engine.generate(request()))
        thread.set(thread.engine.healthy, to=False)  # type: ignore[attr-defined]
        start = time.monotonic()
        with pytest.raises(EngineDiedError, match=r"no answer within 0\.5 s"):
            await task
        assert time.monotonic() - start < 10
        # It has only been slow, and is used again.
        thread.set(thread.engine.healthy)  # type: ignore[attr-defined]
        thread.set(thread.engine.free)  # type: ignore[attr-defined]
        while not engine.is_alive:
            await asyncio.sleep(0.05)
        assert len((await engine.generate(request())).completions) == 1

    play(scene, thread.url, HASTY)


def test_a_server_that_is_not_there_is_waited_for_a_while(serve: Serve) -> None:
    thread = serve()
    url = thread.url
    thread.close()
    with pytest.raises(EngineError, match=f"{url} did not become ready"):
        play(lambda engine: engine.stats(), url, HASTY)


def test_an_engine_that_has_failed_is_there_and_cannot_generate(serve: Serve) -> None:
    thread = serve()

    async def scene(engine: RemoteEngine) -> None:
        assert engine.is_usable
        thread.engine.fails = True  # type: ignore[attr-defined]
        with pytest.raises(EngineDiedError, match="the device is gone"):
            await engine.health()
        assert engine.is_alive
        assert not engine.is_usable

    play(scene, thread.url)


def test_a_cancelled_caller_aborts_the_request_on_the_server(serve: Serve) -> None:
    thread = serve()
    thread.set(thread.engine.free, to=False)  # type: ignore[attr-defined]

    async def scene(engine: RemoteEngine) -> None:
        task = asyncio.ensure_future(engine.generate(request("c")))
        while not thread.engine.requests:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not thread.engine.aborted:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)

    play(scene, thread.url)
    assert thread.engine.aborted[0].endswith("/c")  # type: ignore[attr-defined]


def test_a_client_aborts_its_own_requests_only(serve: Serve) -> None:
    thread = serve()
    thread.set(thread.engine.free, to=False)  # type: ignore[attr-defined]

    async def scene(engine: RemoteEngine) -> GenerationResult:
        other = RemoteEngine(thread.url, PATIENT)
        await other.start()
        tasks = [asyncio.ensure_future(each.generate(request("same"))) for each in (engine, other)]
        while len(thread.engine.requests) < 2:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        with pytest.raises(EngineError, match="already running"):
            await engine.generate(request("same"))
        await engine.abort()
        results = await asyncio.gather(*tasks)
        await other.close()
        assert [result.completions[0].finish_reason for result in results] == ["abort", "stop"]
        return results[0]

    assert play(scene, thread.url).request_id == "same"


def test_one_client_at_a_time_updates_the_weights(serve: Serve) -> None:
    thread = serve()
    manifest, (bucket,) = pack_weights([("a", torch.arange(3.0))], version=6, bucket_bytes=64)
    older, (older_bucket,) = pack_weights([("a", torch.arange(3.0) + 1)], version=0, bucket_bytes=64)

    async def update(engine: RemoteEngine, announced: object, content: torch.Tensor) -> None:
        await engine.begin_update(announced)  # type: ignore[arg-type]
        await engine.load_bucket(0, content)
        await engine.commit()

    async def scene(engine: RemoteEngine) -> None:
        await update(engine, manifest, bucket)
        other = RemoteEngine(thread.url, HASTY)
        await other.start()
        with pytest.raises(WeightSyncError, match="Another client updates the weights"):
            await update(other, older, older_bucket)
        assert (await other.generate(request())).completions[0].versions == (6, 6)
        # The next run numbers its versions anew.
        await engine.close()
        await update(other, older, older_bucket)
        assert other.version == 0
        third = RemoteEngine(thread.url, HASTY)
        await third.start()
        for refused in (third.resume(), third.commit(), third.load_bucket(0, bucket)):
            with pytest.raises(WeightSyncError, match="does not have the lease"):
                await refused
        await other.close()
        await third.close()

    play(scene, thread.url)


def test_a_server_asks_for_its_token(serve: Serve) -> None:
    thread = serve(token="secret")
    assert play(lambda engine: engine.stats(), thread.url, token="secret").num_running == 1
    for wrong in ("", "secrets"):
        with pytest.raises(EngineError, match="RLINF_SERVER_TOKEN"):
            play(lambda engine: engine.stats(), thread.url, token=wrong)


def test_an_engine_that_is_not_started_says_so(serve: Serve) -> None:
    engine = RemoteEngine(serve(TokenEngine()).url, PATIENT)
    with pytest.raises(EngineError, match=r"call start\(\) first"):
        asyncio.run(engine.stats())
