"""Computes log-probabilities and values of responses, distributed over data-parallel ranks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from rlinf.algorithms.flops import DecoderFlops
from rlinf.algorithms.minibatch import (
    MicroBatch,
    PrefixGroup,
    SequenceCost,
    assign_to_ranks,
    group_by_prefix,
    plan_packed_micro_batches,
)
from rlinf.algorithms.types import Ragged
from rlinf.config.schema.algorithm import LanguageAlgorithmConfig
from rlinf.config.schema.runner import TextRunnerConfig
from rlinf.data.messages.responses import ResponseBatch
from rlinf.data.shared_prefixes import prefix_keys
from rlinf.hybrid_engines.train.train_engine import Pass, TrainEngine
from rlinf.models.language.language_model import LanguageModel, TokenEvaluation
from rlinf.workers.actor.expert_use import ExpertUse
from rlinf.workers.actor.text_samples import TextBatch, TextSamples, evaluate_tokens


class Evaluated(NamedTuple):
    """What a model says of responses, on the host.

    Attributes:
        logprobs: float32 [L] for each response.
        values: The same; None without a value head.
        routes: See ``TextSamples``; None unless recorded, or the engine's.
    """

    logprobs: Ragged
    values: Ragged | None
    routes: Ragged | None = None


@dataclass(frozen=True, slots=True)
class MicroBatchPlanner:
    """Plans which responses a rank computes, and in which micro-batches.

    Attributes:
        engine: Holds the model, and says which rank this is.
        cost: Work of a sequence.
        max_tokens: Largest number of tokens in a micro-batch; None has no bound.
        max_samples: Largest number of sequences in a micro-batch; None has no bound.
        share_prompts: Whether a micro-batch computes equal prompts once.
        whole_episodes: Whether all branches of an episode are in one micro-batch.
    """

    engine: TrainEngine
    cost: SequenceCost
    max_tokens: int | None
    max_samples: int | None
    share_prompts: bool
    whole_episodes: bool = False

    @classmethod
    def of(
        cls,
        engine: TrainEngine,
        runner: TextRunnerConfig,
        *,
        max_tokens: int,
        max_samples: int,
        whole_episodes: bool = False,
    ) -> MicroBatchPlanner:
        """Return the planner that the ``runner`` section asks for.

        Args:
            engine: Holds a ``LanguageModel``.
            runner: The section.
            max_tokens: Bound where the section wants dynamic batch sizes.
            max_samples: Bound where it does not.
            whole_episodes: See the attribute.
        """
        assert isinstance(engine.model, LanguageModel)
        is_dynamic = runner.enable_dynamic_batch_size
        return cls(
            engine,
            cost=decoder_flops(engine.model).cost,
            max_tokens=max_tokens if is_dynamic else None,
            max_samples=None if is_dynamic else max_samples,
            share_prompts=runner.share_prompts and engine.model.can_share_prompts,
            whole_episodes=whole_episodes,
        )

    def groups(self, samples: TextSamples) -> tuple[PrefixGroup, ...]:
        """Group responses by their prompt."""
        return group_by_prefix(
            samples.lengths,
            prefixes=prefix_keys(samples.prompts, samples.images) if self.share_prompts else None,
            responses=samples.responses,
            episodes=samples.episode_ids if self.whole_episodes and samples.episode_ids else None,
            num_ranks=self.engine.world_size,
            max_tokens=self.max_tokens,
            max_samples=self.max_samples,
            cost=self.cost,
        )

    def plan(self, samples: TextSamples, groups: Sequence[PrefixGroup] | None = None) -> list[MicroBatch]:
        """Return this rank's micro-batches of some samples; ``indices`` are positions among them.

        Args:
            samples: Every rank has all of them.
            groups: What ``groups`` has returned of them; None computes it.
        """
        shares = assign_to_ranks(self.groups(samples) if groups is None else groups, self.engine.world_size)
        plans = plan_packed_micro_batches(shares, max_tokens=self.max_tokens, max_samples=self.max_samples)
        return plans[self.engine.rank]

    def pack(self, samples: TextSamples, plan: Sequence[MicroBatch]) -> list[TextBatch]:
        """Lay the samples of every micro-batch end to end, on the model's device."""
        return [samples.pack(batch, self.engine.device, share_prompts=self.share_prompts) for batch in plan]


