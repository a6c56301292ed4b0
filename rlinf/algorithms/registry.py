"""Advantage estimators and policy losses by the names that recipes use, and the two calls that dispatch to them.

A built-in has one line in the tables below and its dataclass in ``rlinf.config.registries``; one from outside uses the
decorators, which register both::

    @register_advantage("centered", config=CenteredConfig)
    def compute_centered_advantages(steps, cfg): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

import torch

from rlinf.algorithms.keywords import call_with_fields, from_fields, takes_keywords
from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.losses.objective import compute_objective
from rlinf.algorithms.steps import Steps
from rlinf.algorithms.types import Metrics
from rlinf.config.registries import advantages, losses
from rlinf.config.schema.algorithm import AdvantageConfig, LossConfig, NoAdvantageConfig, OffPolicyLossConfig

if TYPE_CHECKING:
    from rlinf.algorithms.sac import MakeOptimizer, Temperature

AdvantageFn: TypeAlias = Callable[[Steps, Any], tuple[torch.Tensor, torch.Tensor]]
PolicyLossFn: TypeAlias = Callable[[LossInputs, Any], LossOutput]
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=Callable[..., Any])


class OffPolicyAlgorithm(Protocol):
    """The losses of an algorithm that learns from a replay; ``rlinf.algorithms.sac.SAC`` says what they take.

    Attributes:
        temperature: Weight of the entropy, None without one; one that is learned needs the metric ``entropy`` of
            ``actor_loss``, and an optimizer, which ``make_optimizer`` builds.
    """

    temperature: Temperature | None

    def next_noise(self, noise: torch.Tensor) -> torch.Tensor:
        """Return what the policy's next actions, which targets value, are sampled with, from standard normal noise."""

    def critic_loss(self, **tensors: torch.Tensor | None) -> tuple[torch.Tensor, Metrics]:
        """Return the critics' loss, summed over transitions, and its metrics."""

    def actor_loss(self, **tensors: torch.Tensor | None) -> tuple[torch.Tensor, Metrics]:
        """Return the policy's loss, summed over transitions, and its metrics."""


def register_advantage(name: str, config: type[AdvantageConfig] | None = None) -> Callable[[F], F]:
    """Return a decorator that makes a function the advantage estimator ``adv_type: name``.

    The function takes ``(steps: Steps, cfg)`` and returns advantages and returns, both [S, B]. A function of the former
    shape, of keyword arguments alone, is passed the fields of ``Steps`` and of its config that it names.

    Args:
        name: What recipes write; stored in lower case.
        config: Dataclass of the function's recipe keys; None for a function without any.

    Returns:
        The decorator; it returns the function unchanged.

    Raises:
        RegistryError: The name is taken.
    """

    def add(function: F) -> F:
        advantages.register(name, function, config=config or AdvantageConfig)
        return function

    return add


def register_policy_loss(name: str, config: type[LossConfig] | None = None) -> Callable[[F], F]:
    """Return a decorator that makes a function the policy loss ``loss_type: name``.

    The function takes ``(inputs: LossInputs, cfg)`` and returns a ``LossOutput``, the loss of each entry.
    ``policy_loss`` aggregates it by the config's ``loss_agg_func`` (``PolicyLossConfig``) with counts over the whole
    update batch, and adds entropy and KL for a config derived from ``RegularizedLossConfig``, the value loss for one
    derived from ``ValueLossConfig``, and all three for one derived from ``ActorCriticLossConfig``.

    A function of the former shape, of keyword arguments alone, is passed the fields of ``LossInputs`` and of its config
    that it names; it returns the aggregated loss and its metrics.

    Args:
        name: What recipes write; stored in lower case.
        config: Dataclass of the function's recipe keys; None for a function without any.

    Returns:
        The decorator; it returns the function unchanged.

    Raises:
        RegistryError: The name is taken.
    """

    def add(function: F) -> F:
        losses.register(name, function, config=config or LossConfig)
        return function

    return add


