"""Reinforcement learning of a language model from its own responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from rlinf.algorithms.minibatch import plan_minibatches
from rlinf.algorithms.types import Ragged, finalize_metrics
from rlinf.config.schema.root import ReasoningConfig, RLinfConfig
from rlinf.data.messages.responses import ResponseBatch
from rlinf.errors import NumericalError
from rlinf.hybrid_engines.train.train_engine import Pass, TrainEngine
from rlinf.models.language.language_model import LanguageModel, TokenEvaluation
from rlinf.workers.actor.expert_use import ExpertUse
from rlinf.workers.actor.learner import REFERENCE
from rlinf.workers.actor.logprobs import Evaluated, compute_logprobs
from rlinf.workers.actor.text_critic import TextCritic
from rlinf.workers.actor.text_samples import TextBatch, TextSamples, evaluate_tokens, make_text_samples
from rlinf.workers.actor.text_teacher import TextTeacher
from rlinf.workers.actor.token_learner import TokenLearner


class TextLearner(TokenLearner[ResponseBatch]):
    """Improves a language model on its own responses.

    Every rank holds all responses of a step, so advantages need no communication.

    Args:
        engine: Holds the model.
        cfg: The recipe.
    """

    cfg: ReasoningConfig

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        assert isinstance(cfg, ReasoningConfig)
        super().__init__(engine, cfg=cfg)
        self.teacher = None if cfg.algorithm.teacher is None else TextTeacher.beside(engine, cfg)
        # Adapters are switched off instead.
        if cfg.algorithm.needs_reference and self.teacher is None and not cfg.actor.model.is_lora:
            engine.remember(REFERENCE)
        self.critic = TextCritic.beside(engine, cfg) if cfg.critic.use_critic_model else None

    def compute_advantages(self, batch: ResponseBatch) -> dict[str, float]:
        """See ``Learner``: also computes log-probabilities, unless an inference group has, and values."""
        algorithm = self.cfg.algorithm
        trainer: Ragged | None = None
        values: Ragged | None = None
        routes: Ragged | None = None
        if self.cfg.inference is not None:
            assert batch.trainer_logprobs is not None
            trainer = batch.split(batch.trainer_logprobs)
        elif not algorithm.old_logprobs_in_update and (
            algorithm.recompute_logprobs or self.cfg.actor.model.add_value_head
        ):
            trainer, values, routes = self._evaluate(batch, experts=self.experts)
        if self.critic is not None:
            values = self.critic.values(batch)
        self.samples, metrics = make_text_samples(
            batch,
            algorithm=algorithm,
            trainer_logprobs=trainer if algorithm.recompute_logprobs else None,
            ref_logprobs=self._reference_logprobs(batch),
            values=values,
        )
        if routes is None and self.experts is not None:
            routes = self.experts.known(batch)
        self.samples = replace(self.samples, routes=None if routes is None else tuple(routes))
        if not torch.isfinite(torch.cat(self.samples.tokens["advantages"])).all():
            raise NumericalError("Advantages are not finite: a reward or a value is NaN or infinite. Look at rollout/.")
        return finalize_metrics(metrics)

    def update(self, step: int) -> dict[str, float]:
        """See ``Learner``."""
        with nullcontext() if self.critic is None else self.critic.on_device():
            metrics = super().update(step)
        of_rollout = {name for name in metrics if name.startswith(("mismatch_", "correction_"))}
        return {f"rollout/{name}" if name in of_rollout else name: value for name, value in metrics.items()}

    def packed(self, minibatches: Iterable[TextSamples]) -> Iterator[tuple[TextSamples, list[TextBatch]]]:
        """See ``TokenLearner``: all but the first get what the model says of them before the first update."""
        packed = super().packed(minibatches)
        if not self.cfg.algorithm.old_logprobs_in_update:
            yield from packed
            return
        yield from [
            (minibatch, self._with_old_logprobs(batches) if number else batches)
            for number, (minibatch, batches) in enumerate(packed)
        ]

    def _with_old_logprobs(self, batches: Sequence[TextBatch]) -> list[TextBatch]:
        """Return micro-batches with the log-probabilities of their tokens under the present policy."""
        algorithm = self.cfg.algorithm

        def call(model: nn.Module, batch: TextBatch) -> TokenEvaluation:
            return evaluate_tokens(model, batch, algorithm=algorithm)

        def use(result: TokenEvaluation, _: TextBatch) -> torch.Tensor:
            return result.logprobs

        found = self.engine.forward(batches, Pass(call, use))
        return [
            replace(batch, tokens={**batch.tokens, "old_logprobs": logprobs})
            for batch, logprobs in zip(batches, found, strict=True)
        ]

    def learn_values(self, minibatch: TextSamples) -> dict[str, float]:
        """See ``TokenLearner``."""
        return {} if self.critic is None else self.critic.learn(minibatch)

    def save(self, path: Path, *, in_background: bool = False) -> None:
        """See ``Learner``; a critic of its own is written at once."""
        super().save(path, in_background=in_background)
        if self.critic is not None:
            self.critic.save(path)

    def load(self, path: Path) -> None:
        """See ``Learner``."""
        super().load(path)
        if self.critic is not None:
            self.critic.load(path)

    def behaviour_versions(self, batch: ResponseBatch) -> torch.Tensor:
        """See ``Learner``: of every token that the model sampled."""
        return batch.versions[batch.loss_mask].long()

    @property
    def max_response_tokens(self) -> int:
        """See ``TokenLearner``."""
        return self.cfg.max_own_tokens

    def minibatches(self, count: int, step: int) -> Iterator[Sequence[int]]:
        """See ``TokenLearner``: every epoch goes through all responses, in an order of its own."""
        actor = self.cfg.actor
        for epoch in range(self.cfg.algorithm.update_epoch):
            for minibatch in plan_minibatches(count, actor.global_batch_size, seed=actor.seed, step=step, epoch=epoch):
                yield minibatch.tolist()

    def _evaluate(self, batch: ResponseBatch, *, experts: ExpertUse | None = None) -> Evaluated:
        return compute_logprobs(batch, planner=self.planner, algorithm=self.cfg.algorithm, experts=experts)

    def _reference_logprobs(self, batch: ResponseBatch) -> Ragged | None:
        if not self.cfg.algorithm.needs_reference:
            return None
        if self.teacher is not None:
            return self.teacher.logprobs(batch)
        model = self.engine.model
        assert isinstance(model, LanguageModel)
        with model.without_adapters() if model.cfg.is_lora else self.engine.weights_of(REFERENCE):
            return self._evaluate(batch).logprobs
