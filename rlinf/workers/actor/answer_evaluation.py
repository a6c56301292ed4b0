"""What a model thinks of answers' tokens, whichever rank computes them and in whatever passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from rlinf.algorithms.minibatch import MicroBatch
from rlinf.algorithms.text_targets import Ragged
from rlinf.algorithms.token_batches import SequenceCost, assign_to_ranks, plan_token_batches
from rlinf.config.schema.algorithm import LanguageAlgorithmConfig
from rlinf.data.answers import Answer
from rlinf.hybrid_engines.train.base import TrainEngine
from rlinf.models.causal_lm import CausalLM
from rlinf.workers.actor.text_samples import TextBatch, TextSamples, evaluate_tokens

Share = Callable[[TextSamples], tuple[TextSamples, list[MicroBatch]]]
"""Returns this rank's part of some samples, and how it goes through the model."""


def share_samples(
    samples: TextSamples,
    engine: TrainEngine,
    *,
    cost: SequenceCost,
    max_tokens: int | None,
    max_samples: int | None,
) -> tuple[TextSamples, list[MicroBatch]]:
    """Return this rank's part of some samples, by work, and how it goes through the model.

    Args:
        samples: Every rank has all of them.
        engine: Says which rank this is.
        cost: Work of a sequence.
        max_tokens: Largest number of tokens in a pass; None has no bound.
        max_samples: Largest number of sequences in a pass; None has no bound.
    """
    lengths = samples.lengths
    shares = assign_to_ranks(lengths, engine.world_size, cost=cost)
    plans = plan_token_batches(
        [[lengths[position] for position in share] for share in shares],
        max_tokens=max_tokens,
        max_samples=max_samples,
        cost=cost,
    )
    return samples.select(shares[engine.rank]), plans[engine.rank]


def evaluate_answers(
    model: nn.Module,
    answers: Sequence[Answer],
    *,
    engine: TrainEngine,
    algorithm: LanguageAlgorithmConfig,
    share: Share,
) -> tuple[Ragged, Ragged | None]:
    """Return log-probabilities and values of all answers' tokens on every rank.

    Args:
        model: The engine's, or another ``CausalLM`` on its device.
        answers: Every rank is given all of them.
        engine: Runs the model.
        algorithm: The ``algorithm`` section.
        share: Shares the samples out.

    Returns:
        float32 [L] for each answer, on the host; values are None without a value head.
    """
    lengths = [len(answer.token_ids) for answer in answers]
    places = torch.split(torch.arange(sum(lengths)), lengths)
    samples = TextSamples(
        prompts=tuple(answer.prompt.token_ids for answer in answers),
        answers=tuple(answer.token_ids for answer in answers),
        tokens={"loss_mask": tuple(torch.ones(n, dtype=torch.bool) for n in lengths), "places": places},
    )
    own, plan = share(samples)
    batches = [own.pack(batch, engine.device) for batch in plan]

    def evaluate(engine_model: nn.Module, batch: TextBatch) -> torch.Tensor:
        which = engine_model if model is engine.model else model
        found = evaluate_tokens(which, batch, algorithm=algorithm, whole_answers=True)
        values = torch.zeros_like(found.logprobs) if found.values is None else found.values
        return torch.stack((found.logprobs, values))[:, batch.is_answer]

    # Every token is computed by one rank: the sum puts them together.
    flat = torch.zeros(2, sum(lengths), device=engine.device)
    for batch, micro, found in zip(batches, plan, engine.forward(batches, evaluate), strict=True):
        if not micro.is_padding:
            flat[:, batch.tokens["places"][batch.is_answer]] = found.float()
    flat = engine.all_reduce(flat).cpu()
    has_values = isinstance(model, CausalLM) and model.value_head is not None
    return torch.split(flat[0], lengths), torch.split(flat[1], lengths) if has_values else None
