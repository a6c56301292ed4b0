"""The actor of language models that learn given answers."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.config.schema.root import SftConfig
from rlinf.data.examples import Example
from rlinf.models.causal_lm import CausalLM
from rlinf.scheduler import Worker
from rlinf.workers.actor.language_actor import LanguageActor
from rlinf.workers.actor.sft_learner import SftLearner


class SftActor(LanguageActor[SftConfig]):
    """One data-parallel rank of the actor; see ``LanguageActor``."""

    learner: SftLearner

    def build_learner(self, reference: CausalLM | None) -> None:
        """See ``LanguageActor``."""
        del reference
        self.learner = SftLearner(self.engine, cfg=self.cfg)

    @Worker.timer("prepare")
    def prepare(self, examples: Sequence[Example]) -> None:
        """Take the examples of a step.

        Args:
            examples: All of them; every rank is given all.
        """
        self.engine.onload()
        self.learner.prepare(examples)

    @Worker.timer("evaluation")
    def evaluate(self, examples: Sequence[Example]) -> dict[str, float]:
        """Measure how well the model knows examples.

        Args:
            examples: All of them; every rank is given all.

        Returns:
            See ``SftLearner.evaluate``.
        """
        self.engine.onload()
        metrics = self.learner.evaluate(examples)
        if self.cfg.actor.enable_offload:
            self.engine.offload()
        return metrics
