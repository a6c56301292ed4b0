"""What a learner does with the experts of its model: replay their routes, balance their load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from rlinf.config.schema.train import TextActorConfig
from rlinf.data.messages.responses import ResponseBatch
from rlinf.errors import ConfigError, EngineError
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.models.language.expert_routing import ExpertRouting, ExpertSizes, balance_factors, expert_loads, token_counts
from rlinf.models.language.language_model import LanguageModel
from rlinf.workers.actor.text_samples import TextBatch, TextSamples


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """Replay and balance of a recipe.

    Attributes:
        sizes: Of the model.
        replays: Whether training passes take routes that are known.
        coefficient: Of the balance loss.
        from_engine: Whether these are the engine's; else those of the pass that recomputes log-probabilities.
    """

    sizes: ExpertSizes
    replays: bool
    coefficient: float
    from_engine: bool = False

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
        return cls(
            sizes,
            replays=actor.routing_replay != "none",
            coefficient=actor.moe_aux_loss_coeff,
            from_engine=actor.routing_replay == "rollout",
        )

    def known(self, batch: ResponseBatch) -> tuple[torch.Tensor, ...] | None:
        """Return the routes that are known before any pass; see ``TextSamples.routes``.

        Raises:
            EngineError: The engine's routes are not those of this model.
        """
        if not self.from_engine:
            return None
        expected, lengths = self.sizes.no_routes(sum(batch.sequence_lengths)), batch.sequence_lengths
        # Without routes all responses were aborted before their first token.
        routes = expected if batch.routes is None else batch.routes
        if routes.shape != expected.shape:
            raise EngineError(
                f"actor.routing_replay=rollout: the engine's routes are {list(routes.shape)} numbers; expected are "
                f"{list(expected.shape)}, of tokens, layers and chosen experts. Correct the generation engine."
            )
        return torch.split(routes, lengths)

    def evaluating(self, batches: Sequence[TextBatch]) -> list[TextBatch]:
        """Return micro-batches whose pass takes the engine's routes, or records where tokens go."""
        if self.from_engine:
            return [self._steered(batch, None) for batch in batches]
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
        """Return how unequally tokens are spread over experts, and how many of their routes are replayed.

        ``expert_load_max`` and ``expert_load_min`` are of the layer and expert with most and least; 1 is equal.
        """
        assert samples.routes is not None
        loads = expert_loads(torch.cat(list(samples.routes)), self.sizes) * self.sizes.num_experts
        found = {"expert_load_max": float(loads.max()), "expert_load_min": float(loads.min())}
        return found | ({"replayed_share": _replayed_share(samples)} if self.replays else {})

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


def _replayed_share(samples: TextSamples) -> float:
    """Return the share of trained tokens whose distribution was computed with a known route.

    That is the route of the token before, which predicts them: of the last token no engine knows one.
    """
    assert samples.routes is not None
    known = torch.cat(
        [
            (routes > 0).flatten(1).all(1)[len(prompt) - 1 : -1]
            for prompt, routes in zip(samples.prompts, samples.routes, strict=True)
        ]
    )
    trained = torch.cat(list(samples.tokens["loss_mask"])).bool()
    return float((known & trained).sum() / trained.sum().clamp(min=1))
