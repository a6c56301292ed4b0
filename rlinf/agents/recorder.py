"""Records what an episode samples: a token prefix tree, from which training samples with their masks follow.

Three invariants hold for every tree. Each token that was sampled is trained on exactly once, in exactly the token
context it was sampled in (I1); no other token is (I2); its log-probability and version are those it was sampled with
(I3). No workflow, tool or template makes a mask.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from rlinf.data.messages.generation import Completion, FinishReason, RouteArray
from rlinf.errors import AgentError

IntArray: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
FloatArray: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
BoolArray: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

ForkKind = Literal["rewritten", "drift"]
"""Why a prompt leaves what was recorded: ``rewritten``: the caller changed the history; ``drift``: the text is the same
and was encoded into other tokens than those that were sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One completion within a trajectory.

    Attributes:
        number: Within the episode, in the order in which prompts were submitted.
        start: Where its tokens begin in ``Trajectory.token_ids``.
        stop: Where they end.
        finish_reason: Why it ended.
        agent: Whose it is: a sub-agent's name; empty for the agent that the row was given to.
        reward: Its own, apart from that of the episode.
    """

    number: int
    start: int
    stop: int
    finish_reason: FinishReason
    agent: str = ""
    reward: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A training sample with turns: one branch of an episode's tree.

    Attributes:
        prompt_ids: int32 [P]; the context of its first turn. It may hold tokens that another trajectory trains on.
        token_ids: int32 [L]; from there to the last sampled token.
        logprobs: float32 [L]; log-probability of each token by the engine, 0 where not sampled here.
        versions: int32 [L]; version of the weights that sampled it, -1 where not sampled here.
        loss_mask: bool [L]; true exactly where sampled here.
        turns: Its turns, in order.
        routes: [P + L or fewer, layers, chosen]; see ``Completion``. Of each token those of the first of its turns that
            computed it: of a sampled one, in the pass that the next token was sampled from. None where none are known.
    """

    prompt_ids: IntArray
    token_ids: IntArray
    logprobs: FloatArray
    versions: IntArray
    loss_mask: BoolArray
    turns: tuple[Turn, ...]
    routes: RouteArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A prompt that was submitted; its completion may be recorded.

    Attributes:
        number: Of the turn that it becomes.
        parent: The turn whose tokens its prompt begins with; None where it begins anew.
        kept: How many of the tokens up to the parent's end its prompt begins with.
        context: int32 [C]; the tokens of the prompt behind those.
        fork: Why the prompt leaves what was recorded; None where it continues or repeats a branch, or begins a new one.
        agent: See ``Turn``.
    """

    number: int
    parent: _Node | None
    kept: int
    context: IntArray
    fork: ForkKind | None
    agent: str


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A recorded turn, as an edge of the tree.

    Attributes:
        number: See ``Call``.
        parent: See ``Call``.
        kept: See ``Call``.
        own: int32 [C + L]; the tokens that its prompt adds to those that were kept, and its completion.
        num_context: The former (``C``).
        logprobs: float32 [L].
        versions: int32 [L].
        finish_reason: Why the completion ended.
        agent: See ``Turn``.
        routes: See ``Completion``; from the root.
    """

    number: int
    parent: _Node | None
    kept: int
    own: IntArray
    num_context: int
    logprobs: FloatArray
    versions: IntArray
    finish_reason: FinishReason
    agent: str
    routes: RouteArray | None

    @property
    def start(self) -> int:
        """Tokens from the root to the begin of the completion."""
        return self.kept + self.num_context

    @property
    def end(self) -> int:
        """Tokens from the root to the end of the completion."""
        return self.kept + len(self.own)

    @property
    def continued(self) -> _Node | None:
        """The turn that this one's prompt begins with to the last token, if any."""
        return self.parent if self.parent is not None and self.kept == self.parent.end else None


