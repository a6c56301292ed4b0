"""What the actors of language models share: an engine that holds the model, weights that are handed on and saved."""

from __future__ import annotations

import abc
import collections
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic

import torch

from rlinf.config.schema.root import LanguageConfig
from rlinf.hybrid_engines.inference import DTYPES
from rlinf.hybrid_engines.train import train_engines
from rlinf.hybrid_engines.train.base import TrainEngine
from rlinf.hybrid_engines.train.state import load_weights
from rlinf.models import get_model
from rlinf.models.causal_lm import CausalLM
from rlinf.models.hf_folder import write_hf_folder
from rlinf.models.trainable import WeightForm
from rlinf.scheduler import Worker
from rlinf.telemetry.devices import device_peak_flops
from rlinf.utils.seeding import derive_seed
from rlinf.workers.actor.publishing import WeightPublisher
from rlinf.workers.actor.token_learner import ConfigT, TokenLearner


class LanguageActor(Worker, abc.ABC, Generic[ConfigT]):
    """One data-parallel rank of the actor.

    Attributes:
        learner: What the model learns with.

    Args:
        cfg: The recipe.
        receivers: World sizes of the groups that take its weights, by their names.
    """

    learner: TokenLearner[Any]

    def __init__(self, cfg: ConfigT, receivers: Mapping[str, int]) -> None:
        super().__init__()
        self.cfg = cfg
        self.publisher: WeightPublisher | None = None
        if receivers:
            bucket_bytes = cfg.weight_syncer.bucket.bucket_size
            self.publisher = WeightPublisher(self, receivers=receivers, bucket_bytes=bucket_bytes)
        self.engine: TrainEngine

    @abc.abstractmethod
    def build_learner(self, reference: CausalLM | None) -> None:
        """Build what the model learns with, once the engine is there.

        Args:
            reference: Frozen copy of the initial model, where one is needed that is not within the model itself.
        """

    def init_worker(self) -> None:
        """Load the model and build its engine."""
        actor, device = self.cfg.actor, torch.device(self.device)
        torch.manual_seed(derive_seed(actor.seed, "actor", "initial weights"))
        model = _load_model(self.cfg)
        reference = None
        if self.cfg.algorithm.needs_reference and not model.cfg.is_lora:
            reference = _load_model(self.cfg).to(device).eval().requires_grad_(False)
        self.engine = train_engines.get(actor.training_backend)(
            model,
            optim=actor.optim,
            fsdp=actor.fsdp_config,
            precision=actor.model.precision,
            device=device,
            rank=self._rank,
            world_size=self._world_size,
        )
        self.at_shutdown(self.engine.close)
        self.build_learner(reference)

    @Worker.timer("sync_weights")
    def sync_model_to_rollout(self, *, version: int, is_partial: bool = False) -> None:
        """Send the weights to the ranks of rollout and inference that this rank serves.

        Args:
            version: Step of the run that produced them.
            is_partial: Whether all receivers have what adapters are added to, so that only adapters are sent.
        """
        assert self.publisher is not None
        form: WeightForm = "merged"
        if self.cfg.actor.model.is_lora:
            form = "adapters" if is_partial else "parts"
        self.engine.onload()
        self.publisher.publish(self.engine, version=version, form=form)
        if self.cfg.actor.enable_offload:
            self.engine.offload()

    @Worker.timer("training")
    def run_training(self, *, step: int) -> dict[str, float]:
        """Update the model on what has been prepared.

        Args:
            step: Step of the run, from 1.

        Returns:
            Metrics over all ranks, under ``train/``, and how fast it went, under ``time/actor/``.
        """
        started = time.perf_counter()
        metrics = {f"train/{name}": value for name, value in self.learner.update(step).items()}
        return metrics | self._speed(time.perf_counter() - started)

    def _speed(self, seconds: float) -> dict[str, float]:
        """Return what each device has got through, and which share that is of what it is made for, where known."""
        actor, work = self.cfg.actor, self.learner.work
        device_seconds = seconds * self._world_size
        metrics = {"time/actor/tokens_per_second_per_device": work.tokens / device_seconds}
        precision = actor.fsdp_config.mixed_precision.param_dtype or actor.model.precision
        peak = device_peak_flops(torch.device(self.device), precision)
        return metrics if peak is None else metrics | {"time/actor/mfu": work.flops / device_seconds / peak}

    def save_checkpoint(self, path: str) -> None:
        """Write weights, optimizers and counters under ``path``."""
        self.engine.onload()
        self.engine.save(Path(path))
        if self.cfg.actor.enable_offload:
            self.engine.offload()

    @Worker.timer("save_hf")
    def save_hf(self, path: str) -> None:
        """Write the model under ``path`` as transformers loads it: ``actor.model.model_path`` of another run."""
        self.engine.onload()
        weights = self.engine.export_weights()
        if self._rank == 0:
            assert isinstance(self.engine.model, CausalLM)
            dtype = DTYPES[self.cfg.actor.model.precision]
            write_hf_folder(Path(path), self.engine.model, weights, dtype=dtype)
        else:
            # Every rank has its part in making tensors whole.
            collections.deque(weights, maxlen=0)
        if self.cfg.actor.enable_offload:
            self.engine.offload()

    def load_checkpoint(self, path: str) -> None:
        """Continue from what ``save_checkpoint`` wrote, under any number of ranks."""
        self.engine.load(Path(path))


def _load_model(cfg: LanguageConfig) -> CausalLM:
    model = get_model(cfg.actor.model)
    assert isinstance(model, CausalLM)
    if cfg.runner.ckpt_path is not None:
        load_weights(Path(cfg.runner.ckpt_path), model)
    return model
