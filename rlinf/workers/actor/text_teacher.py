"""A frozen second language model, whose log-probabilities a policy is compared with."""

from __future__ import annotations

import torch.distributed as dist

from rlinf.algorithms.types import Ragged
from rlinf.config.schema.root import ReasoningConfig
from rlinf.config.schema.train import OptimConfig
from rlinf.data.messages.responses import ResponseBatch
from rlinf.errors import ConfigError
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.models import get_model
from rlinf.models.language.language_model import LanguageModel
from rlinf.workers.actor.logprobs import MicroBatchPlanner, compute_logprobs


class TextTeacher:
    """Computes log-probabilities of responses under ``algorithm.teacher``; all ranks call every method together.

    Args:
        engine: Holds the teacher.
        cfg: The recipe.
    """

    def __init__(self, engine: TrainEngine, *, cfg: ReasoningConfig) -> None:
        self.engine, self.cfg = engine, cfg
        self.planner = MicroBatchPlanner.of(
            engine, cfg.runner, max_tokens=cfg.runner.max_tokens_per_mbs, max_samples=cfg.actor.micro_batch_size
        )

    @classmethod
    def beside(cls, policy: TrainEngine, cfg: ReasoningConfig) -> TextTeacher:
        """Build the teacher on the ranks of a policy's engine.

        Args:
            policy: Has joined the process group.
            cfg: The recipe, with ``algorithm.teacher``.

        Raises:
            ConfigError: Teacher and policy have vocabularies of different sizes.
        """
        section = cfg.algorithm.teacher
        assert section is not None
        model = get_model(section.model, on_meta=True)
        assert isinstance(model, LanguageModel)
        assert isinstance(policy.model, LanguageModel)
        sizes = model.hf_config.vocab_size, policy.model.hf_config.vocab_size
        if sizes[0] != sizes[1]:
            raise ConfigError(
                f"algorithm.teacher.model.model_path: the teacher's vocabulary has {sizes[0]} tokens, that of "
                f"actor.model.model_path {sizes[1]}; tokens are compared by their ids. Choose models of one family."
            )
        engine = FSDPEngine(
            model,
            # Never stepped: no moments are allocated.
            optim=OptimConfig(),
            fsdp=section.fsdp_config,
            precision=section.model.precision,
            device=policy.device,
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
        )
        if section.enable_offload:
            engine.offload()
        return cls(engine, cfg=cfg)

    def logprobs(self, batch: ResponseBatch) -> Ragged:
        """Return float32 [L] log-probabilities of each response's tokens, on every rank."""
        section = self.cfg.algorithm.teacher
        assert section is not None
        self.engine.onload()
        found = compute_logprobs(batch, planner=self.planner, algorithm=self.cfg.algorithm).logprobs
        if section.enable_offload:
            self.engine.offload()
        return found