def register_off_policy(name: str, config: type[OffPolicyLossConfig] | None = None) -> Callable[[C], C]:
    """Return a decorator that makes a class the off-policy algorithm ``loss_type: name``, and ``adv_type: name``.

    Its constructor takes ``(cfg, *, action_size, device, make_optimizer)``; ``OffPolicyAlgorithm`` says what it offers.
    One of the former shape, of keyword arguments alone, is passed those and the fields of its config that it names.

    Args:
        name: What recipes write; stored in lower case.
        config: Dataclass of its recipe keys; None for those that all off-policy losses share.

    Returns:
        The decorator; it returns the class unchanged.

    Raises:
        RegistryError: The name is taken.
    """

    def add(algorithm: C) -> C:
        losses.register(name, algorithm, config=config or OffPolicyLossConfig)
        advantages.register(name, config=NoAdvantageConfig)
        return algorithm

    return add


def get_adv_and_returns(name: str) -> AdvantageFn:
    """Return the advantage estimator registered under ``name``.

    Raises:
        RegistryError: There is none; the message lists the names and the closest one.
    """
    function: AdvantageFn = advantages.get(name)
    return function


def get_policy_loss(name: str) -> PolicyLossFn:
    """Return the policy loss registered under ``name``.

    Raises:
        RegistryError: There is none; the message lists the names and the closest one.
    """
    function: PolicyLossFn = losses.get(name)
    return function


def calculate_adv_and_returns(
    adv_type: str, steps: Steps | None = None, cfg: AdvantageConfig | None = None, **fields: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Call the advantage estimator ``adv_type``.

    Args:
        adv_type: Registered name.
        steps: The rollout.
        cfg: Keys of the estimator, of the dataclass that is registered with it.
        **fields: Instead of both, their fields by name; others are not used.

    Returns:
        Advantages and returns, both [S, B].

    Raises:
        RegistryError: The name is unknown.
        AlgorithmError: A tensor that the estimator requires is missing, or has another shape.
    """
    function = get_adv_and_returns(adv_type)
    if steps is None or cfg is None:
        steps, cfg = from_fields(Steps, fields), from_fields(advantages.configs.get(adv_type), fields)
    if takes_keywords(function):
        return call_with_fields(function, steps, cfg)
    return function(steps, cfg)


def policy_loss(
    loss_type: str, inputs: LossInputs | None = None, cfg: LossConfig | None = None, **fields: Any
) -> tuple[torch.Tensor, Metrics]:
    """Compute a micro-batch's part of the loss ``loss_type``, with the terms that its config adds.

    Args:
        loss_type: Registered name.
        inputs: The micro-batch.
        cfg: Keys of the loss, of the dataclass that is registered with it.
        **fields: Instead of both, their fields by name; others are not used.

    Returns:
        A scalar that always carries a gradient, and metrics as (sum, count) pairs, whose names depend on nothing but
        the config and on which tensors there are; both are to be added over micro-batches and ranks.

    Raises:
        RegistryError: The name is unknown.
        AlgorithmError: A tensor that the loss requires is missing, or has another shape.
    """
    function = get_policy_loss(loss_type)
    if inputs is None or cfg is None:
        inputs, cfg = from_fields(LossInputs, fields), from_fields(losses.configs.get(loss_type), fields)
    if takes_keywords(function):
        whole: tuple[torch.Tensor, Metrics] = call_with_fields(cast(Any, function), inputs, cfg)
        return whole
    return compute_objective(function(inputs, cfg), inputs, cfg)


def make_off_policy_algorithm(
    loss_type: str,
    cfg: OffPolicyLossConfig,
    *,
    action_size: int,
    device: torch.device,
    make_optimizer: MakeOptimizer | None = None,
) -> OffPolicyAlgorithm:
    """Build the off-policy algorithm ``loss_type``.

    Args:
        loss_type: Registered name.
        cfg: Keys of the loss, of the dataclass that is registered with it.
        action_size: Dimensions of a chunk of actions.
        device: Where the losses are computed.
        make_optimizer: Builds an optimizer of the algorithm's own parameters; None leaves them as they are.

    Raises:
        RegistryError: The name is unknown.
        AlgorithmError: An argument that a constructor of the former shape requires is missing.
    """
    make: Callable[..., OffPolicyAlgorithm] = losses.get(loss_type)
    if takes_keywords(make, positional=1):
        return call_with_fields(make, cfg, action_size=action_size, device=device, make_optimizer=make_optimizer)
    return make(cfg, action_size=action_size, device=device, make_optimizer=make_optimizer)