class TokenTree:
    """The tokens of one episode.

    A prompt that begins with all tokens up to the end of a turn continues it; any other forks at its longest common
    prefix with what was recorded, within a completion if need be. Two completions are never merged, even if their
    tokens are equal.

    Args:
        decode: Returns the text of tokens, which distinguishes drift from a history that was rewritten; without it all
            forks count as ``rewritten``.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str] | None = None) -> None:
        self._decode = decode
        # In the order in which they were recorded: a parent before its children.
        self._nodes: list[_Node] = []
        self._discarded: set[int] = set()
        self._rewards: defaultdict[int, float] = defaultdict(float)
        self._num_calls = 0
        self._forks: Counter[ForkKind] = Counter()

    def begin(self, prompt_ids: Sequence[int], *, agent: str = "") -> Call:
        """Find the longest recorded prefix of a prompt; nothing is recorded yet.

        Args:
            prompt_ids: [P]; one token at least.
            agent: See ``Turn``.

        Returns:
            What ``commit`` records the completion with.

        Raises:
            AgentError: The prompt is empty.
        """
        prompt = np.array(prompt_ids, dtype=np.int32)
        if not len(prompt):
            raise AgentError("agenerate: received an empty prompt. Give one token at least.")
        common = self._common_prefixes(prompt)
        # Among equals the turn whose end is nearest: one that the prompt continues before those behind it.
        parent = max(common, key=lambda node: (common[node], -node.end, -node.number), default=None)
        kept = 0 if parent is None else common[parent]
        fork = self._fork_kind(prompt, common, parent)
        if fork is not None:
            self._forks[fork] += 1
        call = Call(self._num_calls, parent if kept else None, kept, prompt[kept:].copy(), fork, agent)
        self._num_calls += 1
        return call

    def commit(self, call: Call, completion: Completion) -> None:
        """Record the completion of a prompt.

        Args:
            call: What ``begin`` returned; one that is never committed leaves no trace.
            completion: Its completion; without tokens, as an aborted one may be, it is not recorded.

        Raises:
            AgentError: A log-probability is not finite, or there is not one for each token.
        """
        # What training reproduces is the distribution over the full vocabulary.
        known = completion.logprobs if completion.full_logprobs is None else completion.full_logprobs
        node = _Node(
            number=call.number,
            parent=call.parent,
            kept=call.kept,
            own=np.concatenate([call.context, np.asarray(completion.token_ids, dtype=np.int32)]),
            num_context=len(call.context),
            logprobs=np.asarray(known, dtype=np.float32),
            versions=np.asarray(completion.versions, dtype=np.int32),
            finish_reason=completion.finish_reason,
            agent=call.agent,
            routes=completion.routes,
        )
        count = len(completion.token_ids)
        if not count == len(node.logprobs) == len(node.versions):
            raise AgentError(
                f"Turn {call.number}: received {count} tokens with {len(node.logprobs)} log-probabilities and "
                f"{len(node.versions)} versions; expected one of each. Correct the generation engine."
            )
        if not np.isfinite(node.logprobs).all():
            raise AgentError(f"Turn {call.number}: a log-probability is not finite. Correct the generation engine.")
        if count:
            self._nodes.append(node)

    def reward(self, number: int, value: float) -> None:
        """Add a reward to a turn, apart from that of the episode.

        Args:
            number: Of the turn.
            value: What is added.

        Raises:
            AgentError: There is no such turn, or the value is not finite.
        """
        if not math.isfinite(value):
            raise AgentError(f"Turn {number}: received a reward of {value}. Give a finite number.")
        if all(node.number != number for node in self._nodes):
            raise AgentError(
                f"Turn {number}: nothing was sampled that could be rewarded. Reward a turn once it is taken."
            )
        self._rewards[number] += value

    def discard(self, number: int) -> None:
        """Leave a turn that no client has read out of the training samples; one that another turn continues stays.

        Args:
            number: Of the turn.
        """
        # It stays a node: others may branch off within its prompt.
        if number not in {node.continued.number for node in self._nodes if node.continued is not None}:
            self._discarded.add(number)

    def versions(self) -> tuple[int, int] | None:
        """Return the oldest and the newest version of the weights that sampled a token; None before the first one."""
        if not self._nodes:
            return None
        return min(int(n.versions.min()) for n in self._nodes), max(int(n.versions.max()) for n in self._nodes)

    def forks(self) -> Mapping[ForkKind, int]:
        """Return how many prompts left what was recorded, by the reason."""
        return self._forks

    def trajectories(self) -> tuple[Trajectory, ...]:
        """Return the training samples: every turn is in exactly one, behind all tokens that its prompt had.

        A turn is in the trajectory of the turn that it continues; of several that continue one, the one that was
        submitted first. All others begin a trajectory.
        """
        chains: dict[_Node, list[_Node]] = {}
        for node in sorted(self._nodes, key=lambda node: node.number):
            if node.number in self._discarded:
                continue
            before = node.continued
            is_first = before is not None and chains[before][-1] is before
            chain = chains[before] if before is not None and is_first else []
            chain.append(node)
            chains[node] = chain
        unique = {id(chain): chain for chain in chains.values()}
        return tuple(_to_trajectory(chain, self._rewards) for chain in unique.values())

    def _common_prefixes(self, prompt: IntArray) -> dict[_Node, int]:
        """Return how many tokens a prompt has in common with those up to the end of each turn."""
        common: dict[_Node, int] = {}
        for node in self._nodes:
            shared = 0 if node.parent is None else common[node.parent]
            if shared >= node.kept:
                shared = node.kept + _common_prefix(prompt[node.kept :], node.own)
            common[node] = shared
        return common

    def _fork_kind(self, prompt: IntArray, common: Mapping[_Node, int], parent: _Node | None) -> ForkKind | None:
        """Return why a prompt leaves a completion before its end; None where it does not.

        What differs in tokens that were not sampled, such as another result of a tool, is a branch, not a fork.
        """
        kept = 0 if parent is None else common[parent]
        if parent is None or kept == len(prompt) or not parent.start <= kept < parent.end:
            return None
        if self._decode is not None:
            text = self._decode(prompt.tolist())
            left = (node for node, shared in common.items() if shared == kept)
            if any(text.startswith(self._decode(_tokens(node, node.end).tolist())) for node in left):
                return "drift"
        return "rewritten"


def _to_trajectory(chain: Sequence[_Node], rewards: Mapping[int, float]) -> Trajectory:
    """Lay turns, each of which continues the one before, end to end; the first one's prompt is the trajectory's."""
    first = chain[0]
    begin = first.start
    count = chain[-1].end - begin
    logprobs, versions = np.zeros(count, dtype=np.float32), np.full(count, -1, dtype=np.int32)
    loss_mask = np.zeros(count, dtype=np.bool_)
    turns = []
    for node in chain:
        start, stop = node.start - begin, node.end - begin
        logprobs[start:stop], versions[start:stop], loss_mask[start:stop] = node.logprobs, node.versions, True
        turns.append(
            Turn(
                number=node.number,
                start=start,
                stop=stop,
                finish_reason=node.finish_reason,
                agent=node.agent,
                reward=rewards.get(node.number, 0.0),
            )
        )
    tokens = _tokens(chain[-1], begin + count)
    return Trajectory(
        prompt_ids=tokens[:begin],
        token_ids=tokens[begin:],
        logprobs=logprobs,
        versions=versions,
        loss_mask=loss_mask,
        turns=tuple(turns),
        routes=_routes(chain),
    )


def _routes(chain: Sequence[_Node]) -> RouteArray | None:
    """Return those of ``Trajectory``: every turn knows them from the root on, up to the token before its last."""
    parts: list[RouteArray] = []
    count = 0
    for routes in (node.routes for node in chain if node.routes is not None):
        parts.append(routes[count:])
        count = max(count, len(routes))
    return np.concatenate(parts) if parts else None


def _tokens(node: _Node | None, count: int) -> IntArray:
    """Return the first ``count`` tokens of those from the root to the end of a turn."""
    parts: list[IntArray] = []
    while node is not None:
        parts.append(node.own[: max(count - node.kept, 0)])
        count = min(count, node.kept)
        node = node.parent
    return np.concatenate([np.empty(0, dtype=np.int32), *reversed(parts)])


def _common_prefix(left: IntArray, right: IntArray) -> int:
    count = min(len(left), len(right))
    left, right = left[:count], right[:count]
    # As a rule they are equal, and bytes tell so sooner than elements.
    return count if left.tobytes() == right.tobytes() else int((left != right).argmax())
