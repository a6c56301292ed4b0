"""Learning from sequences of tokens: the same optimizer steps for any number of ranks, packing and micro-batches."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence

from torch import nn

from rlinf.algorithms.types import add_metrics
from rlinf.config.schema.root import LanguageConfig, RLinfConfig
from rlinf.hybrid_engines.train.train_engine import Loss, MetricSums, Pass, TrainEngine
from rlinf.models.language.language_model import TokenEvaluation
from rlinf.workers.actor.expert_use import ExpertUse
from rlinf.workers.actor.learner import BatchT, Learner, Work, metrics_over_ranks
from rlinf.workers.actor.logprobs import MicroBatchPlanner, decoder_flops
from rlinf.workers.actor.text_samples import TextBatch, TextSamples, evaluate_tokens, text_denominators, text_loss


class TokenLearner(Learner[BatchT]):
    """Improves a language model on samples that every rank holds (they are small next to the model).

    So plans need no communication; forward and backward passes are distributed by their cost.

    Args:
        engine: Holds the model.
        cfg: The recipe.
    """

    cfg: LanguageConfig
    work: Work

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        assert isinstance(cfg, LanguageConfig)
        super().__init__(engine, cfg=cfg)
        self.flops = decoder_flops(engine.model)
        self.planner = MicroBatchPlanner.of(
            engine,
            cfg.runner,
            max_tokens=cfg.runner.max_tokens_per_mbs,
            max_samples=cfg.actor.micro_batch_size,
            whole_episodes=cfg.algorithm.needs_whole_sequences,
        )
        self.work = Work()
        self.samples: TextSamples | None = None
        self.experts = ExpertUse.of(engine, cfg.actor)

    @property
    @abc.abstractmethod
    def max_response_tokens(self) -> int:
        """Most tokens that a response can have."""

    @abc.abstractmethod
    def minibatches(self, count: int, step: int) -> Iterator[Sequence[int]]:
        """Yield which of the prepared samples make each of a step's optimizer updates.

        Args:
            count: Samples, of which the branches of an episode are one.
            step: Step of the run; names the shuffles.
        """

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``; minibatches in which no token counts are left out."""
        assert self.samples is not None
        samples, self.samples = self.samples, None
        self.work = Work()
        sums: MetricSums = {}
        steps: list[dict[str, float]] = []
        numbers = list(self.minibatches(samples.num_episodes, step))
        for minibatch, batches in self.packed(map(samples.select_episodes, numbers)):
            add_metrics(sums, self.forward_backward(batches))
            steps.append(self.engine.step() | self.learn_values(minibatch))
        metrics = metrics_over_ranks(self.engine, sums, steps) | {"skipped_updates": float(len(numbers) - len(steps))}
        return metrics if self.experts is None else metrics | self.experts.metrics(samples)

    def packed(self, minibatches: Iterable[TextSamples]) -> Iterator[tuple[TextSamples, list[TextBatch]]]:
        """Yield the minibatches in which some token counts, and this rank's micro-batches of each.

        Args:
            minibatches: The samples of each optimizer step, over all ranks.
        """
        for minibatch in minibatches:
            # Momentum and weight decay alone would still move the model. Every rank has all samples, and skips too.
            if minibatch.has_learning_signal:
                yield minibatch, self.pack(minibatch)

    def pack(self, minibatch: TextSamples) -> list[TextBatch]:
        """Lay this rank's share of a minibatch end to end, and count its work.

        Args:
            minibatch: The samples of an optimizer step, over all ranks.
        """
        groups = self.planner.groups(minibatch)
        cost = sum(group.cost for group in groups)
        flops = self.flops.of_training(cost, sum(len(response) for response in minibatch.responses))
        self.work += Work(sum(minibatch.lengths), flops)
        batches = self.planner.pack(minibatch, self.planner.plan(minibatch, groups))
        if self.experts is None:
            return batches
        return self.experts.training(batches, minibatch, num_replicas=self.engine.world_size)

    def forward_backward(self, batches: Sequence[TextBatch]) -> MetricSums:
        """Accumulate the gradient of one minibatch.

        Args:
            batches: This rank's micro-batches of it; see ``pack``.

        Returns:
            This rank's metric sums.
        """
        algorithm, engine = self.cfg.algorithm, self.engine
        denominators = text_denominators(
            batches,
            max_tokens=self.max_response_tokens,
            data_parallel_size=engine.world_size,
            all_reduce=engine.all_reduce,
        )

        def call(model: nn.Module, batch: TextBatch) -> TokenEvaluation:
            return evaluate_tokens(model, batch, algorithm=algorithm)

        def use(result: TokenEvaluation, batch: TextBatch) -> Loss:
            return text_loss(result, batch, denominators, algorithm=algorithm)

        return engine.forward_backward(batches, Pass(call, use))

    def learn_values(self, minibatch: TextSamples) -> dict[str, float]:
        """Make a critic of its own learn from a minibatch; return its report, the same on every rank.

        Args:
            minibatch: The samples of an optimizer step, over all ranks.
        """
        return {}
