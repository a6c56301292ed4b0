"""A request is a turn, once, however often it is sent; and one that nobody was sent is none."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.unit.agents.server.served_episode import USER, GatedEngine, Served, serve

CHAT = {"model": "m", "messages": [USER]}


def num_turns(served: Served) -> int:
    return sum(len(trajectory.turns) for trajectory in served.engine.recorder.trajectories())


def test_a_retry_joins_the_request_in_flight() -> None:
    async def check() -> None:
        async with serve(["Yes."], engine=GatedEngine) as served:
            assert isinstance(served.client, GatedEngine)
            url = f"{served.server.base_url}/chat/completions"
            headers = {"Authorization": f"Bearer {served.session.key}"}
            with pytest.raises(asyncio.TimeoutError):
                async with asyncio.timeout(0.2), served.http.post(url, json=CHAT, headers=headers):
                    pass
            retry = asyncio.ensure_future(served.post("/chat/completions", CHAT, retry=1))
            await asyncio.sleep(0.1)
            served.client.gate.set()
            status, found = await retry
            assert (status, found["choices"][0]["message"]["content"]) == (200, "Yes.")
            assert len(served.client.requests) == 1
        assert num_turns(served) == 1
        assert served.engine.counts["server/joined_retries"] == 1
        assert served.engine.counts["server/undelivered"] == 0

    asyncio.run(check())


def test_a_retry_of_a_response_that_was_lost_on_its_way_joins_it() -> None:
    async def check() -> None:
        async with serve(["Yes.", "No."]) as served:
            _, first = await served.post("/chat/completions", CHAT)
            _, again = await served.post("/chat/completions", CHAT, retry=1)
            assert again["id"] == first["id"]
            _, other = await served.post("/chat/completions", CHAT)
            assert other["id"] != first["id"], "the same request anew is another turn"
            _, again = await served.post("/chat/completions", CHAT, retry=2)
            assert again["id"] == other["id"]
        assert num_turns(served) == 2

    asyncio.run(check())


def test_retries_of_other_requests_and_routes_are_turns_of_their_own() -> None:
    async def check() -> None:
        async with serve(["Yes.", "No.", "Maybe."]) as served:
            await served.post("/chat/completions", CHAT)
            await served.post("/chat/completions", {**CHAT, "max_tokens": 9}, retry=1)
            status, _ = await served.post("/completions", {"model": "m", "prompt": "x"}, retry=1)
            assert status == 200
        assert num_turns(served) == 3

    asyncio.run(check())


def test_a_turn_that_no_client_was_sent_is_not_trained_on() -> None:
    async def check() -> None:
        async with serve(["Yes.", "No."], engine=GatedEngine) as served:
            assert isinstance(served.client, GatedEngine)
            headers = {"Authorization": f"Bearer {served.session.key}"}
            with pytest.raises(asyncio.TimeoutError):
                async with (
                    asyncio.timeout(0.2),
                    aiohttp.ClientSession() as http,
                    http.post(f"{served.server.base_url}/chat/completions", json=CHAT, headers=headers),
                ):
                    pass
            served.client.gate.set()
            await served.chat([USER, USER])
        assert served.engine.counts["server/undelivered"] == 1
        assert num_turns(served) == 1
        (trajectory,) = served.engine.recorder.trajectories()
        assert trajectory.turns[0].number == 1

    asyncio.run(check())


def test_what_is_sampled_when_the_episode_ends_ends_with_it() -> None:
    async def check() -> None:
        async with serve(["Yes."], engine=GatedEngine) as served:
            request = asyncio.ensure_future(served.post("/chat/completions", CHAT))
            while not served.client.requests:
                await asyncio.sleep(0.01)
        assert num_turns(served) == 0
        with pytest.raises((aiohttp.ClientError, RuntimeError)):
            await request

    asyncio.run(check())


def test_the_transcript_is_the_latest_conversation() -> None:
    async def check() -> None:
        async with serve(["Yes.", "No."]) as served:
            reply = await served.chat([USER])
            await served.chat([USER, reply, {"role": "user", "content": "And?"}])
            assert [message["content"] for message in served.engine.chats[0].messages] == [
                "Question?",
                "Yes.",
                "And?",
                "No.",
            ]

    asyncio.run(check())


def test_parameters_without_effect_are_counted() -> None:
    async def check() -> None:
        async with serve(["Yes."]) as served:
            await served.chat([USER], temperature=0.0, top_p=1.0, seed=3, logprobs=False, tool_choice="required")
            assert served.engine.counts["server/ignored_parameters"] == 4
            (request,) = served.client.requests
            assert (request.params.temperature, request.params.seed) == (1.0, 0)

    asyncio.run(check())
