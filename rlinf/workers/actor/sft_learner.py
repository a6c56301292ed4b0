"""Supervised fine-tuning: learning given responses, and the loss on held-out ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn

from rlinf.config.schema.root import SftConfig
from rlinf.data.datasets.examples import Example
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.models.language.language_model import TokenEvaluation
from rlinf.workers.actor.text_samples import TextBatch, TextSamples, evaluate_tokens
from rlinf.workers.actor.token_learner import TokenLearner


class SftLearner(TokenLearner[Sequence[Example]]):
    """Improves a language model on examples; see ``TokenLearner``."""

    cfg: SftConfig

    @property
    def max_response_tokens(self) -> int:
        """See ``TokenLearner``."""
        return self.cfg.data.max_length

    def minibatches(self, count: int, step: int) -> Iterator[Sequence[int]]:
        """See ``TokenLearner``: in the order in which they were sampled, which is a shuffle already."""
        del step
        size = self.cfg.actor.global_batch_size
        for start in range(0, count, size):
            yield range(start, min(start + size, count))

    def compute_advantages(self, batch: Sequence[Example]) -> dict[str, float]:
        """See ``Learner``: examples have no advantages; the update uses them as they are."""
        self.samples = _samples(batch)
        return {}

    def evaluate(self, batch: Sequence[Example]) -> dict[str, float]:
        """Return the loss and the accuracy of the model's predictions on examples.

        Args:
            batch: At least as many examples as ranks.

        Returns:
            ``loss``, the mean negative log-likelihood of a learned token, and ``token_accuracy``, the share of them
            that is the most likely token; over all ranks.
        """
        samples = _samples(batch)
        batches = self.planner.pack(samples, self.planner.plan(samples))

        def call(model: nn.Module, batch: TextBatch) -> TokenEvaluation:
            return evaluate_tokens(model, batch, algorithm=self.cfg.algorithm, with_top=True)

        def use(found: TokenEvaluation, batch: TextBatch) -> torch.Tensor:
            assert found.is_top is not None
            mask = batch.tokens["loss_mask"]
            return torch.stack([-found.logprobs[mask].double().sum(), found.is_top[mask].sum(), mask.sum()])

        sums = torch.stack(self.engine.forward(batches, Pass(call, use))).sum(dim=0)
        loss, right, count = self.engine.all_reduce(sums).tolist()
        return {"loss": loss / count, "token_accuracy": right / count}


def _samples(examples: Sequence[Example]) -> TextSamples:
    has_images = any(example.images for example in examples)
    return TextSamples(
        prompts=tuple(example.prompt_ids for example in examples),
        responses=tuple(torch.tensor(example.answer_ids) for example in examples),
        tokens={"loss_mask": tuple(torch.tensor(example.loss_mask, dtype=torch.bool) for example in examples)},
        images=tuple(example.images for example in examples) if has_images else (),
    )
