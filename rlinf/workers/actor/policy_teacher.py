"""A frozen second policy, which says how likely it finds the actions that the policy took."""

from __future__ import annotations

from pathlib import Path

import torch

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.schema.teacher import PolicyTeacherConfig
from rlinf.config.schema.train import OptimConfig
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.state import load_weights
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.models import get_policy
from rlinf.workers.actor.policy_passes import compute_logprobs
from rlinf.workers.values import num_values


class PolicyTeacher:
    """Computes log-probabilities of actions under ``algorithm.teacher``; all ranks call every method together.

    Args:
        engine: Holds the teacher.
        cfg: The ``algorithm.teacher`` section.
    """

    def __init__(self, engine: TrainEngine, *, cfg: PolicyTeacherConfig) -> None:
        self.engine, self.cfg = engine, cfg

    @classmethod
    def beside(cls, policy: TrainEngine, cfg: EmbodiedConfig) -> PolicyTeacher:
        """Build the teacher on the ranks of a policy's engine.

        Args:
            policy: Has joined the process group.
            cfg: The recipe, with ``algorithm.teacher``.

        Raises:
            CheckpointError: Its weights are not there, or are those of another model.
        """
        section = cfg.algorithm.teacher
        assert section is not None
        model_cfg = section.model_beside(cfg.actor.model)
        model = get_policy(model_cfg, num_values=num_values(cfg), on_meta=True)
        engine = FSDPEngine(
            model,
            # Never stepped: no moments are allocated.
            optim=OptimConfig(),
            fsdp=cfg.actor.fsdp_config,
            precision=model_cfg.precision,
            device=policy.device,
            rank=policy.rank,
            world_size=policy.world_size,
        )
        if section.ckpt_path is not None:
            load_weights(Path(section.ckpt_path), model)
        if section.enable_offload:
            engine.offload()
        return cls(engine, cfg=section)

    def logprobs(self, inputs: dict[str, torch.Tensor], *, micro_batch_size: int) -> torch.Tensor:
        """Return float [N, C, A] log-probabilities of the actions that inputs of a policy hold, on its device.

        Args:
            inputs: Tensors [N, ...] on the host, as the policy records them.
            micro_batch_size: Samples of a forward pass; all ranks have equally many samples.
        """
        self.engine.onload()
        found = compute_logprobs(self.engine, inputs, micro_batch_size=micro_batch_size)
        if self.cfg.enable_offload:
            self.engine.offload()
        return found
