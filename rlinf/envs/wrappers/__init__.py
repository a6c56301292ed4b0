"""What an environment's ``wrappers`` put between it and the policy, in the order of the list, the first innermost.

Imports what ``rlinf.envs`` may. A wrapper is one file here, derived from ``EnvWrapper``, with its dataclass and its
registration in ``rlinf.config.schema.env``; from outside, use ``register_wrapper(name, cls, config=MyConfig)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf.config.registries import wrappers

if TYPE_CHECKING:
    from rlinf.config.schema.env import EnvConfig
    from rlinf.envs.wrappers.base import EnvWrapper


register_wrapper = wrappers.register
"""``register_wrapper(name, cls, config=MyConfig)`` makes a wrapper known from outside."""


def build_wrappers(cfg: EnvConfig, *, num_envs: int) -> list[EnvWrapper]:
    """Build the wrappers of ``cfg.wrappers`` for ``num_envs`` environments."""
    return [wrappers.get(entry.name)(entry, env=cfg, num_envs=num_envs) for entry in cfg.wrappers]
