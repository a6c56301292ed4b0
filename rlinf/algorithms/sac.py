"""Soft actor-critic with an ensemble of critics, chunks of actions and a tuned temperature (Haarnoja et al., 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rlinf.algorithms.q_learning import aggregate_q, bellman_targets, metric_sums, squared_q_errors
from rlinf.algorithms.types import AllReduce, Metrics, metric_pair
from rlinf.config.schema.algorithm import SACLossConfig
from rlinf.config.schema.optim import AdamWConfig

MakeOptimizer = Callable[[dict[str, list[nn.Parameter]], AdamWConfig], Any]
"""Builds an optimizer of named groups of parameters, as ``ScheduledOptimizer`` is one."""


class Temperature:
    """The weight ``alpha`` of entropy against return, adjusted so that entropy approaches a target.

    Args:
        alpha_type: How ``alpha`` follows from ``raw``: ``softplus`` or ``exp`` of it; ``fixed_alpha`` does not learn.
        initial_alpha: Its start.
        target_entropy: Of a whole chunk of actions.
        device: Where ``raw`` lies.

    Attributes:
        optimizer: Steps ``raw``; None where it does not learn.
    """

    def __init__(self, alpha_type: str, initial_alpha: float, target_entropy: float, device: torch.device) -> None:
        self.optimizer: Any = None
        self.alpha_type = alpha_type
        self.target_entropy = target_entropy
        start = _TRANSFORMS[alpha_type][1](initial_alpha)
        self.raw = nn.Parameter(torch.tensor([start], device=device), requires_grad=self.is_learned)

    @property
    def is_learned(self) -> bool:
        """Whether ``alpha`` moves."""
        return self.alpha_type != "fixed_alpha"

    @property
    def alpha(self) -> torch.Tensor:
        """The temperature, a scalar with a gradient to ``raw``."""
        return _TRANSFORMS[self.alpha_type][0](self.raw).squeeze()

    def loss(self, mean_logprob: torch.Tensor) -> torch.Tensor:
        """Return ``-alpha * (E[log pi] + target_entropy)``, equation 18 of Haarnoja et al. (2018b).

        Args:
            mean_logprob: Scalar; over the batch of all ranks.
        """
        return -self.alpha * (mean_logprob.detach() + self.target_entropy)

    def update(self, metrics: Metrics, all_reduce: AllReduce) -> Metrics:
        """Make one step towards the target entropy, the same on every rank.

        Args:
            metrics: What ``actor_loss`` returned for this rank's share of the update batch.
            all_reduce: Sum over all ranks.

        Returns:
            The metric ``alpha``, as a (sum, count) pair.
        """
        if self.optimizer is not None:
            total, count = all_reduce(metrics["entropy"]).unbind()
            self.raw.grad = None
            self.loss(-total / count).backward()  # type: ignore[no-untyped-call]
            assert self.raw.grad is not None
            self.raw.grad.clamp_(-self.optimizer.cfg.clip_grad, self.optimizer.cfg.clip_grad)
            self.optimizer.step()
        alpha = self.alpha
        return {"alpha": metric_pair(alpha, torch.ones_like(alpha))}

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        state = {"temperature": self.raw.detach()}
        if self.optimizer is None:
            return state
        return state | {
            "temperature_optim": self.optimizer.adam.state_dict(),
            "temperature_steps": self.optimizer.num_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take what ``state_dict`` returned, as far as it is there."""
        if "temperature" in state:
            with torch.no_grad():
                self.raw.copy_(state["temperature"])
        if self.optimizer is not None and "temperature_optim" in state:
            self.optimizer.adam.load_state_dict(state["temperature_optim"])
            self.optimizer.num_steps = state["temperature_steps"]


class SAC:
    """The losses of soft actor-critic; all take and return sums over a micro-batch of ``N`` transitions.

    Args:
        cfg: Keys of the loss.
        action_size: Dimensions of a chunk of actions; minus this is the default of ``target_entropy``.
        device: Where the losses are computed.
        make_optimizer: Builds the temperature's optimizer; None leaves the temperature as it is.
    """

    def __init__(
        self,
        cfg: SACLossConfig,
        *,
        action_size: int,
        device: torch.device,
        make_optimizer: MakeOptimizer | None = None,
    ) -> None:
        self.cfg = cfg
        tuning = cfg.entropy_tuning
        target = float(-action_size) if tuning.target_entropy is None else tuning.target_entropy
        self.temperature = Temperature(tuning.alpha_type, tuning.initial_alpha, target, device)
        if self.temperature.is_learned and make_optimizer is not None:
            self.temperature.optimizer = make_optimizer({"temperature": [self.temperature.raw]}, tuning.optim)

    def next_noise(self, noise: torch.Tensor) -> torch.Tensor:
        """Return standard normal noise as it is: the policy's own spread smooths the targets."""
        return noise

    def critic_loss(
        self,
        *,
        q: torch.Tensor,
        next_q: torch.Tensor,
        next_logprobs: torch.Tensor,
        rewards: torch.Tensor,
        terminated: torch.Tensor,
        lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, Metrics]:
        """Return the squared error of all critics against ``r + gamma^k (1 - terminated) (Q' - alpha log pi')``.

        Args:
            q: float [N, Q], with gradients.
            next_q: float [N, Q], of the target critics.
            next_logprobs: float [N].
            rewards: float [N]; of whole chunks, discounted within.
            terminated: bool [N]; a truncated episode is not terminated, and its last state is bootstrapped from.
            lengths: int [N]; executed actions (``k``).

        Returns:
            The loss, summed over transitions and averaged over critics, and metrics as (sum, count) pairs.
        """
        value = aggregate_q(next_q, self.cfg.agg_q)
        if self.cfg.backup_entropy:
            value = value - self.temperature.alpha.detach() * next_logprobs
        targets = bellman_targets(value, rewards=rewards, terminated=terminated, lengths=lengths, gamma=self.cfg.gamma)
        return squared_q_errors(q, targets)

    def actor_loss(self, *, q: torch.Tensor, logprobs: torch.Tensor) -> tuple[torch.Tensor, Metrics]:
        """Return ``alpha log pi - Q`` of the present policy's actions, summed over transitions.

        Args:
            q: float [N, Q], with gradients through the actions.
            logprobs: float [N], with gradients.

        Returns:
            The loss, and metrics as (sum, count) pairs, among them ``entropy``.
        """
        losses = self.temperature.alpha.detach() * logprobs - aggregate_q(q, self.cfg.actor_agg_q)
        return losses.sum(), metric_sums(actor_loss=losses, entropy=-logprobs)


def _inverse_softplus(alpha: float) -> float:
    return alpha + math.log(-math.expm1(-alpha))


_TRANSFORMS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[float], float]]] = {
    "softplus": (functional.softplus, _inverse_softplus),
    "exp": (torch.exp, math.log),
    "fixed_alpha": (torch.clone, float),
}
"""From the learned number to the temperature, and back."""
