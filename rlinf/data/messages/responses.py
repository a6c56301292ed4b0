"""Messages of language-model RL: prompts, the responses to them, and their rewards. Nothing here is padded."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from rlinf.data.messages.generation import Completion, FinishReason, RouteArray
from rlinf.data.prompt_images import Images


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A row of a dataset.

    Attributes:
        index: Row in the dataset.
        token_ids: Tokens, chat template applied, [P].
        text: What the tokens say.
        reference: What the reward compares a response with (a solution, tests to run); None where it needs nothing.
        metadata: Further columns that a reward may look at.
        messages: The conversation that the text is, as chat templates read it; empty where it is none.
        images: Encoded images (PNG, JPEG ...), in the order of their placeholders, which ``token_ids`` holds expanded.
    """

    plain_fields: ClassVar[tuple[str, ...]] = ("reference", "metadata")

    index: int
    token_ids: tuple[int, ...]
    text: str
    reference: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Mapping[str, Any], ...] = ()
    images: Images = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the tokens as one array: the driver sends every prompt, and looks at every object that it pickles."""
        others = (self.index, self.text, self.reference, self.metadata, self.messages, self.images)
        return _prompt, (array("q", self.token_ids), *others)


def _prompt(
    token_ids: array[int],
    index: int,
    text: str,
    reference: Any,
    metadata: Mapping[str, Any],
    messages: tuple[Mapping[str, Any], ...],
    images: Images,
) -> Prompt:
    return Prompt(
        index=index,
        token_ids=tuple(token_ids),
        text=text,
        reference=reference,
        metadata=metadata,
        messages=messages,
        images=images,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardQuery:
    """What a reward of text scores.

    Attributes:
        prompt: Text of the prompt.
        response: Text of the response, special tokens left out.
        reference: See ``Prompt``.
        metadata: See ``Prompt``.
        num_tokens: Tokens of the response.
        finish_reason: Why the response ended.
        outcome: The workflow's own judgement of the episode; None without one.
        transcript: The messages of the episode, of which the response is the last of the model; empty without chats.
    """

    prompt: str
    response: str
    reference: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    num_tokens: int = 0
    finish_reason: FinishReason = "stop"
    outcome: float | None = None
    transcript: tuple[Mapping[str, Any], ...] = ()


# Without slots: pickle reads a dataclass that has them by Python code, three times as slowly.
@dataclass(frozen=True, kw_only=True)
class Response:
    """What is known of a response apart from its tokens.

    Attributes:
        group_id: Number of the prompt within the run: all responses to it in one step share it, and stay together.
        index: Number of the response within its group.
        num_tokens: Tokens of the response; none if it was aborted before the first.
        num_prompt_tokens: Tokens of its prompt.
        finish_reason: Why it ended.
        oldest_version: Lowest version of the weights that sampled its tokens; 0 without tokens.
        newest_version: Highest version of the weights that sampled its tokens.
        reward: Its total reward, with those of its turns; 0 until it is rewarded.
        reward_terms: Its score by each reward, unweighted.
        reward_metrics: What rewards measured while they scored it, as ``<name of the reward>_<metric>``.
        episode_metrics: What was counted while it was played, by name; empty without a workflow.
        branch_lengths: Tokens of each of its branches, which are training sequences of their own and lie end to end;
            empty where it has one.
        turn_spans: Where its turns begin and end among its tokens, in the order in which they were submitted; empty
            where it has one branch of one agent, whose tokens have this order, and no rewards of turns.
        turn_agents: The agent of each of ``turn_spans``: a sub-agent's name, or empty for the agent that the row was
            given to; empty where all are that agent's.
        turn_rewards: The own reward of each of ``turn_spans``; empty where none has any.
    """

    group_id: int
    index: int
    num_tokens: int
    num_prompt_tokens: int
    finish_reason: FinishReason
    oldest_version: int
    newest_version: int
    reward: float = 0.0
    reward_terms: Mapping[str, float] = field(default_factory=dict)
    reward_metrics: Mapping[str, float] = field(default_factory=dict)
    episode_metrics: Mapping[str, float] = field(default_factory=dict)
    branch_lengths: tuple[int, ...] = ()
    turn_spans: tuple[tuple[int, int], ...] = ()
    turn_agents: tuple[str, ...] = ()
    turn_rewards: tuple[float, ...] = ()

    @property
    def outcome(self) -> float:
        """Its reward without those of its turns."""
        return self.reward - math.fsum(self.turn_rewards)


# Without slots, and in columns: the driver reads one for every prompt.
@dataclass(frozen=True, kw_only=True)
class RewardedGroup:
    """The responses to a prompt once they are rewarded, apart from their tokens: all that the driver holds of them.

    Attributes:
        group_id: Number of the prompt within the run.
        num_prompt_tokens: Tokens of the prompt.
        num_tokens: Tokens of each response, [N].
        finish_reasons: Why each ended, [N].
        oldest_version: Lowest version of the weights that sampled their tokens.
        newest_version: Highest version of the weights that sampled their tokens.
        rewards: Total reward of each, [N].
        outcomes: The same without the rewards of turns, [N]; empty where no turn has one.
        scores: By the name of a reward, its unweighted score of each response, [N]; by the name of a metric,
            ``<name of the reward>_<metric>``, what it measured of each, 0 where it measured nothing.
        episode_sums: What was counted while episodes were played, by name: sums over the responses.
    """

    group_id: int
    num_prompt_tokens: int
    num_tokens: tuple[int, ...]
    finish_reasons: tuple[FinishReason, ...]
    oldest_version: int
    newest_version: int
    rewards: tuple[float, ...]
    scores: Mapping[str, tuple[float, ...]]
    outcomes: tuple[float, ...] = ()
    episode_sums: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, responses: Sequence[Response]) -> RewardedGroup:
        """Return the columns of a prompt's responses; one at least."""
        rows = [{**response.reward_terms, **response.reward_metrics} for response in responses]
        names = dict.fromkeys(name for row in rows for name in row)
        return cls(
            group_id=responses[0].group_id,
            num_prompt_tokens=responses[0].num_prompt_tokens,
            num_tokens=tuple(response.num_tokens for response in responses),
            finish_reasons=tuple(response.finish_reason for response in responses),
            oldest_version=min(response.oldest_version for response in responses),
            newest_version=max(response.newest_version for response in responses),
            rewards=tuple(response.reward for response in responses),
            scores={name: tuple(row.get(name, 0.0) for row in rows) for name in names},
            outcomes=tuple(response.outcome for response in responses)
            if any(response.turn_rewards for response in responses)
            else (),
            episode_sums=_sums([response.episode_metrics for response in responses]),
        )

    def __len__(self) -> int:
        return len(self.num_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseBatch:
    """``N`` responses as ``M`` training sequences; their ``T`` tokens lie end to end.

    A response is one sequence; an episode that was played on several branches has one for each.

    Attributes:
        responses: The responses, [N].
        prompt_ids: Tokens of the prompt of each sequence, [M]; those that are a row's prompt are one object.
        token_ids: int32 [T].
        logprobs: float32 [T]; log-probability of each under the distribution it was sampled from (``Completion``).
        versions: int32 [T]; version of the weights that sampled it.
        loss_mask: bool [T]; false for tokens that are not the model's own, such as a tool's.
        trainer_logprobs: float32 [T]; log-probability of each token by the trainer's code, under the weights that
            sampled it; None unless an inference group has computed them.
        images: Images of the prompt of each sequence, [M]; empty where no prompt has any.
        routes: uint8 or int32 [S, layers, chosen]; which experts the tokens of each prompt and response together went
            to in the engine, end to end: ``S`` is the sum of ``sequence_lengths``. Numbers from 1; 0 where it is not
            known. None where no engine returned any.
    """

    responses: tuple[Response, ...]
    prompt_ids: tuple[tuple[int, ...], ...]
    token_ids: torch.Tensor
    logprobs: torch.Tensor
    versions: torch.Tensor
    loss_mask: torch.Tensor
    trainer_logprobs: torch.Tensor | None = None
    images: tuple[Images, ...] = ()
    routes: torch.Tensor | None = None

    @classmethod
    def of(cls, prompt: Prompt, group_id: int, completions: Sequence[Completion]) -> ResponseBatch:
        """Return completions of a prompt as a batch of responses.

        Args:
            prompt: The prompt.
            group_id: Number of the prompt within the run.
            completions: One at least; all of their tokens are the model's own.
        """
        # What training reproduces is the distribution over the full vocabulary.
        logprobs = [found.logprobs if found.full_logprobs is None else found.full_logprobs for found in completions]
        token_ids = _lay([found.token_ids for found in completions], np.int32)
        responses = (
            Response(
                group_id=group_id,
                index=index,
                num_tokens=len(found.token_ids),
                num_prompt_tokens=len(prompt.token_ids),
                finish_reason=found.finish_reason,
                oldest_version=int(min(found.versions, default=0)),
                newest_version=int(max(found.versions, default=0)),
            )
            for index, found in enumerate(completions)
        )
        return cls(
            responses=tuple(responses),
            prompt_ids=(prompt.token_ids,) * len(completions),
            token_ids=token_ids,
            logprobs=_lay(logprobs, np.float32),
            versions=_lay([found.versions for found in completions], np.int32),
            loss_mask=torch.ones(len(token_ids), dtype=torch.bool),
            images=(prompt.images,) * len(completions) if prompt.images else (),
            routes=lay_routes(
                [found.routes for found in completions],
                [len(prompt.token_ids) + len(found.token_ids) for found in completions],
            ),
        )

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence, [M]."""
        return [count for each in self.responses for count in each.branch_lengths or (each.num_tokens,)]

    @property
    def sequence_lengths(self) -> list[int]:
        """Tokens of each prompt and response together, [M]."""
        return [len(prompt) + length for prompt, length in zip(self.prompt_ids, self.lengths, strict=True)]

    @property
    def episode_ids(self) -> tuple[int, ...]:
        """Number of the response that each sequence belongs to, [M]."""
        return tuple(n for n, each in enumerate(self.responses) for _ in each.branch_lengths or (each.num_tokens,))

    def split(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the entries [T] of each sequence's tokens: ``M`` views [L]."""
        return torch.split(values, self.lengths)

    @classmethod
    def concat(cls, parts: Sequence[ResponseBatch]) -> ResponseBatch:
        """Join batches, in the given order; one at least."""
        trainer = [part.trainer_logprobs for part in parts if part.trainer_logprobs is not None]
        return cls(
            responses=tuple(response for part in parts for response in part.responses),
            prompt_ids=tuple(ids for part in parts for ids in part.prompt_ids),
            token_ids=torch.cat([part.token_ids for part in parts]),
            logprobs=torch.cat([part.logprobs for part in parts]),
            versions=torch.cat([part.versions for part in parts]),
            loss_mask=torch.cat([part.loss_mask for part in parts]),
            trainer_logprobs=torch.cat(trainer) if len(trainer) == len(parts) else None,
            images=tuple(own for part in parts for own in part.images or ((),) * len(part.prompt_ids))
            if any(part.images for part in parts)
            else (),
            routes=_join_routes(parts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseGroup:
    """All responses to a prompt: what an engine generates for a request, and what rewards score.

    Attributes:
        prompt: The prompt.
        texts: What the tokens of each response say, special tokens left out, [N].
        batch: The responses with their tokens.
        outcomes: See ``RewardQuery``, [N]; empty without a workflow.
        transcripts: See ``RewardQuery``, [N]; empty without a workflow.
    """

    prompt: Prompt
    texts: tuple[str, ...]
    batch: ResponseBatch
    outcomes: tuple[float | None, ...] = ()
    transcripts: tuple[tuple[Mapping[str, Any], ...], ...] = ()

    @property
    def group_id(self) -> int:
        """Number of the prompt within the run."""
        return self.batch.responses[0].group_id

    def queries(self) -> list[RewardQuery]:
        """Return the reward queries of all responses, [N]."""
        count = len(self.texts)
        outcomes, transcripts = self.outcomes or (None,) * count, self.transcripts or ((),) * count
        return [
            RewardQuery(
                prompt=self.prompt.text,
                response=text,
                reference=self.prompt.reference,
                metadata=self.prompt.metadata,
                num_tokens=response.num_tokens,
                finish_reason=response.finish_reason,
                outcome=outcome,
                transcript=transcript,
            )
            for text, response, outcome, transcript in zip(
                self.texts, self.batch.responses, outcomes, transcripts, strict=True
            )
        ]


def lay_routes(columns: Sequence[RouteArray | None], lengths: Sequence[int]) -> torch.Tensor | None:
    """Lay routes of sequences end to end: ``ResponseBatch.routes``.

    Args:
        columns: Those of the first tokens of each; None where none is known.
        lengths: Tokens of each.

    Returns:
        [S, layers, chosen], 0 where nothing is known; None if that is everywhere.
    """
    known = next((column for column in columns if column is not None), None)
    if known is None:
        return None
    laid = np.zeros((sum(lengths), *known.shape[1:]), dtype=known.dtype)
    begin = 0
    for column, length in zip(columns, lengths, strict=True):
        if column is not None:
            laid[begin : begin + len(column)] = column
        begin += length
    return torch.from_numpy(laid)


def _join_routes(parts: Sequence[ResponseBatch]) -> torch.Tensor | None:
    """Join the routes of batches; of one whose responses were all aborted before their first token none is known."""
    known = next((part.routes for part in parts if part.routes is not None), None)
    if known is None:
        return None
    return torch.cat(
        [known.new_zeros(sum(p.sequence_lengths), *known.shape[1:]) if p.routes is None else p.routes for p in parts]
    )


def _sums(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            sums[name] = sums.get(name, 0.0) + value
    return sums


def _lay(columns: Sequence[Sequence[float]], dtype: type[np.generic]) -> torch.Tensor:
    """Lay sequences of numbers, or arrays, end to end: [T]."""
    # Of short columns numpy makes arrays several times faster than PyTorch makes tensors.
    return torch.from_numpy(np.concatenate([np.asarray(column, dtype=dtype) for column in columns]))