def compute_logprobs(
    batch: ResponseBatch,
    *,
    planner: MicroBatchPlanner,
    algorithm: LanguageAlgorithmConfig,
    experts: ExpertUse | None = None,
) -> Evaluated:
    """Return log-probabilities and values of all responses' tokens on every rank.

    Args:
        batch: The responses; every rank is given all of them.
        planner: Distributes the responses over the ranks of its engine, which runs the model.
        algorithm: The ``algorithm`` section.
        experts: Records where tokens go, or has them go where the engine sent them; None does neither.
    """
    num_tokens = len(batch.token_ids)
    samples = TextSamples(
        prompts=batch.prompt_ids,
        responses=batch.split(batch.token_ids),
        tokens={
            "loss_mask": batch.split(torch.ones(num_tokens, dtype=torch.bool)),
            "places": batch.split(torch.arange(num_tokens)),
        },
        routes=None if experts is None else experts.known(batch),
        images=batch.images,
    )
    engine = planner.engine
    assert isinstance(engine.model, LanguageModel)
    plan = planner.plan(samples)
    batches = planner.pack(samples, plan)
    if experts is not None:
        batches = experts.evaluating(batches)

    def call(model: nn.Module, packed: TextBatch) -> TokenEvaluation:
        return evaluate_tokens(model, packed, algorithm=algorithm, whole_responses=True)

    def use(found: TokenEvaluation, packed: TextBatch) -> torch.Tensor:
        values = torch.zeros_like(found.logprobs) if found.values is None else found.values
        return torch.stack((found.logprobs, values))[:, packed.is_response]

    # Every token is computed by one rank: the sum puts them together.
    flat = torch.zeros(2, num_tokens, device=engine.device)
    for packed, micro, found in zip(batches, plan, engine.forward(batches, Pass(call, use)), strict=True):
        if not micro.is_padding:
            flat[:, packed.tokens["places"][packed.is_response]] = found.float()
    flat = engine.all_reduce(flat).cpu()
    return Evaluated(
        batch.split(flat[0]),
        batch.split(flat[1]) if engine.model.has_value_head else None,
        samples.routes if experts is None or experts.from_engine else _routes(experts, samples, engine, plan, batches),
    )


def _routes(
    experts: ExpertUse,
    samples: TextSamples,
    engine: TrainEngine,
    plan: Sequence[MicroBatch],
    batches: Sequence[TextBatch],
) -> Ragged:
    """Return the recorded routes of all samples on every rank; see ``TextSamples.routes``."""
    starts = [0, *itertools.accumulate(samples.lengths)]
    flat = experts.sizes.no_routes(starts[-1]).to(engine.device)
    for micro, packed in zip(plan, batches, strict=True):
        if not micro.is_padding:
            assert packed.routing is not None
            assert packed.routing.recorded is not None
            numbers = micro.indices.tolist()
            where = torch.cat([torch.arange(starts[number], starts[number + 1]) for number in numbers])
            flat[where] = packed.routing.recorded[packed.packed.places]
    # Of each token and layer one process knows the routes, also among those that share a replica.
    return torch.split(engine.sum_parts(flat).cpu(), samples.lengths)


def decoder_flops(model: nn.Module) -> DecoderFlops:
    """Return the operations of a language model."""
    assert isinstance(model, LanguageModel)
    config, num_parameters = model.hf_config, model.num_layer_parameters
    fields = config.to_dict()  # configurations of some families have no head_dim
    head_dim = fields.get("head_dim") or config.hidden_size // config.num_attention_heads
    cost = SequenceCost.of_decoder(
        num_parameters=num_parameters,
        num_layers=config.num_hidden_layers,
        attention_size=config.num_attention_heads * head_dim,
    )
    head_parameters = config.vocab_size * config.hidden_size
    return DecoderFlops(cost=cost, layer_parameters=num_parameters, head_parameters=head_parameters)
