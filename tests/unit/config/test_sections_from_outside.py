"""Kinds that are registered from outside have keys of their own."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable
from typing import Any

import pytest

from rlinf.config import build_config, validate_cfg
from rlinf.config.registries import envs, inference_backends, losses, metric_backends, train_engines
from rlinf.config.schema.algorithm import LossConfig
from rlinf.config.schema.base import PositiveInt
from rlinf.config.schema.env import EnvConfig
from rlinf.errors import ConfigError
from rlinf.registry import Registration, Registry


def test_registered_kinds_from_outside_are_parsed_with_their_own_keys(
    recipe: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RopeEnvConfig(EnvConfig):
        rope_length_centimetres: PositiveInt

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RopeLossConfig(LossConfig):
        friction: float = 0.5

    monkeypatch.setitem(envs._entries, "rope", Registration(config=RopeEnvConfig))
    monkeypatch.setitem(losses._entries, "rope", Registration(config=RopeLossConfig))
    changes = {
        "env.train.env_type": "rope",
        "env.train.rope_length_centimetres": 7,
        "env.train.init_params": "DELETE",
        "algorithm.loss_type": "rope",
        "algorithm.friction": 1,
    }
    cfg = validate_cfg(recipe(changes))
    assert cfg.env.train.rope_length_centimetres == 7
    assert cfg.algorithm.loss == RopeLossConfig(friction=1.0)
    with pytest.raises(ConfigError, match="it belongs to loss_type=rope"):
        build_config(recipe({"algorithm.friction": 1}))


@pytest.mark.parametrize(
    ("registry", "key", "value", "hint"),
    [
        (
            train_engines,
            "actor.training_backend",
            "pipeline",
            "one of fsdp, megatron, pipeline. Did you mean 'pipeline'?",
        ),
        (inference_backends, "rollout.rollout_backend", "compiled", "one of compiled, huggingface. Did you mean"),
        (metric_backends, "runner.logger.logger_backends", ["textfile"], "swanlab, tensorboard, textfile, wandb"),
    ],
)
def test_engines_and_backends_from_outside_are_named_in_recipes(
    recipe: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    registry: Registry,
    key: str,
    value: str | list[str],
    hint: str,
) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    name = value[0] if isinstance(value, list) else value
    misspelt = [name[:-1]] if isinstance(value, list) else name[:-1]
    with pytest.raises(ConfigError, match="allowed: "):
        build_config(recipe({key: value}))
    registry.register(name, "my_package:Mine")
    section, _, field = key.rpartition(".")
    assert getattr(operator.attrgetter(section)(build_config(recipe({key: value}))), field) == value
    with pytest.raises(ConfigError, match=re.escape(hint)):
        build_config(recipe({key: misspelt}))
