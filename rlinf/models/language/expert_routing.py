"""Which experts the tokens of a pack go to: recorded in one pass, replayed in another, and balanced by a loss.

Two passes over the same tokens may route them differently where two experts are almost equally likely: other kernels,
other micro-batches or another precision decide. Replaying the routes of the pass that computed the old
log-probabilities makes the ratio of the first update 1 (routing replay, R2). Replaying those of the engine that sampled
the tokens (rollout routing replay, R3: Ma et al. 2025, arXiv 2510.11370) also takes routing out of the difference
between engine and trainer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rlinf.data.packing import PackedSequences


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """What a model says of its experts.

    Attributes:
        num_layers: Layers; all of them have experts.
        num_experts: Experts of a layer.
        num_chosen: Experts that each token goes to.
        is_normalised: Whether the weights of a token's experts add up to 1.
    """

    num_layers: int
    num_experts: int
    num_chosen: int
    is_normalised: bool

    @classmethod
    def of(cls, hf_config: Any) -> ExpertSizes | None:
        """Return those of a configuration of transformers; None for models whose routers take no routes.

        Args:
            hf_config: Configuration of the whole model.
        """
        if hf_config.model_type != "qwen3_moe" or hf_config.mlp_only_layers or hf_config.decoder_sparse_step != 1:
            return None
        return cls(
            hf_config.num_hidden_layers, hf_config.num_experts, hf_config.num_experts_per_tok, hf_config.norm_topk_prob
        )

    def no_routes(self, num_tokens: int) -> torch.Tensor:
        """Return [num_tokens, layers, chosen] zeros: routes of which none is known."""
        dtype = torch.uint8 if self.num_experts < torch.iinfo(torch.uint8).max else torch.int32
        return torch.zeros(num_tokens, self.num_layers, self.num_chosen, dtype=dtype)


@dataclass(frozen=True, slots=True)
class ExpertRouting:
    """What the routers do in a pass over a pack; tensors are on the model's device.

    Routes are numbers of experts plus 1; 0 is a route that is not known. So parts that several ranks know add up.

    Attributes:
        sizes: Of the model.
        replayed: int [T, layers, chosen]; routes to take; tokens without one are routed by the model. None replays
            none.
        recorded: int [T, layers, chosen]; filled by the pass with the routes of this rank's tokens and layers. None
            records none.
        balance: float32 [layers, experts]; what a token's probability of each expert adds to the loss. None adds
            nothing.
        counts: float32 [T]; how often each token counts in that.
    """

    sizes: ExpertSizes
    replayed: torch.Tensor | None = None
    recorded: torch.Tensor | None = None
    balance: torch.Tensor | None = None
    counts: torch.Tensor | None = None


class RankRouting:
    """The share of a rank in an ``ExpertRouting``.

    Args:
        routing: Of the whole pack.
        tokens: int64 [n]; places in the pack of the tokens that the rank's routers see, -1 for padding.
        scale: Factor on the gradient of the balance loss.
    """

    def __init__(self, routing: ExpertRouting, tokens: torch.Tensor, *, scale: float) -> None:
        self.routing, self.scale = routing, scale
        self.own = (tokens >= 0).nonzero().squeeze(1)
        self.places = tokens[self.own]
        self.routes: torch.Tensor | None = None
        if routing.replayed is not None:
            self.routes = routing.replayed.new_zeros(len(tokens), *routing.replayed.shape[1:])
            self.routes[self.own] = routing.replayed[self.places]
        self.counts: torch.Tensor | None = None
        if routing.counts is not None:
            self.counts = routing.counts.new_zeros(len(tokens))
            self.counts[self.own] = routing.counts[self.places]

    def route(self, layer: int, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights and numbers [n, chosen] of the experts that the tokens go to.

        Args:
            layer: Number of the layer in the whole model, from 0.
            logits: [n, experts]; what the router says of each token.
        """
        sizes, routing = self.routing.sizes, self.routing
        probabilities = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        chosen = probabilities.topk(sizes.num_chosen, dim=-1).indices
        if self.routes is not None:
            known = self.routes[:, layer].long() - 1
            chosen = known.where(known >= 0, chosen)
        if routing.recorded is not None:
            routing.recorded[self.places, layer] = (chosen[self.own] + 1).to(routing.recorded.dtype)
        weights = probabilities.gather(1, chosen)
        if sizes.is_normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        if routing.balance is not None and self.counts is not None and torch.is_grad_enabled():
            loss = self.counts @ (probabilities.float() @ routing.balance[layer])
            weights = _WithLoss.apply(weights, loss * self.scale)  # type: ignore[no-untyped-call]
        return weights.to(logits.dtype), chosen


