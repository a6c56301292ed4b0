"""Vector environments: chunked stepping, auto-reset, episode metrics, group seeding and video, implemented once.

Owns everything between a simulator and a ``ChunkStep``: the ``VectorEnv`` base, the process pool that steps single
environments in parallel, the built-in environments and the conformance checker. Knows neither Ray nor policies nor
algorithms: it imports ``rlinf.data``, ``rlinf.config``, ``rlinf.utils``, ``rlinf.registry`` and ``rlinf.errors`` only,
and the package itself imports nothing heavy, so that the processes of the pool start without torch.

To add an environment, subclass ``VectorEnv`` (a simulator that steps a batch) or ``SingleEnvVectorEnv`` (a factory of
``gymnasium.Env``), give it a dataclass derived from ``rlinf.config``'s ``EnvConfig``, call ``register_env`` and run
``rlinf.envs.conformance.check_vector_env`` on it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf.envs.base import StepResult, VectorEnv
    from rlinf.envs.conformance import check_vector_env
    from rlinf.envs.env_registry import SupportedEnvType, get_env_cls, make_vector_env, register_env
    from rlinf.envs.guest_conformance import check_guest
    from rlinf.envs.single_env_vector import SingleEnvVectorEnv

_EXPORTS = {
    "VectorEnv": "rlinf.envs.base",
    "StepResult": "rlinf.envs.base",
    "SingleEnvVectorEnv": "rlinf.envs.single_env_vector",
    "check_guest": "rlinf.envs.guest_conformance",
    "check_vector_env": "rlinf.envs.conformance",
    "SupportedEnvType": "rlinf.envs.env_registry",
    "get_env_cls": "rlinf.envs.env_registry",
    "make_vector_env": "rlinf.envs.env_registry",
    "register_env": "rlinf.envs.env_registry",
}

__all__ = [
    "SingleEnvVectorEnv",
    "StepResult",
    "SupportedEnvType",
    "VectorEnv",
    "check_guest",
    "check_vector_env",
    "get_env_cls",
    "make_vector_env",
    "register_env",
]


def __getattr__(name: str) -> Any:
    """Import an export on first access."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rlinf.envs' has no attribute '{name}'")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value
