"""A copy of the actor's model that tells how likely answers are, with the actor's own code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.answers import Answer
from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.train import train_engines
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.hybrid_engines.weights.bucket import Manifest
from rlinf.hybrid_engines.weights.update import WeightUpdate
from rlinf.models import get_model
from rlinf.models.causal_lm import CausalLM
from rlinf.workers.actor.answer_evaluation import PassPlanner, evaluate_answers


class AnswerEvaluator:
    """Computes log-probabilities of answers under the weights that drew them.

    The engine is that of the actor, as if it had one rank: it rounds as the actor does.

    Attributes:
        version: Of the weights; -1 until they are complete.

    Args:
        cfg: The recipe; it has a section ``inference``.
        device: Where to compute.
    """

    def __init__(self, cfg: ReasoningConfig, device: torch.device) -> None:
        assert cfg.inference is not None
        actor, runner, section = cfg.actor, cfg.runner, cfg.inference
        model = get_model(actor.model)
        assert isinstance(model, CausalLM)
        self._names = {name for name in model.state_dict() if not model.is_training_only(name)}
        self._adapters = {name for name in self._names if model.is_adapter(name)}
        self._algorithm = cfg.algorithm
        self.engine: TrainEngine = train_engines.get(actor.training_backend)(
            model.requires_grad_(False),
            optim=None,
            fsdp=actor.fsdp_config,
            precision=actor.model.precision,
            device=device,
        )
        self._planner = PassPlanner.of(
            self.engine,
            runner,
            max_tokens=section.max_tokens_per_mbs or runner.max_tokens_per_mbs,
            max_samples=section.micro_batch_size or actor.micro_batch_size,
        )
        self.version = -1

    def load(self, manifest: Manifest, receive: Callable[[], torch.Tensor]) -> None:
        """Load weights, or adapters alone, bucket by bucket.

        Args:
            manifest: What the sender announced.
            receive: Returns the next bucket, in the manifest's order.

        Raises:
            WeightSyncError: They are not the model's, a bucket is damaged, the version is an older one, or adapters
                came first. Nothing is computed any more until an update is complete.
        """
        update = WeightUpdate(manifest, current_version=self.version)
        if manifest.is_partial and self.version < 0:
            raise WeightSyncError(
                f"Adapters of version {manifest.version} came without what they are added to. Send all weights first."
            )
        self.version = -1
        names = {entry.name for entry in manifest.entries}
        expected = self._adapters if manifest.is_partial else self._names
        if names != expected:
            missing, extra = sorted(expected - names), sorted(names - expected)
            raise WeightSyncError(f"Weights do not match the model: missing {missing}, unexpected {extra}.")
        for index in range(len(manifest.bucket_sizes)):
            self.engine.import_weights(update.take(index, receive()))
        update.finish()
        self.version = manifest.version

    def evaluate(self, answers: Sequence[Answer]) -> list[Answer]:
        """Compute the log-probabilities of all tokens.

        Args:
            answers: At least one; drawn with the present weights.

        Returns:
            The same with ``trainer_logprobs``.

        Raises:
            WeightSyncError: The present weights are not those that drew the answers, or there are none.
        """
        drawn = {version for answer in answers for version in answer.versions}
        if drawn != {self.version} or self.version < 0:
            raise WeightSyncError(
                f"Answers were drawn with weights of version {', '.join(map(str, sorted(drawn)))}; the inference group "
                f"has version {self.version}. Synchronise the weights of both groups together."
            )
        logprobs, _ = evaluate_answers(self.engine.model, answers, planner=self._planner, algorithm=self._algorithm)
        return [
            dataclasses.replace(answer, trainer_logprobs=tuple(found.tolist()))
            for answer, found in zip(answers, logprobs, strict=True)
        ]
