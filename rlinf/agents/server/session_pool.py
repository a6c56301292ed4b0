"""Sessions of live clients: which are trained on, when they end, and which episode each becomes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.server.program_session import Exchange, Session
from rlinf.agents.template import ChatTemplate
from rlinf.config.schema.agent import SessionsConfig
from rlinf.utils.logging import get_logger


class LiveSession(Session):
    """A conversation with a client of an application.

    Args:
        engine: Samples and records.
        template: Renders messages.
        number: Of the session within the process, from 0.
        is_tracked: Whether it is to be trained on.
        is_single: Whether it ends with its first response.

    Attributes:
        id: Its name.
        engine: See above.
        values: Feedback, by the id of the response.
        is_closed: Whether it takes no further requests.
        num_running: Requests that are being served.
        timer: Closes or drops it; None while requests are being served.
    """

    def __init__(
        self, engine: EpisodeEngine, template: ChatTemplate, *, number: int, is_tracked: bool, is_single: bool
    ) -> None:
        super().__init__(engine, template)
        self.id = f"session-{number}"
        self.engine, self.is_tracked, self.is_single = engine, is_tracked, is_single
        self.values: dict[str, float] = {}
        self.is_closed = False
        self.num_running = 0
        self.timer: asyncio.TimerHandle | None = None
        self.response_ids: list[str] = []

    def deliver(self, exchange: Exchange) -> None:
        """See ``Session``; feedback may name the response from now on."""
        super().deliver(exchange)
        self.response_ids.append(exchange.task.result().id)
        self.is_closed |= self.is_single

    @property
    def reward(self) -> float | None:
        """Of the session as a whole, else the sum of all feedback; None before there is any."""
        return self.outcome if self.outcome is not None else sum(self.values.values()) if self.values else None


class SessionPool:
    """Hands sessions that have ended, and have feedback, to the episodes that wait for them.

    There are as many tracked sessions as episodes wait: the run submits no more of these than it may train on. Sessions
    beyond are served in the same way, and forgotten. The first session that ends becomes the episode that has waited
    longest, so that a slow client does not hold the others up.

    Args:
        cfg: The ``agent`` section.
        template: Renders messages.
        source: Engine of an episode: those of sessions sample as it does.
    """

    def __init__(self, cfg: SessionsConfig, template: ChatTemplate, source: EpisodeEngine) -> None:
        self._cfg, self._template, self._source = cfg, template, source
        self._waiting: deque[tuple[EpisodeEngine, asyncio.Future[LiveSession]]] = deque()
        self._ready: deque[LiveSession] = deque()
        self._sessions: dict[str, LiveSession] = {}
        self._of_response: dict[str, LiveSession] = {}
        self._num_opened = 0
        self._newest = -1
        self._ending: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._counts = dict.fromkeys(("untracked", "without_feedback", "too_old", "failed"), 0.0)

    @property
    def num_tracked(self) -> int:
        """Sessions that are to be trained on, and are not yet an episode."""
        return sum(session.is_tracked for session in self._sessions.values()) + len(self._ready)

    async def play(self, engine: EpisodeEngine) -> float:
        """Wait for a session that has ended, and make it the episode of an engine.

        Returns:
            What the session is rewarded with.
        """
        self._source = engine
        ended: asyncio.Future[LiveSession] = asyncio.get_running_loop().create_future()
        place = (engine, ended)
        self._waiting.append(place)
        self._match()
        try:
            session = await ended
        except asyncio.CancelledError:
            if ended.done() and not ended.cancelled():
                self._ready.appendleft(ended.result())
                self._match()
            raise
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
        engine.take_over(session.engine)
        for name, count in self._counts.items():
            engine.counts[f"server/{name}"] += count
            self._counts[name] = 0.0
        assert session.reward is not None
        return session.reward

    def open(self, *, is_single: bool = False) -> LiveSession:
        """Open a session; it is tracked if an episode waits for it.

        Args:
            is_single: Whether it ends with its first response.
        """
        # Episodes that wait have different engines at home.
        source = self._waiting[self._num_opened % len(self._waiting)][0] if self._waiting else self._source
        is_tracked = self.num_tracked < len(self._waiting)
        number, self._num_opened = self._num_opened, self._num_opened + 1
        session = LiveSession(
            source.renewed(f"session-{number}"),
            self._template,
            number=number,
            is_tracked=is_tracked,
            is_single=is_single,
        )
        self._counts["untracked"] += not is_tracked
        self._sessions[session.key] = session
        session.failure.add_done_callback(partial(self._fail, session))
        self._wait(session)
        return session

    def find(self, key: str) -> LiveSession | None:
        """Return the session of an API key; None if there is none, or none any more."""
        return self._sessions.get(key)

    def find_id(self, name: str) -> LiveSession | None:
        """Return the session of a name; None if there is none, or none any more."""
        return next((session for session in self._sessions.values() if session.id == name), None)

    @contextmanager
    def serving(self, session: LiveSession) -> Iterator[None]:
        """Keep a session open while a request of it is being served."""
        session.num_running += 1
        self._stop(session)
        known = len(session.response_ids)
        try:
            yield
        finally:
            session.num_running -= 1
            for response_id in session.response_ids[known:]:
                self._of_response[response_id] = session
            versions = session.engine.recorder.versions()
            self._newest = max(self._newest, -1 if versions is None else versions[1])
            if session.is_single and not session.response_ids:
                session.is_closed = True  # the request has failed
            self._proceed(session)
            if not self._num_running:
                self._idle.set()

    def close(self, session: LiveSession) -> None:
        """Let a session take no further requests; it becomes an episode as soon as it has feedback."""
        session.is_closed = True
        self._proceed(session)

    def credit(self, response_id: str, value: float) -> LiveSession | None:
        """Take feedback on a response; a later one on the same response replaces it.

        Args:
            response_id: As the client was sent it.
            value: The reward.

        Returns:
            The session; None if there is none with such a response, or none any more.
        """
        name = response_id.rpartition("-")[2].rpartition("_")[2]
        session = self._of_response.get(name)
        if session is not None:
            session.values[name] = value
            self._proceed(session)
        return session

    def judge(self, session: LiveSession, value: float) -> None:
        """Take feedback on a whole session."""
        session.outcome = value
        self._proceed(session)

    async def wait_idle(self, seconds: float) -> None:
        """Wait until no request is being served, for a time at most."""
        while self._num_running:
            self._idle.clear()
            await asyncio.wait_for(self._idle.wait(), seconds)

    @property
    def _num_running(self) -> int:
        return sum(session.num_running for session in self._sessions.values())

    def _proceed(self, session: LiveSession) -> None:
        """Go on after something has happened to a session."""
        if session.key not in self._sessions:
            return
        is_over = session.is_closed and not session.num_running
        if is_over and (session.reward is not None or not session.is_tracked or not session.response_ids):
            self._end(session)
        else:
            self._wait(session)

    def _wait(self, session: LiveSession) -> None:
        """Give a session time for what comes next."""
        self._stop(session)
        if session.num_running:
            return
        loop = asyncio.get_running_loop()
        if session.is_closed:
            session.timer = loop.call_later(self._cfg.feedback_seconds, self._end, session)
        else:
            session.timer = loop.call_later(self._cfg.idle_seconds, self.close, session)

    def _stop(self, session: LiveSession) -> None:
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None

    def _fail(self, session: LiveSession, failure: asyncio.Future[None]) -> None:
        """Train on nothing of a session whose engine has failed; its client may go on."""
        if session.is_tracked and not failure.cancelled():
            session.is_tracked = False
            self._counts["failed"] += 1
            get_logger(__name__).warning("%s is not trained on: %r", session.id, failure.exception())

    def _end(self, session: LiveSession) -> None:
        """Forget a session, and train on it if it has feedback."""
        self._stop(session)
        del self._sessions[session.key]
        for response_id in session.response_ids:
            self._of_response.pop(response_id, None)
        task = asyncio.ensure_future(self._hand_over(session))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _hand_over(self, session: LiveSession) -> None:
        await session.close()
        if not session.is_tracked or not session.response_ids:
            return
        if session.reward is None:
            self._counts["without_feedback"] += 1
            return
        self._ready.append(session)
        self._match()

    def _match(self) -> None:
        """Give sessions that have ended to the episodes that have waited longest."""
        while self._ready and self._waiting:
            if self._is_too_old(self._ready[0]):
                self._ready.popleft()
                self._counts["too_old"] += 1
                continue
            _, ended = self._waiting.popleft()
            if not ended.done():
                ended.set_result(self._ready.popleft())

    def _is_too_old(self, session: LiveSession) -> bool:
        versions = session.engine.recorder.versions()
        return versions is None or self._newest - versions[0] > self._cfg.max_token_age
