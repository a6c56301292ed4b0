"""Everything that recipes choose by name: each registry with the dataclasses that its names select.

A name is registered once, with its import path and the dataclass of its keys, at the end of the module of
``rlinf.config.schema`` that holds the dataclass. Plug-ins register in the same way, and by the functions that
``docs/source-en/extending/plugin.md`` lists.
"""

from __future__ import annotations

from rlinf.config.schema import value, vla  # noqa: F401 - register their models and losses
from rlinf.config.schema.agent import tools, workflows
from rlinf.config.schema.algorithm import advantages, losses
from rlinf.config.schema.data import data_formats
from rlinf.config.schema.env import envs, scripted_policies, wrappers
from rlinf.config.schema.expert import experts
from rlinf.config.schema.generation import generation_engines
from rlinf.config.schema.intervention import interveners
from rlinf.config.schema.model import encoders, models
from rlinf.config.schema.realworld import hardware_types
from rlinf.config.schema.reward import rewards
from rlinf.config.schema.root import task_types
from rlinf.config.schema.runner import metric_backends
from rlinf.config.schema.train import inference_backends, train_engines, weight_syncers
from rlinf.config.schema.world_models import world_models

__all__ = [
    "advantages",
    "data_formats",
    "encoders",
    "envs",
    "experts",
    "generation_engines",
    "hardware_types",
    "inference_backends",
    "interveners",
    "losses",
    "metric_backends",
    "models",
    "rewards",
    "scripted_policies",
    "task_types",
    "tools",
    "train_engines",
    "weight_syncers",
    "workflows",
    "world_models",
    "wrappers",
]

generation_configs = generation_engines.configs
"""An older name, which plug-ins register the dataclass of an engine under."""
