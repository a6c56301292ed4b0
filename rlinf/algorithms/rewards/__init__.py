"""Rewards by the names that recipes use.

Owns the registry, the contracts (``EmbodiedReward`` and ``TextReward`` of ``rlinf.algorithms.rewards.base``) and one
file per rule. A reward here is pure: text or tensors in, numbers out; one that needs a model, the network, processes or
a sandbox is in ``rlinf.workers.reward``. May import what ``rlinf.algorithms`` may. Extend it with
``register_reward("my_rule", MyReward, config=MyRewardConfig)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rlinf.config.registries import rewards
from rlinf.config.schema.reward import EmbodiedRewardConfig, RewardTermConfig, TextRewardConfig

R = TypeVar("R", bound=type[Any])


def register_reward(
    name: str, cls: type[Any] | None = None, *, config: type[RewardTermConfig] | None = None
) -> Callable[[R], R]:
    """Register a reward class under ``name``; without a class, return a decorator that does.

    Args:
        name: What recipes write; stored in lower case.
        cls: The class; None to use the call as a decorator.
        config: Dataclass of the reward's recipe keys, derived from ``EmbodiedRewardConfig`` or ``TextRewardConfig``,
            which decides what kind of recipe may name it; None for a reward without keys of its own.

    Returns:
        A decorator that registers its argument and returns it unchanged.

    Raises:
        RegistryError: The name is taken by another class.
    """

    def add(entry: R) -> R:
        rewards.register(name, entry, config=config or _base_config(entry))
        return entry

    if cls is not None:
        add(cls)
    return add


def get_reward_class(name: str) -> type[Any]:
    """Return the reward class registered under ``name``.

    Raises:
        RegistryError: There is none; the message lists the names and the closest one.
    """
    cls: type[Any] = rewards.get(name)
    return cls


def _base_config(cls: type[Any]) -> type[RewardTermConfig]:
    from rlinf.algorithms.rewards.base import TextReward

    return TextRewardConfig if issubclass(cls, TextReward) else EmbodiedRewardConfig
