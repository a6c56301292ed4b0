"""The actor of language models that learn from their own answers."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.answers import Answer
from rlinf.models.causal_lm import CausalLM
from rlinf.scheduler import Worker
from rlinf.workers.actor.language_actor import LanguageActor
from rlinf.workers.actor.text_learner import TextLearner


class TextActor(LanguageActor[ReasoningConfig]):
    """One data-parallel rank of the actor; see ``LanguageActor``."""

    learner: TextLearner

    def build_learner(self, reference: CausalLM | None) -> None:
        """See ``LanguageActor``."""
        self.learner = TextLearner(self.engine, cfg=self.cfg, reference=reference)

    @Worker.timer("prepare")
    def prepare(self, answers: Sequence[Answer], *, version: int) -> dict[str, float]:
        """Take the answers of a step: recompute what the trainer thinks of them, and compare within groups.

        Args:
            answers: All answers of the step, whole groups; every rank is given all of them.
            version: Version of the weights that are about to be trained.

        Returns:
            Metrics over all ranks, under ``rollout/``.
        """
        self.engine.onload()
        metrics = self.learner.prepare(answers, version=version)
        return {f"rollout/{name}": value for name, value in metrics.items()}
