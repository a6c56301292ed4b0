"""Sizes of observations and actions: what the model's keys leave to the environment, and whether the others fit it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np

from rlinf.config import validate_cfg
from rlinf.config.schema.algorithm import DAggerLossConfig
from rlinf.config.schema.env import NoEnvConfig
from rlinf.config.schema.expert import PolicyExpertConfig
from rlinf.config.schema.model import CameraPolicyConfig, MLPPolicyConfig, ModelConfig, StatePolicyConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.schema.vla import VLAConfig
from rlinf.envs.base import VectorEnv
from rlinf.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PolicySizes:
    """What a policy must know of an environment, in the words of ``actor.model``.

    Attributes:
        obs_dim: Length of ``states`` of one environment; None where it shows none, or no vector.
        action_dim: Length of one action, or the number of discrete actions.
        discrete: Whether actions are discrete.
        images: Height, width and channels of the images of one environment, by their keys.
    """

    obs_dim: int | None
    action_dim: int
    discrete: bool
    images: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def sizes_of(env: VectorEnv) -> PolicySizes:
    """Return the sizes of an environment, behind its wrappers."""
    states = env.shown_space.spaces.get("states")
    shape = None if states is None else states.shape
    obs_dim = shape[0] if shape is not None and len(shape) == 1 else None
    images = {key: shape for key, seen in env.shown_space.spaces.items() if (shape := _image_shape(seen)) is not None}
    space = env.policy_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return PolicySizes(obs_dim, int(space.n), discrete=True, images=images)
    return PolicySizes(obs_dim, env.action_dim, discrete=False, images=images)


def _image_shape(space: gymnasium.Space[Any]) -> tuple[int, ...] | None:
    """Return the shape of an image, or None for other observations."""
    shape = space.shape
    return shape if space.dtype == np.uint8 and shape is not None and len(shape) == 3 else None


def leaves_sizes(cfg: EmbodiedConfig) -> bool:
    """Return whether the model, or that of its expert or teacher, has sizes that must be taken from the environment."""
    return any(None in _sizes_given(model) for model in _models(cfg))


def _sizes_given(model: StatePolicyConfig) -> tuple[object, ...]:
    images = (model.image_size,) if isinstance(model, CameraPolicyConfig) and model.image_keys else ()
    return (model.obs_dim, model.action_dim, *images)


def fill_sizes(cfg: EmbodiedConfig, sizes: PolicySizes) -> EmbodiedConfig:
    """Return the recipe with the sizes that it leaves out taken from the environment.

    Args:
        cfg: The recipe.
        sizes: The environment's.

    Raises:
        ConfigError: The environment shows no state vector, or what it has does not suit the algorithm.
    """
    cfg = replace(cfg, actor=replace(cfg.actor, model=_filled(cfg.actor.model, sizes)))
    loss = cfg.algorithm.loss
    if isinstance(loss, DAggerLossConfig) and isinstance(loss.expert, PolicyExpertConfig):
        model = None if loss.expert.model is None else _filled(loss.expert.model, sizes)
        loss = replace(loss, expert=replace(loss.expert, model=model))
        cfg = replace(cfg, algorithm=replace(cfg.algorithm, loss=loss))
    teacher = cfg.algorithm.teacher
    if teacher is not None and teacher.model is not None:
        teacher = replace(teacher, model=_filled(teacher.model, sizes))
        cfg = replace(cfg, algorithm=replace(cfg.algorithm, teacher=teacher))
    filled = validate_cfg(cfg)
    assert isinstance(filled, EmbodiedConfig)
    return filled


def check_sizes(model: ModelConfig, sizes: PolicySizes, section: str) -> None:
    """Check that the sizes that a recipe gives are the environment's.

    Args:
        model: The ``actor.model`` section.
        sizes: The environment's.
        section: ``env.train`` or ``env.eval``, for the message.

    Raises:
        ConfigError: They differ; one line for each key.
    """
    if isinstance(model, VLAConfig):
        if sizes.discrete or model.action_dim != sizes.action_dim:
            kind = "discrete actions" if sizes.discrete else f"actions of {sizes.action_dim} numbers"
            raise ConfigError(
                f"actor.model.action_dim: received {model.action_dim}; {section} has {kind}. Choose another "
                "environment, or a checkpoint that was trained on such actions."
            )
        if model.state_dim not in {None, sizes.obs_dim}:
            shown = "no vector of states" if sizes.obs_dim is None else f"states of {sizes.obs_dim} numbers"
            raise ConfigError(
                f"actor.model.state_dim: received {model.state_dim}; {section} shows {shown}. Choose another "
                "environment or wrappers, or a checkpoint that was trained on such states."
            )
        return
    if not isinstance(model, StatePolicyConfig):
        return
    discrete: bool | None = False
    if isinstance(model, MLPPolicyConfig) and model.discrete is not False:
        discrete = None if model.action_dim is None and model.discrete is None else bool(model.discrete)
    rows: list[tuple[str, Any, Any]] = [
        # 0: the model sees images only.
        ("obs_dim", model.obs_dim or None, sizes.obs_dim),
        ("discrete", discrete, sizes.discrete),
        ("action_dim", model.action_dim, sizes.action_dim),
    ]
    lines = [
        f"actor.model.{key}: received {_text(given)}; {section} has {_text(actual)}."
        for key, given, actual in rows
        if given is not None and given != actual
    ]
    names = "obs_dim, action_dim and discrete"
    if isinstance(model, CameraPolicyConfig) and model.image_keys:
        lines += _compare_images(model, sizes, section)
        names = "image_size, action_dim and discrete"
    if lines:
        raise ConfigError("\n".join([*lines, f"Correct that, or leave {names} out to take them from the environment."]))


def _compare_images(model: CameraPolicyConfig, sizes: PolicySizes, section: str) -> list[str]:
    """Return a line for each difference between the model's images and the environment's."""
    shown = ", ".join(sorted(sizes.images)) or "no images"
    lines = []
    for key in model.image_keys:
        shape = sizes.images.get(key)
        if shape is None:
            lines.append(f"actor.model.image_keys: received {key}; {section} shows {shown}.")
            continue
        if model.image_size is not None and tuple(model.image_size) != shape[:2]:
            lines.append(
                f"actor.model.image_size: received {model.image_size}; {key} of {section} has {list(shape[:2])}."
            )
        channels = 3 * model.num_frames
        if channels != shape[2]:
            received = f"received {model.num_frames}, which have {channels} channels"
            lines.append(f"actor.model.num_frames: {received}; {key} of {section} has {shape[2]}.")
    return lines


def _models(cfg: EmbodiedConfig) -> list[StatePolicyConfig]:
    if isinstance(cfg.env.train, NoEnvConfig) and cfg.env.eval is None:
        return []
    loss = cfg.algorithm.loss
    expert = loss.expert if isinstance(loss, DAggerLossConfig) else None
    teacher = cfg.algorithm.teacher
    models = [
        cfg.actor.model,
        expert.model if isinstance(expert, PolicyExpertConfig) else None,
        None if teacher is None else teacher.model,
    ]
    return [model for model in models if isinstance(model, StatePolicyConfig)]


def _filled(model: ModelConfig, sizes: PolicySizes) -> ModelConfig:
    if not isinstance(model, StatePolicyConfig):
        return model
    if model.obs_dim is None and sizes.obs_dim is None:
        raise ConfigError(
            "actor.model.obs_dim: missing, and the environment shows no vector of states. Choose "
            "actor.model.model_type=cnn_policy for images, or an environment with states."
        )
    if isinstance(model, MLPPolicyConfig) and model.action_dim is None and model.discrete is None:
        model = replace(model, discrete=sizes.discrete)
    if isinstance(model, CameraPolicyConfig) and model.image_keys and model.image_size is None:
        shape = next((sizes.images[key] for key in model.image_keys if key in sizes.images), None)
        if shape is None:
            raise ConfigError("\n".join(_compare_images(model, sizes, "the environment")))
        model = replace(model, image_size=list(shape[:2]))
    return replace(
        model,
        obs_dim=model.obs_dim if model.obs_dim is not None else sizes.obs_dim,
        action_dim=model.action_dim or sizes.action_dim,
    )


def _text(value: Any) -> str:
    return "none" if value is None else str(value).lower()
