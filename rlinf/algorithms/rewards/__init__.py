"""Rule rewards by the names that recipes use; none is built in yet.

Owns the registry and, later, one file per rule. A reward here is pure: text or tensors in, numbers out; one that needs
a model, the network or a sandbox is a worker. May import what ``rlinf.algorithms`` may. Extend it with
``register_reward("my_rule", MyReward)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rlinf.registry import Registry

R = TypeVar("R", bound=type[Any])

rewards: Registry[type[Any]] = Registry("reward")


def register_reward(name: str, cls: type[Any] | None = None) -> Callable[[R], R]:
    """Register a reward class under ``name``; without a class, return a decorator that does.

    Args:
        name: What recipes write; stored in lower case.
        cls: The class; None to use the call as a decorator.

    Returns:
        A decorator that registers its argument and returns it unchanged.

    Raises:
        RegistryError: The name is taken by another class.
    """

    def add(entry: R) -> R:
        rewards.register(name, entry)
        return entry

    if cls is not None:
        rewards.register(name, cls)
    return add


def get_reward_class(name: str) -> type[Any]:
    """Return the reward class registered under ``name``.

    Raises:
        RegistryError: There is none; the message lists the names and the closest one.
    """
    return rewards.get(name)
