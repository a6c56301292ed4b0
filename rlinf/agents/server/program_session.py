"""The requests of one episode's program: each is a turn, once, however often it is sent."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import time
from dataclasses import dataclass

from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimitError
from rlinf.agents.server.chat_history import History, reply_message
from rlinf.agents.server.dialects.dialect import RequestError, ServedRequest, ServedTurn
from rlinf.agents.template import ChatTemplate, Message
from rlinf.errors import AgentError


@dataclass(eq=False)
class Exchange:
    """A request and its completion.

    Attributes:
        task: Samples.
    """

    task: asyncio.Task[ServedTurn]


class Session:
    """What a program sees of an episode; its API key is the session's name.

    Args:
        engine: Of the episode.
        template: Renders messages.

    Attributes:
        key: The API key, 128 random bits.
        messages: The conversation of the latest turn.
        outcome: The program's own judgement; None until it sends one.
        limit: The limit that the episode has met; None before.
        failure: Ends with the exception of an engine that failed; the episode cannot go on then.
    """

    def __init__(self, engine: EpisodeEngine, template: ChatTemplate) -> None:
        self.key = f"sk-{secrets.token_hex(16)}"
        self.messages: list[Message] = []
        self.outcome: float | None = None
        self.limit: EpisodeLimitError | None = None
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._engine, self._history = engine, History(template)
        self._conversations: dict[str, tuple[Message, ...]] = {}
        # The latest of each body.
        self._exchanges: dict[bytes, Exchange] = {}
        self._undelivered: set[Exchange] = set()
        engine.chats.append(self)
        for name in ("requests", "joined_retries", "undelivered", "ignored_parameters"):
            engine.counts[f"server/{name}"] = 0.0

    def exchange(self, request: ServedRequest, *, body: bytes, model: str, is_retry: bool) -> Exchange:
        """Begin to sample the completion of a request, or join it to an earlier one that it repeats.

        Args:
            request: What is requested.
            body: What the client has sent.
            model: Name that it gives the model.
            is_retry: Whether it says that it sends the request again.
        """
        counts = self._engine.counts
        counts["server/requests"] += 1
        counts["server/ignored_parameters"] += len(request.ignored)
        known = self._exchanges.get(body) if is_retry else None
        if known is not None and not (known.task.done() and (known.task.cancelled() or known.task.exception())):
            counts["server/joined_retries"] += 1
            return known
        exchange = Exchange(asyncio.ensure_future(self._sample(request, model)))
        exchange.task.add_done_callback(self._ended)
        self._exchanges[body] = exchange
        self._undelivered.add(exchange)
        return exchange

    def deliver(self, exchange: Exchange) -> None:
        """Note that a client has been sent the response, whose request has ended without failure."""
        self._undelivered.discard(exchange)

    async def close(self) -> None:
        """End what is being sampled; a turn that no client was sent is not recorded."""
        tasks = [exchange.task for exchange in self._exchanges.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for exchange in self._undelivered:
            if not exchange.task.cancelled() and exchange.task.exception() is None:
                self._engine.counts["server/undelivered"] += 1
                self._engine.recorder.discard(exchange.task.result().number)
        if not self.failure.cancel():
            self.failure.exception()  # the workflow raises it, unless it has ended already

    async def _sample(self, request: ServedRequest, model: str) -> ServedTurn:
        request = self._continued(request)
        prompt = self._history.prompt(request)
        number, completion = await self._engine.take_turn(
            prompt.prompt_ids, max_new_tokens=request.max_new_tokens, stop=request.stop, may_drift=True
        )
        reply, stop = self._history.add(request, prompt, completion, number)
        turn = ServedTurn(
            number=number,
            id=secrets.token_hex(12),
            model=model,
            created=int(time.time()),
            reply=reply,
            num_prompt_tokens=len(prompt.prompt_ids),
            num_new_tokens=len(completion.token_ids),
            stop=stop,
        )
        said = request.messages if request.messages is not None else ({"role": "user", "content": request.prompt},)
        self._conversations[turn.id] = (*said, reply_message(reply))
        self.messages = [_public(message) for message in self._conversations[turn.id]]
        return turn

    def _continued(self, request: ServedRequest) -> ServedRequest:
        """Put the conversation that a request follows before its messages."""
        if not request.previous:
            return request
        before = self._conversations.get(request.previous)
        if before is None:
            raise RequestError(f"previous_response_id: this episode has no response {request.previous!r}.")
        return dataclasses.replace(request, messages=(*before, *(request.messages or ())))

    def _ended(self, task: asyncio.Task[ServedTurn]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, EpisodeLimitError):
            self.limit = error
        elif error is not None and not isinstance(error, AgentError) and not self.failure.done():
            self.failure.set_exception(error)


def _public(message: Message) -> Message:
    """Return a message as tables of samples show it."""
    calls = [{"name": name, "arguments": arguments} for name, arguments in message.get("tool_calls", ())]
    return {**message, "tool_calls": calls} if calls else message
