"""The worker that computes log-probabilities with a copy of the actor's model, while other responses are generated."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlinf.config.schema.root import ReasoningConfig
from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.train import train_engines
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.hybrid_engines.weights.bucket import Manifest, WeightUpdate, check_manifest
from rlinf.models import get_model
from rlinf.models.language.language_model import LanguageModel
from rlinf.scheduler import Worker
from rlinf.workers.actor.expert_use import ExpertUse
from rlinf.workers.actor.logprobs import MicroBatchPlanner, compute_logprobs
from rlinf.workers.reward.response_client import ResponseClient
from rlinf.workers.weight_inbox import WeightInbox
from rlinf.workers.weight_syncer import make_weight_syncer


class LogprobWorker(Worker):
    """One rank of the inference group; it holds the model, under the weights that sampled the responses.

    The engine is that of the actor without an optimizer, as if it had one rank: it rounds as the actor does. With
    ``inference.shard_model`` all ranks of the group are those of one engine, spread as the actor's is, and every call
    is made to all of them. Calls are served in the order in which they are made: what is requested before a sync is
    computed before it.

    Attributes:
        version: Of the weights; -1 while they are incomplete.

    Args:
        cfg: The recipe; it has a section ``inference``.
    """

    def __init__(self, cfg: ReasoningConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.inbox = WeightInbox(make_weight_syncer(self, cfg.weight_syncer), cfg.actor.group_name)
        self.version = -1
        self.weights: dict[str, torch.Tensor] = {}
        self.responses = ResponseClient(cfg.reward.group_name)
        self.engine: TrainEngine
        self.planner: MicroBatchPlanner

    def init_worker(self) -> None:
        """Build the model; its weights come from the actor."""
        actor, runner, section = self.cfg.actor, self.cfg.runner, self.cfg.inference
        assert section is not None
        model = get_model(actor.model, on_meta=True)
        assert isinstance(model, LanguageModel)
        sent = {name: tensor for name, tensor in model.state_dict().items() if not model.is_training_only(name)}
        self.weights = {name: tensor.to("meta") for name, tensor in sent.items()}
        engine: type[TrainEngine] = train_engines.get(actor.training_backend)
        self.engine = engine.of(
            model,
            actor,
            device=torch.device(self.device),
            rank=self._rank if section.shard_model else 0,
            world_size=self._world_size if section.shard_model else 1,
            trains=False,
        )
        self.at_shutdown(self.engine.close)
        self.planner = MicroBatchPlanner.of(
            self.engine,
            runner,
            max_tokens=section.max_tokens_per_mbs or runner.max_tokens_per_mbs,
            max_samples=section.micro_batch_size or actor.micro_batch_size,
        )

    @Worker.timer("sync_weights")
    def sync_model_from_actor(self, *, version: int) -> None:
        """Receive weights from the actor and load them.

        Args:
            version: The version to receive.

        Raises:
            WeightSyncError: Another version came, or a bucket is damaged or missing.
        """
        manifest, buckets = self.inbox.take(version)
        self.engine.onload()
        self.load(manifest, buckets)

    def load(self, manifest: Manifest, buckets: Sequence[torch.Tensor]) -> None:
        """Load weights, or what is trained alone, once all of them have been checked.

        Args:
            manifest: What the sender announced.
            buckets: In the manifest's order.

        Raises:
            WeightSyncError: They are not the model's, a bucket is damaged, the version is an older one, or what is
                trained came first. The model is then unchanged.
        """
        update = WeightUpdate(manifest, current_version=self.version)
        check_manifest(manifest, self.weights, self.weights)
        named = [update.take(index, bucket) for index, bucket in enumerate(buckets)]
        version = update.finish()
        self.version = -1
        for part in named:
            self.engine.import_weights(part)
        self.version = version

    @Worker.timer("evaluate")
    def compute_logprobs(self, group_id: int) -> None:
        """Compute the log-probabilities of all tokens of a group, and leave them with the reward rank that keeps it.

        Args:
            group_id: Number of a group that is trained on; sampled with the present weights.

        Raises:
            WeightSyncError: The present weights are not those that sampled the responses, or there are none.
        """
        batch = self.responses.fetch([group_id])
        versions = set(batch.versions[batch.loss_mask].tolist())
        if versions != {self.version} or self.version < 0:
            raise WeightSyncError(
                f"Responses were sampled with weights of version {', '.join(map(str, sorted(versions)))}; the "
                f"inference group has version {self.version}. Synchronise the weights of both groups together."
            )
        experts = ExpertUse.of(self.engine, self.cfg.actor)
        logprobs = compute_logprobs(batch, planner=self.planner, algorithm=self.cfg.algorithm, experts=experts).logprobs
        if self.engine.is_main:
            self.responses.put_trainer_logprobs(group_id, torch.cat(list(logprobs)))

    def sleep(self) -> None:
        """Move the weights to host memory; they come back with the next ones."""
        self.engine.offload()


InferenceWorker = LogprobWorker
"""Former name."""
