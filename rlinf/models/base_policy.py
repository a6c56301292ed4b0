"""The interface between policies and the workers that run and train them."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.errors import AlgorithmError
from rlinf.models.trainable import TrainableModel

Mode = Literal["train", "eval"]
"""``train`` explores; ``eval`` acts greedily: all that may be random is where a flow starts."""


class ForwardType(enum.Enum):
    """What ``BasePolicy.forward`` computes: the method ``<value>_forward``."""

    DEFAULT = "default"
    CRITIC = "critic"
    ACTOR = "actor"
    VELOCITY = "velocity"
    SUPERVISED = "supervised"
    RECONSTRUCTION = "reconstruction"


@dataclass(frozen=True, slots=True)
class PolicyEvaluation:
    """Log-probabilities, entropies and values of given actions under the current policy.

    Attributes:
        logprobs: float32 [N, C, A]; log-probability of each action dimension.
        entropy: float32 [N, C, A]; entropy of each action dimension.
        values: float32 [N, V]; None without a value head.
        greedy: float32 [N, C, A]; the action that evaluation takes, in the units of ``forward_inputs["action"]`` and
            with gradients. None where actions are discrete or the policy cannot compute it.
    """

    logprobs: torch.Tensor
    entropy: torch.Tensor
    values: torch.Tensor | None
    greedy: torch.Tensor | None = None


class BasePolicy(TrainableModel):
    """A policy over chunks of ``C`` actions of ``A`` dimensions, with an optional value head."""

    def forward(self, forward_type: ForwardType = ForwardType.DEFAULT, **kwargs: Any) -> Any:
        """Run the pass that training needs; the only entry that sharding hooks see.

        Args:
            forward_type: Which pass.
            **kwargs: The pass's own arguments.

        Returns:
            The pass's result.
        """
        return getattr(self, f"{forward_type.value}_forward")(**kwargs)

    @abc.abstractmethod
    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """Recompute log-probabilities, entropies and values of ``N`` samples.

        Args:
            forward_inputs: What ``predict_action_batch`` reported, tensors [N, ...].

        Returns:
            The evaluation under the current weights, with gradients.
        """

    @abc.abstractmethod
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """Choose a chunk of actions for each of ``B`` observations.

        Args:
            obs: Batch of observations.
            mode: ``train`` samples, ``eval`` takes the most likely action.
            generator: Source of randomness, on the policy's device. One for a part of a batch is a ``SlotGenerator``:
                draws by the functions of its module do not depend on the part.

        Returns:
            Actions for the environment (float32 [B, C, A], or int64 [B, C] if discrete) and the policy's report.
        """

    def plan_action_batch(self, obs: Observation, *, generator: torch.Generator | None = None) -> torch.Tensor:
        """Return all actions planned for each of ``B`` observations, float32 [B, H, A]; ``H`` is ``C`` or more.

        Only called where ``inference_delay`` of the configuration is not None.

        Args:
            obs: Batch of observations; but for an episode's first ones, with ``previous_actions`` [B, H - C, A], which
                were planned before and have not been executed yet.
            generator: Source of where a flow starts.

        Raises:
            AlgorithmError: The policy cannot go on from what was planned before.
        """
        raise AlgorithmError(
            f"{type(self).__name__} cannot act while it computes: it does not implement plan_action_batch(). Choose "
            "another actor.model.model_type."
        )

    @abc.abstractmethod
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """Return the values of ``B`` observations, float32 [B, V]; only called where there is a value head."""

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the ``forward_inputs`` of actions that another policy chose; only called by losses that imitate.

        Args:
            obs: ``N`` observations.
            actions: float32 [N, C, A] (int64 [N, C] if discrete) as the environment takes them.

        Raises:
            AlgorithmError: The policy cannot learn from such actions.
        """
        former = getattr(self, "recorded_inputs", None)  # what models of plug-ins may still define
        if former is not None:
            inputs: dict[str, torch.Tensor] = former(obs, actions)
            return inputs
        raise AlgorithmError(
            f"{type(self).__name__} cannot learn from recorded actions: it does not implement forward_inputs_of(). "
            "Choose another actor.model.model_type."
        )

    @property
    def num_supervised_actions(self) -> int:
        """Actions after an observation that ``supervised_forward`` compares with what was recorded."""
        raise AlgorithmError(f"{type(self).__name__} has no supervised loss. Choose another actor.model.model_type.")

    def actions_beyond(self, obs: Observation, actions: torch.Tensor) -> list[float]:
        """Return which share of recorded actions, number by number, is far from the data set the model knows.

        Args:
            obs: ``B`` observations, of which states alone are looked at.
            actions: float32 [B, H, A] in the environment's units.

        Returns:
            ``A`` shares; none where actions are not normalised.
        """
        del obs, actions
        return []

    def supervised_draws(self, count: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Return what ``supervised_forward`` needs by chance, tensors [count, ...] on the host; by default nothing."""
        del count, generator
        return {}

    def supervised_forward(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss that the model is published with, float32 [N, H, A]; only called by losses that fine-tune.

        Args:
            forward_inputs: ``forward_inputs_of`` and ``supervised_draws``, tensors [N, ...].
        """
        raise AlgorithmError(f"{type(self).__name__} has no supervised loss. Choose another actor.model.model_type.")

    def update_statistics(
        self,
        forward_inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """Take a rollout into running statistics, if the policy keeps any; called after the step's last update.

        Args:
            forward_inputs: Tensors [N, ...] of this rank's share of the rollout, on the host.
            valid: bool [N]; samples that count. On the host, too.
            all_reduce: Sums a tensor over all ranks.
        """
