"""The inference worker: recomputes log-probabilities of answers while others are generated."""

from __future__ import annotations

from typing import Any

import torch

from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.answers import Answer
from rlinf.data.routing import sources
from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket import Manifest
from rlinf.scheduler import Worker
from rlinf.workers.inference.answer_evaluator import AnswerEvaluator
from rlinf.workers.streams import WEIGHTS


class InferenceWorker(Worker):
    """One rank of the inference group; it holds the whole model.

    Calls are served in the order in which they are made: what is asked before a sync is computed before it.

    Args:
        cfg: The recipe; it has a section ``inference``.
        num_actor_workers: World size of the actor group.
    """

    def __init__(self, cfg: ReasoningConfig, num_actor_workers: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.actor_rank = sources(self._rank, num_actor_workers, self._world_size).peers[0]
        self.evaluator: AnswerEvaluator

    def init_worker(self) -> None:
        """Build the model; its weights come from the actor."""
        self.evaluator = AnswerEvaluator(self.cfg, torch.device(self.device))
        self.at_shutdown(self.evaluator.engine.close)

    @Worker.timer("sync_weights")
    def sync_model_from_actor(self, *, version: int) -> None:
        """Receive weights from the actor and load them.

        Args:
            version: The version to receive.

        Raises:
            WeightSyncError: Another version came, or a bucket is damaged or missing.
        """
        manifest: Manifest = self._receive()
        if manifest.version != version:
            raise WeightSyncError(f"Expected weights of version {version}, received version {manifest.version}.")
        self.evaluator.engine.onload()
        self.evaluator.load(manifest, self._receive)

    @Worker.timer("evaluate")
    def evaluate(self, answers: list[Answer]) -> list[Answer]:
        """Compute the log-probabilities of answers.

        Args:
            answers: Drawn with the present weights.

        Returns:
            The same with ``trainer_logprobs``.
        """
        return self.evaluator.evaluate(answers)

    def sleep(self) -> None:
        """Move the weights to host memory; they come back with the next ones."""
        self.evaluator.engine.offload()

    def _receive(self) -> Any:
        return self.recv(self.cfg.actor.group_name, self.actor_rank, tag=WEIGHTS)
