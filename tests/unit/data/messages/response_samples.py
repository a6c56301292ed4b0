"""Responses as tests write them: one by one, with plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from rlinf.data.messages.generation import FinishReason
from rlinf.data.messages.responses import Prompt, Response, ResponseBatch, ResponseGroup


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A response; what is not given is that of a rewarded response whose tokens are all the model's own."""

    group_id: int = 0
    index: int = 0
    prompt: tuple[int, ...] = (1,)
    token_ids: tuple[int, ...] = (1,)
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()
    loss_mask: tuple[bool, ...] = ()
    finish_reason: FinishReason = "stop"
    reward: float = 0.0
    reward_terms: Mapping[str, float] = field(default_factory=dict)
    reward_metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def response(self) -> Response:
        """What the driver holds of it."""
        return Response(
            group_id=self.group_id,
            index=self.index,
            num_tokens=len(self.token_ids),
            num_prompt_tokens=len(self.prompt),
            finish_reason=self.finish_reason,
            oldest_version=min(self.versions, default=0),
            newest_version=max(self.versions, default=0),
            reward=self.reward,
            reward_terms=self.reward_terms,
            reward_metrics=self.reward_metrics,
        )


def batch_of(samples: Sequence[Sample]) -> ResponseBatch:
    """Lay samples end to end."""
    logprobs = [x for s in samples for x in s.logprobs or (-1.0,) * len(s.token_ids)]
    return ResponseBatch(
        responses=tuple(sample.response for sample in samples),
        prompt_ids=tuple(sample.prompt for sample in samples),
        token_ids=torch.tensor([x for s in samples for x in s.token_ids], dtype=torch.int32),
        logprobs=torch.tensor(logprobs, dtype=torch.float32),
        versions=torch.tensor([x for s in samples for x in s.versions or (0,) * len(s.token_ids)], dtype=torch.int32),
        loss_mask=torch.tensor([x for s in samples for x in s.loss_mask or (True,) * len(s.token_ids)]),
    )


def group_of(
    samples: Sequence[Sample], texts: Sequence[str] = (), *, prompt: str = "?", reference: object = None
) -> ResponseGroup:
    """Return samples of one group as an engine hands them on."""
    asked = Prompt(index=0, token_ids=samples[0].prompt, text=prompt, reference=reference)
    return ResponseGroup(prompt=asked, texts=tuple(texts or [""] * len(samples)), batch=batch_of(samples))
