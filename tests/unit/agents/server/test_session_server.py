"""Sessions of live clients: who is tracked, when a session ends, and what feedback becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import pytest

from rlinf.agents.episode import Episode, play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.server.session_pool import SessionPool
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import WorkflowContext
from rlinf.agents.workflows.sessions import SessionsWorkflow
from rlinf.config.schema.agent import SessionsConfig
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.errors import EngineError
from tests.unit.agents.conversations import QWEN3, ScriptedEngine, make_prompt, make_tokenizer
from tests.unit.agents.server.served_episode import GatedEngine

USER = {"role": "user", "content": "Question?"}
APPLICATION = "application"


class Online:
    """A workflow whose clients are the test.

    Args:
        client: Samples.
        keys: Of the ``agent`` section.
    """

    def __init__(self, client: ScriptedEngine, http: aiohttp.ClientSession, **keys: Any) -> None:
        self.client, self.http = client, http
        self.template = ChatTemplate(client.tokenizer)
        cfg = SessionsConfig(workflow="sessions", api_key=APPLICATION, port=0, **keys)
        self.workflow = SessionsWorkflow(
            cfg, WorkflowContext(template=self.template, tools=ToolBox({}, client.tokenizer))
        )
        self.episodes: list[asyncio.Task[Episode]] = []

    async def play(self) -> asyncio.Task[Episode]:
        """Let an episode wait for a session."""
        engine = EpisodeEngine(
            make_prompt(self.client.tokenizer),
            self.client,
            params=SamplingParams(max_new_tokens=200),
            limits=EpisodeLimits(max_turns=4, max_context_tokens=9999),
            seed=0,
            template=self.template,
        )
        timeout = self.workflow.timeout_seconds
        self.episodes.append(asyncio.ensure_future(play_episode(self.workflow, engine, timeout_seconds=timeout)))
        while self.workflow._starting is None or not self.workflow._starting.done():
            await asyncio.sleep(0)
        while len(self.pool._waiting) < sum(not episode.done() for episode in self.episodes):
            await asyncio.sleep(0)
        self.url = self.workflow._starting.result().base_url
        return self.episodes[-1]

    @property
    def pool(self) -> SessionPool:
        return self.workflow._pool

    async def send(self, path: str, body: Any = None, *, key: str = APPLICATION, method: str = "POST") -> Any:
        """Send a request; return the body, or the status of a failure."""
        headers = {"Authorization": f"Bearer {key}"}
        async with self.http.request(method, f"{self.url}{path}", json=body, headers=headers) as response:
            return await response.json() if response.status == 200 else response.status

    async def chat(self, key: str = APPLICATION, *messages: Any) -> Any:
        """Return a chat completion."""
        return await self.send("/chat/completions", {"model": "m", "messages": [USER, *messages]}, key=key)

    async def credit(self, completion: Any, value: float) -> Any:
        """Give feedback."""
        return await self.send("/feedback", {"response_id": completion["id"], "value": value})

    async def open(self) -> Any:
        return await self.send("/sessions")

    async def end(self, session: Any) -> Any:
        return await self.send(f"/sessions/{session['id']}", method="DELETE")


def online(
    lines: Sequence[Any], check: Callable[[Online], Awaitable[None]], *, engine: Any = ScriptedEngine, **keys: Any
) -> None:
    """Run a check with one episode that waits."""

    async def run() -> None:
        async with aiohttp.ClientSession() as http:
            served = Online(engine(make_tokenizer(QWEN3), lines), http, **keys)
            await served.play()
            try:
                await check(served)
            finally:
                for episode in served.episodes:
                    episode.cancel()
                await asyncio.wait(served.episodes)
                await served.workflow.close()

    asyncio.run(run())


def test_a_request_of_the_application_is_a_session() -> None:
    async def check(served: Online) -> None:
        completion = await served.chat()
        assert completion["choices"][0]["message"]["content"] == "Yes."
        assert not served.episodes[0].done(), "it waits for feedback"
        assert await served.credit(completion, 0.5) == {"session": "session-0", "is_tracked": True}
        episode = await served.episodes[0]
        assert episode.outcome == 0.5
        (trajectory,) = episode.trajectories
        assert served.client.tokenizer.decode(trajectory.token_ids.tolist()) == "Yes.<|im_end|>"
        assert [message["content"] for message in episode.transcript] == ["Question?", "Yes."]
        assert await served.credit(completion, 1.0) == 404

    online(["Yes."], check)


def test_sessions_beyond_what_is_waited_for_are_served_and_forgotten() -> None:
    async def check(served: Online) -> None:
        first, second = await served.chat(), await served.chat()
        assert await served.credit(second, 1.0) == 404, "it has ended with its response"
        assert await served.credit(first, 0.25) == {"session": "session-0", "is_tracked": True}
        episode = await served.episodes[0]
        assert episode.outcome == 0.25
        assert episode.metrics["server/untracked"] == 1.0

    online(["Yes.", "No."], check)


def test_a_conversation_is_one_episode_and_earns_the_sum_of_its_feedback() -> None:
    async def check(served: Online) -> None:
        session = await served.open()
        assert (session["id"], session["is_tracked"]) == ("session-0", True)
        first = await served.chat(session["api_key"])
        answer = first["choices"][0]["message"]
        second = await served.chat(session["api_key"], answer, {"role": "user", "content": "More?"})
        for completion, value in ((first, 9.0), (second, 0.5), (first, 0.25)):
            assert (await served.credit(completion, value))["session"] == "session-0"
        assert not served.episodes[0].done(), "the application has not closed it"
        assert (await served.end(session))["id"] == "session-0"
        episode = await served.episodes[0]
        assert episode.outcome == 0.75, "later feedback on a response replaces the former"
        assert [message["content"] for message in episode.transcript] == ["Question?", "Yes.", "More?", "No."]
        assert len(episode.trajectories) == 1
        assert await served.chat(session["api_key"]) == 401
        assert await served.end(session) == 404

    online(["Yes.", "No."], check)


def test_a_judgement_of_the_session_comes_before_feedback_on_responses() -> None:
    async def check(served: Online) -> None:
        session = await served.open()
        await served.credit(await served.chat(session["api_key"]), 0.5)
        assert await served.send("/episode/reward", {"value": -2}, key=session["api_key"]) == {"value": -2.0}
        await served.end(session)
        assert (await served.episodes[0]).outcome == -2.0

    online(["Yes."], check)


def test_what_is_never_judged_is_not_trained_on() -> None:
    async def check(served: Online) -> None:
        silent = await served.open()
        await served.chat(silent["api_key"])
        while served.pool.find(silent["api_key"]) is not None:
            await asyncio.sleep(0.01)
        assert not served.episodes[0].done()
        judged = await served.chat()
        assert (await served.credit(judged, 1.0))["is_tracked"]
        episode = await served.episodes[0]
        assert (episode.outcome, episode.metrics["server/without_feedback"]) == (1.0, 1.0)

    online(["Yes.", "No."], check, idle_seconds=0.05, feedback_seconds=0.05)


def test_feedback_may_come_late() -> None:
    async def check(served: Online) -> None:
        session = await served.open()
        completion = await served.chat(session["api_key"])
        await served.end(session)
        await asyncio.sleep(0.1)
        assert (await served.credit(completion, 0.5))["is_tracked"]
        assert (await served.episodes[0]).outcome == 0.5

    online(["Yes."], check, idle_seconds=0.02)


def test_a_session_stays_open_while_a_request_is_being_served() -> None:
    async def check(served: Online) -> None:
        assert isinstance(served.client, GatedEngine)
        session = await served.open()
        request = asyncio.ensure_future(served.chat(session["api_key"]))
        await asyncio.sleep(0.2)
        live = served.pool.find(session["api_key"])
        assert live is not None
        assert not live.is_closed
        served.client.gate.set()
        completion = await request
        assert (await served.credit(completion, 1.0))["session"] == session["id"]
        assert (await served.episodes[0]).outcome == 1.0, "it closes when nothing more comes"

    online(["Yes."], check, engine=GatedEngine, idle_seconds=0.05)


def test_the_episode_that_has_waited_longest_gets_the_first_session_that_ends() -> None:
    async def check(served: Online) -> None:
        await served.play()
        slow, quick = await served.open(), await served.open()
        assert slow["is_tracked"]
        assert quick["is_tracked"]
        completion = await served.chat(quick["api_key"])
        await served.end(quick)
        await served.credit(completion, 0.5)
        assert (await served.episodes[0]).outcome == 0.5
        assert not served.episodes[1].done()
        await served.credit(await served.chat(slow["api_key"]), 0.25)
        await served.end(slow)
        assert (await served.episodes[1]).outcome == 0.25

    online(["Yes.", "No."], check)


def test_a_session_whose_episode_is_given_up_is_the_next_ones() -> None:
    async def check(served: Online) -> None:
        completion = await served.chat()
        served.episodes[0].cancel()
        await asyncio.wait(served.episodes)
        await served.credit(completion, 0.5)
        assert (await (await served.play())).outcome == 0.5

    online(["Yes."], check)


def test_tokens_of_weights_that_are_too_old_are_not_trained_on() -> None:
    async def check(served: Online) -> None:
        await served.play()
        old, new = await served.open(), await served.open()
        first = await served.chat(old["api_key"])  # each request of the scripted engine has newer weights
        second = await served.chat(new["api_key"])
        for session, completion in ((old, first), (new, second)):
            await served.credit(completion, 1.0)
            await served.end(session)
        done, _ = await asyncio.wait(served.episodes, return_when=asyncio.FIRST_COMPLETED)
        episode = done.pop().result()
        assert served.client.tokenizer.decode(episode.trajectories[0].token_ids.tolist()).startswith("No.")
        assert not served.episodes[1].done()

    online(["Yes.", "No."], check, max_token_age=0)


def test_sessions_draw_samples_of_their_own() -> None:
    async def check(served: Online) -> None:
        await served.chat()
        await served.chat()
        first, second = served.client.requests
        assert first.prompt_ids == second.prompt_ids
        assert first.params.seed != second.params.seed
        assert first.request_id != second.request_id

    online(["Yes.", "No."], check)


def test_an_engine_that_fails_gives_no_reward() -> None:
    class Failing(ScriptedEngine):
        async def generate(self, request: GenerationRequest) -> Completion:
            if not self.requests:
                self.requests.append(request)
                raise EngineError("out of memory")
            return await super().generate(request)

    async def check(served: Online) -> None:
        assert await served.chat() >= 500
        completion = await served.chat()
        assert (await served.credit(completion, 1.0))["is_tracked"]
        episode = await served.episodes[0]
        assert (episode.outcome, episode.metrics["server/failed"]) == (1.0, 1.0)

    online(["", "Yes."], check, engine=Failing)


def test_a_conversation_in_which_the_engine_failed_is_not_trained_on() -> None:
    class Failing(ScriptedEngine):
        async def generate(self, request: GenerationRequest) -> Completion:
            if len(self.requests) == 1:
                self.requests.append(request)
                raise EngineError("out of memory")
            return await super().generate(request)

    async def check(served: Online) -> None:
        session = await served.open()
        key = session["api_key"]
        first = await served.chat(key)
        answer = first["choices"][0]["message"]
        assert await served.chat(key, answer, {"role": "user", "content": "More?"}) >= 500
        assert (await served.credit(first, 1.0))["is_tracked"] is False
        await served.end(session)
        await served.credit(await served.chat(), 0.5)
        episode = await served.episodes[0]
        assert (episode.outcome, episode.metrics["server/failed"]) == (0.5, 1.0)

    online(["Yes.", "", "No."], check, engine=Failing)


def test_a_client_that_hangs_up_holds_nothing() -> None:
    async def check(served: Online) -> None:
        assert isinstance(served.client, GatedEngine)
        request = asyncio.ensure_future(served.chat())
        while not served.client.requests:
            await asyncio.sleep(0.01)
        request.cancel()
        while served.pool.num_tracked:
            await asyncio.sleep(0.01)
        served.client.gate.set()
        await served.credit(await served.chat(), 0.5)
        assert (await served.episodes[0]).outcome == 0.5

    online(["Yes.", "No."], check, engine=GatedEngine)


def test_who_has_not_the_key_is_refused() -> None:
    async def check(served: Online) -> None:
        session = await served.open()
        key = session["api_key"]
        for path, body, method in (
            ("/sessions", None, "POST"),
            ("/feedback", {"response_id": "x", "value": 1}, "POST"),
            ("/sessions/session-0", None, "DELETE"),
        ):
            for stranger in ("", "stranger", key):
                assert await served.send(path, body, key=stranger, method=method) == 401
        assert await served.chat("stranger") == 401
        assert await served.send("/episode/reward", {"value": 1}, key="stranger") == 401
        assert await served.send("/models", key="stranger", method="GET") == 401
        for known in (APPLICATION, key):
            assert (await served.send("/models", key=known, method="GET"))["object"] == "list"

    online([], check)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"response_id": "chatcmpl-none", "value": 1.0}, 404),
        ({"value": 1.0}, 400),
        ({"response_id": "x", "value": "good"}, 400),
        ({"response_id": "x", "value": True}, 400),
        ({"response_id": "x"}, 400),
    ],
)
def test_feedback_that_cannot_be_used_is_refused(body: dict[str, Any], status: int) -> None:
    async def check(served: Online) -> None:
        assert await served.send("/feedback", body) == status

    online([], check)


def test_at_the_end_requests_that_run_are_answered_and_others_refused() -> None:
    async def check(served: Online) -> None:
        assert isinstance(served.client, GatedEngine)
        session = await served.open()
        request = asyncio.ensure_future(served.chat(session["api_key"]))
        while not served.client.requests:
            await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(served.workflow.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [await served.chat(), await served.chat(session["api_key"]), await served.open()] == [503] * 3
        assert not closing.done()
        served.client.gate.set()
        assert (await request)["choices"][0]["message"]["content"] == "Yes."
        await closing

    online(["Yes."], check, engine=GatedEngine)
