"""The actor: an engine that holds the model, the learner that the recipe asks for, and weights that are published."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rlinf.config.schema.root import EmbodiedConfig, ReasoningConfig, RLinfConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.data.messages.routing import sources
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.hybrid_engines.train import train_engines
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.models import get_model, get_policy
from rlinf.models.files.peft_folder import ADAPTER_FOLDER, write_adapter
from rlinf.models.language.hf_folder import write_hf_folder
from rlinf.models.language.language_model import LanguageModel
from rlinf.models.trainable import TrainableModel, WeightForm
from rlinf.scheduler import Worker
from rlinf.telemetry.devices import device_peak_flops
from rlinf.utils.seeding import derive_seed
from rlinf.workers.actor.learner import Learner, learners, staleness
from rlinf.workers.actor.step_dump import STATE_FOLDER, write_batch
from rlinf.workers.actor.weight_publisher import WeightPublisher
from rlinf.workers.reward.response_client import ResponseClient
from rlinf.workers.streams import TRAJECTORIES, collecting_group
from rlinf.workers.values import num_values


class ActorWorker(Worker):
    """One data-parallel rank of the actor.

    Args:
        cfg: The recipe.
        receivers: World sizes of the groups that take its weights, by their names.
        num_collecting_workers: World size of the group that collects trajectories; 0 where batches come with the calls.
    """

    def __init__(self, cfg: RLinfConfig, receivers: Mapping[str, int], num_collecting_workers: int = 0) -> None:
        super().__init__()
        self.cfg = cfg
        self.num_collecting_workers = num_collecting_workers
        precision = cfg.published_precision
        dtype = None if precision is None else DTYPES[precision]
        self.publisher = WeightPublisher(self, receivers=receivers, cfg=cfg.weight_syncer, dtype=dtype)
        self.engine: TrainEngine
        self.learner: Learner[Any]
        self.responses: ResponseClient | None = None
        self.batch: Any = None
        self.version = 0

    def init_worker(self) -> None:
        """Build model, engine and learner; equal on every rank, for any number of ranks."""
        torch.manual_seed(derive_seed(self.cfg.actor.seed, "actor", "initial weights"))
        model = _build_model(self.cfg)
        self.learner = learners.get(self.cfg.learner).build(model, self._make_engine, cfg=self.cfg)
        self.at_shutdown(self.learner.close)

    def _make_engine(self, model: TrainableModel) -> TrainEngine:
        actor = self.cfg.actor
        engine: type[TrainEngine] = train_engines.get(actor.training_backend)
        self.engine = engine.of(
            model, actor, device=torch.device(self.device), rank=self._rank, world_size=self._world_size
        )
        self.at_shutdown(self.engine.close)
        if self.cfg.runner.ckpt_path is not None:
            # It imports sharded training, which the driver, who imports this module, does without.
            from rlinf.hybrid_engines.train.state import load_weights

            load_weights(Path(self.cfg.runner.ckpt_path), model)
        return self.engine

    @Worker.timer("sync_weights")
    def sync_model_to_rollout(self, *, version: int, is_partial: bool = False) -> None:
        """Send the weights that this rank owns to all receiving ranks.

        Args:
            version: Step of the run that produced them.
            is_partial: Whether all receivers have what never changes, so that only what is trained is sent.
        """
        self.version = version
        form: WeightForm = "trained" if is_partial else "parts"
        with self._on_device():
            self.publisher.publish(self.engine, version=version, form=form)

    @Worker.timer("receive_trajectories")
    def recv_rollout_trajectories(self) -> None:
        """Collect this rank's share of the rollout, in an order that does not depend on who is first."""
        assert isinstance(self.cfg, EmbodiedConfig)
        messages = self.cfg.env.train.rollout_epoch * self.cfg.rollout.pipeline_stage_num
        group = collecting_group(self.cfg)
        peers = sources(self._rank, self.num_collecting_workers, self._world_size).peers
        parts = [self.recv(group, peer, tag=TRAJECTORIES) for _ in range(messages) for peer in peers]
        self.batch = Trajectory.concat(parts)

    @Worker.timer("receive_responses")
    def recv_responses(self, group_ids: Sequence[int]) -> None:
        """Fetch the step's responses from the ranks of the reward group; every rank gets all of them.

        Args:
            group_ids: Their groups' numbers, in the order in which the learner takes them.
        """
        assert isinstance(self.cfg, ReasoningConfig)
        if self.responses is None:
            self.responses = ResponseClient(self.cfg.reward.group_name)
        self.batch = self.responses.fetch(group_ids)

    def compute_advantages(self, batch: Any = None, *, dump: str | None = None) -> dict[str, float]:
        """Take a step's batch, and compute what its update needs.

        Args:
            batch: What the learner takes, the same on every rank; None takes what has been received.
            dump: Folder to write the batch to, and the state that the step starts from; None writes nothing.

        Returns:
            Metrics over all ranks, under ``rollout/``.
        """
        with self.worker_timer("advantages" if isinstance(self.cfg, EmbodiedConfig) else "prepare"):
            if batch is None:
                batch, self.batch = self.batch, None
            self.engine.onload()
            if dump is not None:
                self.learner.save(Path(dump) / STATE_FOLDER)
                write_batch(Path(dump), batch, version=self.version, rank=self._rank)
            metrics = self.learner.compute_advantages(batch)
            versions = self.learner.behaviour_versions(batch)
            if versions is not None:
                metrics |= staleness(self.engine, self.version - versions)
        return {f"rollout/{name}": value for name, value in metrics.items()}

    @Worker.timer("training")
    def run_training(self, *, step: int) -> dict[str, float]:
        """Update the model on the step's batch.

        Args:
            step: Step of the run, from 1.

        Returns:
            Metrics over all ranks, under ``train/`` (those of the rollout under ``rollout/``), and the speed where the
            learner counts its work, under ``time/actor/``.
        """
        self.engine.onload()
        started = time.perf_counter()
        found = self.learner.update(step)
        metrics = {name if name.startswith("rollout/") else f"train/{name}": value for name, value in found.items()}
        return metrics | self._speed(time.perf_counter() - started)

    def _speed(self, seconds: float) -> dict[str, float]:
        """Return tokens per second and device, and the share of the device's peak operations, where known."""
        actor, work = self.cfg.actor, self.learner.work
        if work is None:
            return {}
        device_seconds = seconds * self._world_size
        metrics = {"time/actor/tokens_per_second_per_device": work.tokens / device_seconds}
        precision = actor.fsdp_config.mixed_precision.param_dtype or actor.model.precision
        peak = device_peak_flops(torch.device(self.device), precision)
        return metrics if peak is None else metrics | {"time/actor/mfu": work.flops / device_seconds / peak}

    @Worker.timer("evaluation")
    def evaluate(self, batch: Any) -> dict[str, float]:
        """Return metrics of the model on a batch, over all ranks, without learning from it.

        Args:
            batch: What the learner takes, the same on every rank.
        """
        with self._on_device():
            return self.learner.evaluate(batch)

    @Worker.timer("publish")
    def publish(self, folder: str) -> None:
        """Write the model into the folder of a checkpoint as others read it; see ``Learner``."""
        with self._on_device():
            self.learner.publish(Path(folder))

    @Worker.timer("labels")
    def label(self, tag: str) -> dict[str, float]:
        """Write what the model says of recorded frames next to them; see ``Learner``.

        Args:
            tag: Names the labels.
        """
        with self._on_device():
            return self.learner.label(tag)

    @Worker.timer("save_checkpoint")
    def save_checkpoint(self, path: str) -> None:
        """Write weights, optimizers, counters and replay under ``path``; see ``runner.async_save``."""
        with self._on_device():
            self.learner.save(Path(path), in_background=self.cfg.runner.async_save)

    def finish_checkpoint(self, *, wait: bool = True) -> bool:
        """End the checkpoint that is being written in the background, if there is one.

        Args:
            wait: Until it is written; else it is ended only if all ranks have written.

        Returns:
            Whether nothing is under way any more.
        """
        return self.engine.finish_save(wait=wait)

    @Worker.timer("save_hf")
    def save_hf(self, path: str) -> None:
        """Write a language model under ``path`` as transformers loads it: ``actor.model.model_path`` of another run.

        Adapters are merged in; in the folder ``adapter`` next to it they stand alone, as ``peft`` loads them.
        """
        with self._on_device():
            model, dtype = self.engine.model, DTYPES[self.cfg.actor.model.precision]
            assert isinstance(model, LanguageModel)
            weights = self.engine.export_weights(dtype=dtype)
            if self.engine.is_main:
                write_hf_folder(Path(path), model, weights, dtype=dtype)
            # Every rank has its part in making tensors whole.
            collections.deque(weights, maxlen=0)
            if model.cfg.is_lora:
                adapters = self.engine.export_weights("adapters")
                if self.engine.is_main:
                    write_adapter(Path(path).with_name(ADAPTER_FOLDER), adapters, model.cfg)
                collections.deque(adapters, maxlen=0)

    def load_checkpoint(self, path: str) -> None:
        """Continue from what ``save_checkpoint`` wrote, under any number of ranks."""
        self.learner.load(Path(path))

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Bring the engine to its device; take it back to the host where the recipe says so."""
        self.engine.onload()
        yield
        if self.cfg.actor.enable_offload:
            self.engine.offload()


EmbodiedActor = EmbodiedFSDPActor = LanguageActor = TextActor = SftActor = ActorWorker
"""Former names."""


def _build_model(cfg: RLinfConfig) -> TrainableModel:
    if isinstance(cfg, EmbodiedConfig):
        return get_policy(cfg.actor.model, num_values=num_values(cfg), on_meta=True)
    return get_model(cfg.actor.model, on_meta=True)
