"""What a learner does with the experts of its model: replay their routes, balance their load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from rlinf.config.schema.train import TextActorConfig
from rlinf.errors import ConfigError
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.models.language.expert_routing import ExpertRouting, ExpertSizes, balance_factors, expert_loads, token_counts
from rlinf.models.language.language_model import LanguageModel
from rlinf.workers.actor.text_samples import TextBatch, TextSamples


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """Replay and balance of a recipe.

    Attributes:
        sizes: Of the model.
        replays: Whether training passes take the recorded routes.
        coefficient: Of the balance loss.
    """

    sizes: ExpertSizes
    replays: bool
    coefficient: float

    @classmethod
    def of(cls, engine: TrainEngine, actor: TextActorConfig) -> ExpertUse | None:
        """Return what a recipe wants; None if it wants nothing.

        Args:
            engine: Holds the model.
            actor: The ``actor`` section.

        Raises:
            ConfigError: The model has no experts, or routers that take no routes.
        """
        if actor.routing_replay == "none" and not actor.moe_aux_loss_coeff:
            return None
        model = engine.model
        assert isinstance(model, LanguageModel)
        sizes = ExpertSizes.of(model.hf_config)
        if sizes is None or not model.can_share_prompts:
            key = "moe_aux_loss_coeff" if actor.routing_replay == "none" else "routing_replay"
            raise ConfigError(
                f"actor.{key}: '{model.cfg.model_path}' is a {model.hf_config.model_type} with attn_implementation="
                f"{model.cfg.attn_implementation}; known are the experts of qwen3_moe, with attn_implementation=sdpa. "
                "Remove the key."
            )
        return cls(sizes, actor.routing_replay != "none", actor.moe_aux_loss_coeff)

    def recording(self, batches: Sequence[TextBatch]) -> list[TextBatch]:
        """Return micro-batches whose pass records where tokens go."""
        return [
            replace(
                batch,
                routing=ExpertRouting(
                    self.sizes, recorded=self.sizes.no_routes(batch.packed.num_tokens).to(batch.packed.token_ids.device)
                ),
            )
            for batch in batches
        ]

    def training(self, batches: Sequence[TextBatch], minibatch: TextSamples, *, num_replicas: int) -> list[TextBatch]:
        """Return micro-batches whose pass replays and balances.

        Args:
            batches: This rank's.
            minibatch: The samples of the optimizer step, over all ranks, with their routes.
            num_replicas: Data-parallel ranks.
        """
        assert minibatch.routes is not None
        balance = None
        if self.coefficient:
            routes = torch.cat(list(minibatch.routes))
            balance = balance_factors(routes, self.sizes, coefficient=self.coefficient, num_replicas=num_replicas)
        return [self._steered(batch, balance) for batch in batches]

    def metrics(self, samples: TextSamples) -> dict[str, float]:
        """Return how unequally tokens are spread over experts: 1 is equal; of a layer and expert most and least."""
        assert samples.routes is not None
        loads = expert_loads(torch.cat(list(samples.routes)), self.sizes) * self.sizes.num_experts
        return {"expert_load_max": float(loads.max()), "expert_load_min": float(loads.min())}

    def _steered(self, batch: TextBatch, balance: torch.Tensor | None) -> TextBatch:
        device = batch.packed.token_ids.device
        counts = None
        if balance is not None:
            counts = token_counts(batch.packed).to(device) * float(not batch.is_padding)
            balance = balance.to(device)
        routing = ExpertRouting(
            self.sizes, replayed=batch.routes if self.replays else None, balance=balance, counts=counts
        )
        return replace(batch, routing=routing)
