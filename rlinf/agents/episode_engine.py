"""What a workflow samples with: every request is recorded, within the limits of an episode."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rlinf.agents.chat import Chat
from rlinf.agents.recorder import TokenTree
from rlinf.agents.template import ChatTemplate, Message
from rlinf.agents.tools.base import ToolSchema
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError
from rlinf.utils.seeding import derive_seed


class EpisodeLimitError(AgentError):
    """An episode has used up what it may use; it ends there, and is rewarded as it stands."""


class TurnLimitError(EpisodeLimitError):
    """It has no turn left (``agent.max_turns``)."""


class ContextFullError(EpisodeLimitError):
    """Its context leaves no room for a token (``agent.max_context_tokens``)."""


class Conversation(Protocol):
    """What was said in an episode: a chat, or what a program has sent."""

    messages: list[Message]


class GenerationClient(Protocol):
    """Samples tokens: a generation engine, or what reaches one."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Return the completion of a prompt; cancelling the call aborts the request.

        Raises:
            EngineError: The engine has failed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLimits:
    """What an episode may use.

    Attributes:
        max_turns: Requests.
        max_context_tokens: Tokens of a prompt and its completion together.
    """

    max_turns: int
    max_context_tokens: int


class EpisodeEngine:
    """Samples completions for one episode and records them.

    Args:
        prompt: The row that is played.
        client: Samples.
        params: How; a request may only shorten it.
        limits: What the episode may use.
        seed: Of the group: the first turn is sampled with it, every later one with one that follows from it.
        index: Number of the episode within the group; those of a group sample different tokens.
        name: Begins the ids of its requests; unique among the episodes that are played at a time.
        template: Of its chats; None for a workflow that has none.

    Attributes:
        prompt: The row that is played.
        recorder: What has been sampled.
        counts: What workflows and tools count, by the name of the metric.
        chats: What was said; the first is the episode's transcript.
    """

    def __init__(
        self,
        prompt: Prompt,
        client: GenerationClient,
        *,
        params: SamplingParams,
        limits: EpisodeLimits,
        seed: int,
        index: int = 0,
        name: str = "episode",
        template: ChatTemplate | None = None,
    ) -> None:
        self.prompt = prompt
        self.recorder = TokenTree(None if template is None else template.tokenizer.decode)
        self.counts: defaultdict[str, float] = defaultdict(float)
        self.chats: list[Conversation] = []
        self._client, self._params, self._limits, self._template = client, params, limits, template
        self._seed, self._index, self._name = seed, index, name
        self._num_turns = 0
        self._last_turn: int | None = None
        self._agent = ""

    def agent(self, name: str, *, max_turns: int) -> EpisodeEngine:
        """Return an engine of a sub-agent: its turns are the episode's, its limits and random streams are its own.

        Args:
            name: Distinguishes the agents of the episode.
            max_turns: Requests of the sub-agent; its context may be as long as the episode's.
        """
        limits = dataclasses.replace(self._limits, max_turns=max_turns)
        engine = self._renewed(derive_seed(self._seed, "agent", name), self._name, limits)
        engine.recorder, engine.counts, engine._agent = self.recorder, self.counts, name
        return engine

    def renewed(self, name: str) -> EpisodeEngine:
        """Return an engine of another episode: nothing is recorded, and its random streams are its own.

        Args:
            name: Distinguishes the episode; begins the ids of its requests.
        """
        return self._renewed(derive_seed(self._seed, "episode", name), name, self._limits)

    def take_over(self, played: EpisodeEngine) -> None:
        """Take what was played with another engine as this one's episode."""
        self.recorder, self.counts, self.chats = played.recorder, played.counts, played.chats
        self._last_turn = played._last_turn

    def _renewed(self, seed: int, name: str, limits: EpisodeLimits) -> EpisodeEngine:
        return EpisodeEngine(
            self.prompt,
            self._client,
            params=self._params,
            limits=limits,
            seed=seed,
            index=self._index,
            name=name,
            template=self._template,
        )

    async def agenerate(
        self, prompt_ids: Sequence[int], *, max_new_tokens: int | None = None, stop: Sequence[str] = ()
    ) -> Completion:
        """Sample a completion, and record it.

        Args:
            prompt_ids: [P]; one that continues a turn begins with the very tokens of the turn.
            max_new_tokens: Fewer than the recipe's; None takes these.
            stop: Strings that end it in addition to the recipe's.

        Raises:
            TurnLimitError: The episode has used up its turns.
            ContextFullError: The context leaves no room for a token.
            AgentError: The prompt spells a recorded turn in other tokens, or the request was aborted.
            EngineError: The engine has failed.
        """
        return (await self.take_turn(prompt_ids, max_new_tokens=max_new_tokens, stop=stop))[1]

    async def take_turn(
        self,
        prompt_ids: Sequence[int],
        *,
        max_new_tokens: int | None = None,
        stop: Sequence[str] = (),
        may_drift: bool = False,
    ) -> tuple[int, Completion]:
        """Do what ``agenerate`` does, and return the number of the turn as well.

        Args:
            prompt_ids: See ``agenerate``.
            max_new_tokens: See ``agenerate``.
            stop: See ``agenerate``.
            may_drift: Whether the prompt may spell a recorded turn in other tokens, as that of a program which writes
                the history itself: another branch, which is counted.
        """
        if self._num_turns == self._limits.max_turns:
            raise TurnLimitError(f"The episode has had its {self._num_turns} turns. Raise agent.max_turns.")
        room = self._limits.max_context_tokens - len(prompt_ids)
        if room < 1:
            raise ContextFullError(
                f"A prompt of {len(prompt_ids)} tokens leaves no room in a context of "
                f"{self._limits.max_context_tokens} tokens. Raise agent.max_context_tokens."
            )
        turn = self._num_turns
        self._num_turns += 1
        call = self.recorder.begin(prompt_ids, agent=self._agent)
        if call.fork == "drift" and not may_drift:
            raise AgentError(
                f"The prompt of turn {call.number} spells a recorded turn in other tokens than were sampled: it was "
                "encoded from text. Continue the tokens of the completion, or use engine.chat()."
            )
        most = min(self._params.max_new_tokens, room, max_new_tokens or room)
        params = dataclasses.replace(
            self._params,
            n=1,
            seed=derive_seed(self._seed, "turn", turn) if turn else self._seed,
            first_index=self._index,
            max_new_tokens=most,
            min_new_tokens=min(self._params.min_new_tokens, most),
            stop=(*self._params.stop, *stop),
        )
        request = GenerationRequest(
            request_id=f"{self._name}-{call.number}",
            prompt_ids=tuple(prompt_ids),
            params=params,
            images=self.prompt.images,
        )
        completion = await self._client.generate(request)
        if completion.finish_reason == "abort":
            raise AgentError(f"Request {request.request_id} was aborted.")
        self.recorder.commit(call, completion)
        self._last_turn = call.number
        return call.number, completion

    def reward(self, value: float) -> None:
        """Add a reward to the turn that was taken last, apart from the reward of the episode.

        Estimators with returns (``reinpp``, ``gae``) credit with it the tokens up to the end of that turn; others
        compare the sums over episodes.

        Args:
            value: What is added.

        Raises:
            AgentError: No turn has been taken, or the value is not finite.
        """
        if self._last_turn is None:
            raise AgentError("engine.reward() rewards the turn that was taken last, and none was.")
        self.recorder.reward(self._last_turn, value)

    def chat(self, messages: Sequence[Message] | None = None, *, tools: Sequence[ToolSchema] = ()) -> Chat:
        """Open a conversation.

        Args:
            messages: What has been said; None takes the row's messages.
            tools: JSON schemas of the tools that the model may call.

        Raises:
            AgentError: There is no chat template, or the row is not a conversation.
        """
        if self._template is None:
            raise AgentError("engine.chat() needs a chat template, which this workflow has been given none of.")
        if messages is None and not self.prompt.messages:
            raise AgentError(
                f"Row {self.prompt.index} is text, not a conversation. Set data.apply_chat_template=true, or give "
                "lists of messages in the column data.prompt_key."
            )
        said = self.prompt.messages if messages is None else messages
        chat = Chat(self.agenerate, self._template, messages=said, tools=tools)
        self.chats.append(chat)
        return chat
