"""Policies and language models as torch modules. Knows neither Ray, environments nor algorithms.

A model is one file in the folder of its kind, with its dataclass in ``rlinf.config.schema``; from outside, register
yours with ``register_model(name, builder, config=MyModelConfig)`` and name it in ``actor.model.model_type``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlinf.config.registries import models
from rlinf.errors import ConfigError

if TYPE_CHECKING:
    from rlinf.config.schema.model import ModelConfig
    from rlinf.models.base_policy import BasePolicy
    from rlinf.models.trainable import TrainableModel

ModelBuilder = Callable[..., "TrainableModel"]
"""Called as ``builder(cfg, num_values=V)``; a policy class with such a constructor is one."""


def register_model(name: str, builder: ModelBuilder, config: type[ModelConfig] | None = None) -> None:
    """Make a model known under ``actor.model.model_type``.

    Args:
        name: The name recipes use.
        builder: A ``BasePolicy`` class or a function, called as ``builder(cfg, num_values=V)``.
        config: Dataclass of the model's keys, derived from ``ModelConfig``; None takes ``ModelConfig`` itself.
    """
    models.register(name, builder, config=config or models.configs.default)


def get_model(cfg: ModelConfig, *, num_values: int = 1, on_meta: bool = False) -> TrainableModel:
    """Build the model that ``cfg.model_type`` names.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Values per observation (``V``): 1, or the chunk length where every action has its own reward.
        on_meta: Leave a model whose weights are in files without memory (on device ``meta``): the training engine
            shards it first, and then ``materialize`` reads each rank's rows.

    Returns:
        The model, on the CPU in fp32; what is not loaded is sampled from torch's global random state.
    """
    model: TrainableModel = models.get(cfg.model_type)(cfg, num_values=num_values)
    if not on_meta and model.weight_source is not None:
        import torch

        from rlinf.models.materialize import materialize

        materialize(model, torch.device("cpu"))
    return model


def get_policy(cfg: ModelConfig, *, num_values: int = 1, on_meta: bool = False) -> BasePolicy:
    """Build the model that ``cfg.model_type`` names, which must be a policy that acts in environments.

    Args:
        cfg: See ``get_model``.
        num_values: See ``get_model``.
        on_meta: See ``get_model``.

    Raises:
        ConfigError: It is a language model, or judges frames.
    """
    from rlinf.models.base_policy import BasePolicy

    model = get_model(cfg, num_values=num_values, on_meta=on_meta)
    if not isinstance(model, BasePolicy):
        raise ConfigError(
            f"actor.model.model_type: received {cfg.model_type}, which does not act; environments need a policy that "
            "acts. Choose mlp_policy, for example."
        )
    return model


def __getattr__(name: str) -> Any:
    if name in {"BasePolicy", "ForwardType", "PolicyEvaluation"}:
        from rlinf.models import base_policy

        return getattr(base_policy, name)
    if name == "check_policy":
        from rlinf.models.policy_conformance import check_policy

        return check_policy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
