"""A trained policy as an object that acts: observations of an environment in, its actions out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rlinf.checkpoint import CheckpointManager
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.model import CameraPolicyConfig, StatePolicyConfig
from rlinf.config.schema.root import EmbodiedConfig, ValueConfig
from rlinf.errors import CheckpointError, ConfigError
from rlinf.models import get_policy
from rlinf.models.base_policy import BasePolicy
from rlinf.telemetry.rundir import CHECKPOINTS_FOLDER, CONFIG_FILE
from rlinf.utils.seeding import derive_seed
from rlinf.workers.values import num_values

_VECTOR, _IMAGE = 1, 3
"""Dimensions of one observation: of ``states`` [S], and of an image [H, W, channels]."""


class TrainedPolicy:
    """A policy with its weights; ``load_policy`` makes one.

    Args:
        cfg: The recipe that it was trained by.
        model: The policy, in ``eval`` mode.
        checkpoint: Where its weights are from.

    Attributes:
        cfg: The recipe.
        model: The policy as a torch module.
        checkpoint: Where its weights are from.
    """

    def __init__(self, cfg: EmbodiedConfig, model: BasePolicy, checkpoint: Path) -> None:
        self.cfg, self.model, self.checkpoint = cfg, model, checkpoint
        seed = derive_seed(cfg.actor.seed, "loaded policy", "actions")
        self._generator = torch.Generator(model.device).manual_seed(seed)

    def predict(self, obs: Any, *, deterministic: bool = True) -> npt.NDArray[Any]:
        """Choose the actions for one observation, or for a batch of ``B``.

        Args:
            obs: What the environment shows: a vector [S] or [B, S], an image uint8 [H, W, channels] or [B, ...], or a
                mapping with the keys that ``rlinf`` gives observations (``states``, ``main_images``,
                ``task_descriptions`` ...).
            deterministic: Take the most likely action; False samples as in training, from a generator of its own.

        Returns:
            Actions in the environment's units: float32 [A], or one integer if actions are discrete; with a leading
            ``B`` for a batch. A policy of chunks (``actor.model.num_action_chunks`` above 1) returns [C, A] or [C].
            They are not cut off at the bounds of the environment's action space.

        Raises:
            ConfigError: The observation is not of the shape that the policy was trained on.
        """
        batch, is_single = self.as_batch(obs)
        mode, generator = ("eval", None) if deterministic else ("train", self._generator)
        actions, _ = self.model.predict_action_batch(batch, mode=mode, generator=generator)  # type: ignore[arg-type]
        values: npt.NDArray[Any] = actions.detach().cpu().numpy()
        values = values[:, 0] if self.cfg.actor.model.num_action_chunks == 1 else values
        return np.asarray(values[0]) if is_single else values

    def as_batch(self, obs: Any) -> tuple[dict[str, Any], bool]:
        """Return an observation as the policy takes it: tensors [B, ...], and whether it was a single one.

        Raises:
            ConfigError: See ``predict``.
        """
        named = dict(obs) if isinstance(obs, Mapping) else {self._main_key(np.asarray(obs)): obs}
        batch: dict[str, Any] = {}
        is_single = False
        for key, value in named.items():
            if isinstance(value, str) or (isinstance(value, list | tuple) and value and isinstance(value[0], str)):
                batch[key] = [value] if isinstance(value, str) else list(value)
                continue
            array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
            tensor = torch.from_numpy(array if array.dtype == np.uint8 else array.astype(np.float32))
            single = tensor.ndim == (_IMAGE if array.dtype == np.uint8 else _VECTOR)
            is_single = is_single or single
            batch[key] = tensor.unsqueeze(0) if single else tensor
        self._check(batch)
        return batch, is_single

    def _main_key(self, array: npt.NDArray[Any]) -> str:
        model = self.cfg.actor.model
        is_image = array.dtype == np.uint8 and array.ndim >= _IMAGE
        return (
            model.image_keys[0] if is_image and isinstance(model, CameraPolicyConfig) and model.image_keys else "states"
        )

    def _check(self, batch: Mapping[str, Any]) -> None:
        for key, shape in self.observation_shapes().items():
            got = batch.get(key)
            if got is None or tuple(got.shape[1:]) != shape:
                received = f"received {list(got.shape[1:])}" if got is not None else f"received {', '.join(batch)}"
                raise ConfigError(
                    f"predict(): the policy of {self.checkpoint} takes '{key}' of shape {list(shape)}; {received}. "
                    "Give it what the environment of its recipe shows, behind its wrappers; "
                    "gymnasium.spaces.flatten makes one vector of a mapping."
                )

    def observation_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of one observation by key, as far as the recipe says them."""
        model = self.cfg.actor.model
        shapes: dict[str, tuple[int, ...]] = {}
        if isinstance(model, StatePolicyConfig) and model.state_size:
            shapes["states"] = (model.state_size,)
        if isinstance(model, CameraPolicyConfig) and model.image_keys:
            shapes |= dict.fromkeys(model.image_keys, model.image_shape)
        return shapes


def load_policy(path: str | Path, *, device: str | torch.device = "cpu") -> TrainedPolicy:
    """Load the policy of a run.

    Args:
        path: Folder of a run, of which the newest checkpoint is taken, or a checkpoint (``global_step_N``) in one.
        device: Where it computes.

    Returns:
        The policy; ``predict`` acts.

    Raises:
        CheckpointError: There is no complete checkpoint.
        ConfigError: The checkpoint lies in no folder of a run, or is not of a policy that acts in environments.
    """
    from rlinf.hybrid_engines.train.state import load_weights

    given = Path(path).expanduser().absolute()
    try:
        checkpoint = CheckpointManager(given / CHECKPOINTS_FOLDER).resolve(str(given))
    except CheckpointError as error:
        reason = str(error).removeprefix("runner.resume_dir: ").partition(". ")[0]
        raise CheckpointError(f"{reason}. Give the folder of a run, or a complete checkpoint in one.") from error
    assert checkpoint is not None
    cfg = _recipe_of(checkpoint)
    model = get_policy(cfg.actor.model, num_values=num_values(cfg))
    load_weights(checkpoint, model)
    return TrainedPolicy(cfg, model.to(device).eval().requires_grad_(False), checkpoint)


def _recipe_of(checkpoint: Path) -> EmbodiedConfig:
    """Return the recipe that the run of a checkpoint has recorded."""
    file = next((folder / CONFIG_FILE for folder in checkpoint.parents if (folder / CONFIG_FILE).is_file()), None)
    if file is None:
        raise ConfigError(
            f"'{checkpoint}' lies in no folder of a run: there is no {CONFIG_FILE} above it. Leave checkpoints where "
            "their run wrote them, or copy the run's folder with them."
        )
    cfg = validate_cfg(load_recipe(str(file)))
    if isinstance(cfg, ValueConfig):
        raise ConfigError(
            f"'{checkpoint}' is of a model that judges frames (runner.task_type=value), and does not act. A policy "
            "learns from its labels (data.advantage_tag), or from its classifier.pt (reward_type=model)."
        )
    if not isinstance(cfg, EmbodiedConfig):
        raise ConfigError(
            f"'{checkpoint}' is of a language model (runner.task_type={cfg.runner.task_type}), which takes text: load "
            "its folder 'hf' with transformers, vLLM or SGLang."
        )
    return cfg
