"""Policies as torch modules: what acts, and what is trained. Knows neither Ray, environments nor algorithms.

A model is one file here with its dataclass in ``rlinf.config.schema.model``; from outside, register yours with
``register_model(name, builder, config=MyModelConfig)`` and name it in ``actor.model.model_type``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlinf.config.registries import model_configs
from rlinf.registry import Registry

if TYPE_CHECKING:
    from rlinf.config.schema.model import ModelConfig
    from rlinf.models.base_policy import BasePolicy

ModelBuilder = Callable[..., "BasePolicy"]
"""Called as ``builder(cfg, num_values=V)``; a policy class with such a constructor is one."""

models: Registry[ModelBuilder] = Registry("model")
models.register_lazy("cnn_policy", "rlinf.models.cnn_policy:build_cnn_policy")
models.register_lazy("mlp_policy", "rlinf.models.mlp_policy:build_mlp_policy")
models.register_lazy("flow_policy", "rlinf.models.flow_policy:build_flow_policy")


def register_model(name: str, builder: ModelBuilder, config: type[ModelConfig] | None = None) -> None:
    """Make a model known under ``actor.model.model_type``.

    Args:
        name: The name recipes use.
        builder: A ``BasePolicy`` class or a function, called as ``builder(cfg, num_values=V)``.
        config: Dataclass of the model's keys, derived from ``ModelConfig``; None takes ``ModelConfig`` itself.
    """
    from rlinf.config.schema.model import ModelConfig

    model_configs.register(name, config or ModelConfig)
    models.register(name, builder)


def get_model(cfg: ModelConfig, *, num_values: int = 1) -> BasePolicy:
    """Build the policy that ``cfg.model_type`` names.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Values per observation (``V``): 1, or the chunk length where every action has its own reward.

    Returns:
        The policy, freshly initialised from torch's global random state, on the CPU in fp32.
    """
    return models.get(cfg.model_type)(cfg, num_values=num_values)


def __getattr__(name: str) -> Any:
    if name in {"BasePolicy", "ForwardType", "PolicyEvaluation"}:
        from rlinf.models import base_policy

        return getattr(base_policy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