class _WithLoss(torch.autograd.Function):
    """Returns a tensor as it is; in the backward pass a further loss gets the gradient 1."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        del ctx, loss
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        del ctx
        return grad, torch.ones((), dtype=torch.float32, device=grad.device)


def steer_routers(layers: Iterable[Any]) -> None:
    """Let the plan of a pass say where the routers of a transformers model send tokens.

    A model that is called with ``plan=...`` takes what ``plan.routing`` says, a ``RankRouting`` or None; without a plan
    its routers do as ever. Hooks of submodules run again where a layer is recomputed, and then with the plan of the
    same pass.

    Args:
        layers: Decoder layers, all of which have experts.
    """
    for number, layer in enumerate(layers):
        router: Any = layer.mlp.gate
        router.steered = None

        def steer(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], router: Any = router) -> None:
            plan = keywords.get("plan")
            router.steered = None if plan is None else plan.routing

        def route(router: Any, _: object, output: Any, number: int = number) -> Any:
            if router.steered is None:
                return output
            return (output[0], *router.steered.route(number, output[0]))

        layer.self_attn.register_forward_pre_hook(steer, with_kwargs=True)
        router.register_forward_hook(route)


def expert_loads(routes: torch.Tensor, sizes: ExpertSizes) -> torch.Tensor:
    """Return float32 [layers, experts]: the share of a layer's tokens that goes to each expert; rows add up to 1.

    Args:
        routes: int [N, layers, chosen]; see ``ExpertRouting``. Those that are not known are left out.
        sizes: Of the model.
    """
    layers = torch.arange(sizes.num_layers, device=routes.device).view(1, -1, 1) * (sizes.num_experts + 1)
    numbers = (routes.long() + layers).flatten()
    counts = torch.bincount(numbers, minlength=sizes.num_layers * (sizes.num_experts + 1))
    known = counts.view(sizes.num_layers, -1)[:, 1:].float()
    return known / known.sum(-1, keepdim=True).clamp(min=1)


def balance_factors(routes: torch.Tensor, sizes: ExpertSizes, *, coefficient: float, num_replicas: int) -> torch.Tensor:
    """Return ``ExpertRouting.balance`` of an update batch.

    The loss of a layer is ``coefficient * experts * sum_e f_e * P_e`` (Fedus et al. 2021, equation 4) with the share
    ``f_e`` of tokens that go to expert e and its mean probability ``P_e``. Here ``f_e`` is known before the pass, of
    the whole update batch, so that the loss is a sum over tokens: packing and micro-batches do not change it.

    Args:
        routes: int [N, layers, chosen] of all tokens of the update batch, over all ranks.
        sizes: Of the model.
        coefficient: Of the loss.
        num_replicas: Data-parallel ranks, over which gradients are averaged.
    """
    return coefficient * sizes.num_experts * num_replicas / max(len(routes), 1) * expert_loads(routes, sizes)


def token_counts(packed: PackedSequences) -> torch.Tensor:
    """Return float32 [T]: to how many sequences each token of a pack belongs; more than one for shared prompts."""
    return torch.bincount(packed.places, minlength=packed.num_tokens).float()
