"""Learning from answers: the same optimizer steps whatever the number of ranks, the packing and the micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from rlinf.algorithms.flops import DecoderFlops
from rlinf.algorithms.minibatch import MicroBatch, plan_minibatches
from rlinf.algorithms.text_targets import Ragged
from rlinf.algorithms.token_batches import SequenceCost, assign_to_ranks, plan_token_batches
from rlinf.algorithms.types import Metrics, finalize_metrics, metric_pair
from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.answers import Answer
from rlinf.errors import NumericalError
from rlinf.hybrid_engines.train.base import MetricSums, TrainEngine
from rlinf.models.causal_lm import CausalLM
from rlinf.workers.actor.learner import accumulate
from rlinf.workers.actor.text_samples import (
    TextBatch,
    TextSamples,
    evaluate_tokens,
    make_text_samples,
    text_denominators,
    text_loss,
)


@dataclass(frozen=True, slots=True)
class Work:
    """What an update has got through, over all ranks.

    Attributes:
        tokens: Of prompts and answers, once for each time that they were trained on.
        flops: Operations of the model.
    """

    tokens: int = 0
    flops: float = 0.0

    def __add__(self, other: Work) -> Work:
        """Return both together."""
        return Work(self.tokens + other.tokens, self.flops + other.flops)


class TextLearner:
    """Improves a language model on answers that it gave itself.

    Every rank holds all answers of a step (they are small beside the model), so plans and advantages need no
    communication; forward and backward passes are shared out by their work.

    Args:
        engine: Holds the model.
        cfg: The recipe.
        reference: Frozen copy of the initial model; None without a divergence, or where adapters can be switched off.

    Attributes:
        work: What the last update has got through.
    """

    def __init__(self, engine: TrainEngine, *, cfg: ReasoningConfig, reference: CausalLM | None = None) -> None:
        self.engine, self.cfg, self.reference = engine, cfg, reference
        self.flops = decoder_flops(engine.model)
        self.work = Work()
        self.samples: TextSamples | None = None

    def prepare(self, answers: Sequence[Answer], *, version: int) -> dict[str, float]:
        """Compute log-probabilities, advantages and returns.

        Args:
            answers: All answers of the step.
            version: Version of the weights that are about to be trained.

        Returns:
            Metrics over all answers.

        Raises:
            NumericalError: A reward or value was not finite.
        """
        answers = sorted(answers, key=lambda answer: (answer.group_id, answer.member))
        algorithm, model = self.cfg.algorithm, self.engine.model
        trainer: Ragged | None = None
        values: Ragged | None = None
        if algorithm.recompute_logprobs or self.cfg.actor.model.add_value_head:
            trainer, values = self._evaluate(model, answers)
        self.samples, metrics = make_text_samples(
            answers,
            algorithm=algorithm,
            trainer_logprobs=trainer if algorithm.recompute_logprobs else None,
            ref_logprobs=self._reference_logprobs(answers),
            values=values,
        )
        if not torch.isfinite(torch.cat(self.samples.tokens["advantages"])).all():
            raise NumericalError("Advantages are not finite: a reward or a value is NaN or infinite. Look at rollout/.")
        return finalize_metrics(metrics | _staleness(answers, version))

    def update(self, step: int) -> dict[str, float]:
        """Make the step's optimizer updates on the prepared answers; those in which no token counts are left out.

        Args:
            step: Step of the run; names the shuffles.

        Returns:
            Metrics over all ranks, micro-batches and optimizer steps.

        Raises:
            NumericalError: A gradient is not finite.
        """
        assert self.samples is not None
        samples, self.samples = self.samples, None
        self.work = Work()
        sums: MetricSums = {}
        steps: list[dict[str, float]] = []
        num_skipped = 0
        actor, count = self.cfg.actor, len(samples.answers)
        for epoch in range(self.cfg.algorithm.update_epoch):
            for numbers in plan_minibatches(count, actor.global_batch_size, seed=actor.seed, step=step, epoch=epoch):
                minibatch = samples.select(numbers.tolist())
                # Momentum and weight decay alone would still move the model. Every rank has all samples, and skips too.
                if not minibatch.teaches:
                    num_skipped += 1
                    continue
                accumulate(sums, self.forward_backward(minibatch))
                self.work += self._work(minibatch)
                steps.append(self.engine.step())
        return self._metrics(sums, steps) | {"skipped_updates": float(num_skipped)}

    def _metrics(self, sums: MetricSums, steps: list[dict[str, float]]) -> dict[str, float]:
        """Return metrics over all ranks and the means over optimizer steps; none without any."""
        if not steps:
            return {}
        names = sorted(sums)
        totals = self.engine.all_reduce(torch.stack([sums[name].double().to(self.engine.device) for name in names]))
        metrics = finalize_metrics(dict(zip(names, totals, strict=True)))
        return metrics | {name: sum(s[name] for s in steps) / len(steps) for name in steps[0]}

    def forward_backward(self, minibatch: TextSamples) -> MetricSums:
        """Accumulate the gradient of one minibatch.

        Args:
            minibatch: The samples of an optimizer step, over all ranks.

        Returns:
            This rank's metric sums.
        """
        algorithm, engine = self.cfg.algorithm, self.engine
        own, plan = self._share(minibatch)
        batches = [own.pack(batch, engine.device) for batch in plan]
        denominators = text_denominators(
            batches, algorithm=algorithm, data_parallel_size=engine.world_size, all_reduce=engine.all_reduce
        )

        def loss_fn(model: nn.Module, batch: TextBatch) -> tuple[torch.Tensor, MetricSums]:
            return text_loss(model, batch, denominators, algorithm=algorithm)

        return engine.forward_backward(batches, loss_fn)

    def _work(self, samples: TextSamples) -> Work:
        """Return what training on samples takes, over all ranks."""
        lengths = samples.lengths
        return Work(sum(lengths), self.flops.of_training(lengths, [len(answer) for answer in samples.answers]))

    def _share(self, samples: TextSamples) -> tuple[TextSamples, list[MicroBatch]]:
        """Return this rank's part of some samples, by work, and how it goes through the model."""
        runner, lengths = self.cfg.runner, samples.lengths
        is_dynamic = runner.enable_dynamic_batch_size
        cost = self.flops.cost
        shares = assign_to_ranks(lengths, self.engine.world_size, cost=cost)
        plans = plan_token_batches(
            [[lengths[position] for position in share] for share in shares],
            max_tokens=runner.max_tokens_per_mbs if is_dynamic else None,
            max_samples=None if is_dynamic else self.cfg.actor.micro_batch_size,
            cost=cost,
        )
        return samples.select(shares[self.engine.rank]), plans[self.engine.rank]

    def _evaluate(self, model: nn.Module, answers: Sequence[Answer]) -> tuple[Ragged, Ragged | None]:
        """Return log-probabilities and values of all answers' tokens, whichever rank computes them."""
        lengths = [len(answer.token_ids) for answer in answers]
        places = torch.split(torch.arange(sum(lengths)), lengths)
        samples = TextSamples(
            prompts=tuple(answer.prompt.token_ids for answer in answers),
            answers=tuple(answer.token_ids for answer in answers),
            tokens={"loss_mask": tuple(torch.ones(n, dtype=torch.bool) for n in lengths), "places": places},
        )
        own, plan = self._share(samples)
        batches = [own.pack(batch, self.engine.device) for batch in plan]

        def evaluate(engine_model: nn.Module, batch: TextBatch) -> torch.Tensor:
            which = engine_model if model is self.engine.model else model
            found = evaluate_tokens(which, batch, algorithm=self.cfg.algorithm, whole_answers=True)
            values = torch.zeros_like(found.logprobs) if found.values is None else found.values
            return torch.stack((found.logprobs, values))[:, batch.is_answer]

        # Every token is computed by one rank: the sum puts them together.
        flat = torch.zeros(2, sum(lengths), device=self.engine.device)
        for batch, micro, found in zip(batches, plan, self.engine.forward(batches, evaluate), strict=True):
            if not micro.is_padding:
                flat[:, batch.tokens["places"][batch.is_answer]] = found.float()
        flat = self.engine.all_reduce(flat).cpu()
        has_values = isinstance(model, CausalLM) and model.value_head is not None
        return torch.split(flat[0], lengths), torch.split(flat[1], lengths) if has_values else None

    def _reference_logprobs(self, answers: Sequence[Answer]) -> Ragged | None:
        if not self.cfg.algorithm.needs_reference:
            return None
        model = self.engine.model
        assert isinstance(model, CausalLM)
        context: AbstractContextManager[None] = model.without_adapters() if self.reference is None else nullcontext()
        with context:
            return self._evaluate(self.reference or model, answers)[0]


def decoder_flops(model: nn.Module) -> DecoderFlops:
    """Return the operations of a language model."""
    assert isinstance(model, CausalLM)
    config = model.hf_config
    num_parameters = sum(parameter.numel() for unit in model.recompute_units() for parameter in unit.parameters())
    cost = SequenceCost.of_decoder(
        num_parameters=num_parameters, num_layers=config.num_hidden_layers, hidden_size=config.hidden_size
    )
    head_parameters = config.vocab_size * config.hidden_size
    return DecoderFlops(cost=cost, layer_parameters=num_parameters, head_parameters=head_parameters)


def _staleness(answers: Sequence[Answer], version: int) -> Metrics:
    """Return by how many versions the weights that answered are older than those about to be trained."""
    ages = torch.cat([version - torch.tensor(answer.versions) for answer in answers]).double()
    return {
        "staleness_mean": metric_pair(ages.sum(), torch.tensor(len(ages))),
        "staleness_max": metric_pair(ages.max(), torch.tensor(1)),
    }
