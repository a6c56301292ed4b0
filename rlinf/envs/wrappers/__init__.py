"""What an environment's ``wrappers`` put between it and the policy, in the order of the list, the first innermost.

Imports what ``rlinf.envs`` may. A wrapper is one file here, derived from ``EnvWrapper``, with its dataclass and its
registration in ``rlinf.config.schema.env``; from outside, use ``register_wrapper(name, cls, config=MyConfig)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf.config.registries import wrappers

if TYPE_CHECKING:
    from rlinf.config.schema.env import EnvConfig, WrapperConfig
    from rlinf.envs.wrappers.base import EnvWrapper


def register_wrapper(name: str, cls: type[EnvWrapper], config: type[WrapperConfig]) -> None:
    """Make a wrapper known under ``env.*.wrappers[].name``.

    Args:
        name: The name recipes use.
        cls: The wrapper.
        config: Dataclass of its keys, derived from ``WrapperConfig``.

    Raises:
        RegistryError: The name is taken by another wrapper.
    """
    wrappers.register(name, cls, config=config)


def build_wrappers(cfg: EnvConfig, *, num_envs: int) -> list[EnvWrapper]:
    """Build the wrappers of ``cfg.wrappers`` for ``num_envs`` environments."""
    return [wrappers.get(entry.name)(entry, env=cfg, num_envs=num_envs) for entry in cfg.wrappers]
