"""What flow policies see: images, prompts with the state as a token or as words, and normalised states."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from rlinf.config.schema.vla import FlowVLAConfig, PiConfig
from rlinf.data.messages.embodied import CROPPED, Observation
from rlinf.errors import ConfigError
from rlinf.models.vla.image_resizing import resize_with_padding
from rlinf.models.vla.norm_statistics import Statistics
from rlinf.models.vla.observed import image_of, states_of, tasks_of
from rlinf.models.vla.relative_actions import relative_mask, to_absolute, to_relative
from rlinf.utils.optional import require

_STATE_BINS = 256


class FlowInputs(abc.ABC):
    """Turns observations into what trajectories keep.

    Args:
        cfg: The ``actor.model`` section.
        folder: Of the checkpoint.
        tokenizer_folder: Of the tokenizer.
        padded_dim: Width of padded states.
    """

    def __init__(self, cfg: FlowVLAConfig, folder: Path, *, tokenizer_folder: Path, padded_dim: int) -> None:
        self.cfg, self.padded_dim = cfg, padded_dim
        transformers = require("transformers", needed_by=f"model_type={cfg.model_type}")
        self._tokenizer: Any = transformers.PreTrainedTokenizerFast.from_pretrained(tokenizer_folder)
        statistics = Statistics.of_folder(folder, cfg.unnorm_key)
        self.actions = statistics.normalizer("action", cfg.norm_scheme, cfg.action_dim)
        self.states = statistics.normalizer("proprio", cfg.norm_scheme, cfg.state_dim)
        relative = relative_mask(cfg.delta_actions)[len(self.states) :]
        if relative.any():
            raise ConfigError(
                f"actor.model.delta_actions: received {cfg.delta_actions}; states have {len(self.states)} numbers, and "
                "further ones of an action cannot be relative to them. Correct it, or choose another unnorm_key."
            )

    def of_actions(self, actions: torch.Tensor, obs: Observation) -> torch.Tensor:
        """Return actions [B, T, A] of the environment as the model predicts them: relative, then normalised.

        Args:
            actions: Of chunks that begin in ``obs``, or that are continued from there.
            obs: ``B`` observations.

        Raises:
            EnvironmentFailure: The environment shows no states that actions are relative to.
        """
        return self.actions.normalize(to_relative(actions, self._origins(obs, actions), self.cfg.delta_actions))

    def to_actions(self, predicted: torch.Tensor, obs: Observation) -> torch.Tensor:
        """Return what the model predicts in ``obs`` as actions of the environment; see ``of_actions``."""
        return to_absolute(self.actions.restore(predicted), self._origins(obs, predicted), self.cfg.delta_actions)

    def beyond(self, actions: torch.Tensor, obs: Observation) -> list[float]:
        """Return which share of actions is far from the statistics, number by number; see ``of_actions``."""
        relative = to_relative(actions, self._origins(obs, actions), self.cfg.delta_actions)
        shares: list[float] = self.actions.beyond(relative).tolist()
        return shares

    def _origins(self, obs: Observation, actions: torch.Tensor) -> torch.Tensor:
        """Return what actions are relative to, [B, S]; empty where they are not."""
        if not self.cfg.delta_actions:
            return actions.new_zeros(len(actions), 0)
        return states_of(obs, len(self.states))

    @abc.abstractmethod
    def tokens(self, task: str, state: torch.Tensor) -> list[int]:
        """Return the prompt of a sentence and a normalised state [S]."""

    @abc.abstractmethod
    def image(self, image: torch.Tensor, *, is_cropped: bool) -> torch.Tensor:
        """Return what is kept of a camera's images.

        Args:
            image: uint8 [B, H, W, 3].
            is_cropped: Whether they are crops already, see ``CROPPED``.

        Returns:
            uint8 [B, H, W, 3].
        """

    def record(self, obs: Observation, device: torch.device) -> dict[str, torch.Tensor]:
        """Return ``images.<key>`` uint8 [B, H, W, 3], ``token_ids`` int32 and ``token_mask`` bool [B, L], ``state``.

        ``state`` is float32 [B, D], normalised and padded.

        Raises:
            EnvironmentFailure: The environment shows no such images, sentences or states.
        """
        state = self.states.normalize(states_of(obs, len(self.states)).float().cpu())
        ids, mask = self.encode(tasks_of(obs), state)
        record = {}
        for key in self.cfg.image_keys:
            record[f"images.{key}"] = self.image(image_of(obs, key), is_cropped=CROPPED in obs).to(device)
        padded = F.pad(state, (0, self.padded_dim - state.shape[-1]))
        return {**record, "token_ids": ids.to(device), "token_mask": mask.to(device), "state": padded.to(device)}

    def encode(self, tasks: Sequence[str], states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return padded prompts: ids int32 [B, L], and where there are tokens, bool [B, L].

        Args:
            tasks: ``B`` sentences.
            states: [B, S], normalised; pi-0.5 may write them into the prompt.

        Raises:
            ConfigError: A prompt is longer than ``max_prompt_length``.
        """
        rows = [self.tokens(task, state) for task, state in zip(tasks, states, strict=True)]
        return pad_prompts(rows, tasks, self.cfg.prompt_length)


class PiInputs(FlowInputs):
    """What pi-0 and pi-0.5 see: images of the model's size, and prompts with the state as words or without.

    Args:
        cfg: The ``actor.model`` section.
        folder: Of the checkpoint.
        image_size: Side of the model's images in pixels.
        padded_dim: Width of padded states (``D``).
        pads_words: Whether states are also padded in prompts, with zeros, as LeRobot does.
    """

    cfg: PiConfig

    def __init__(
        self, cfg: PiConfig, folder: Path, *, image_size: int, padded_dim: int, pads_words: bool = False
    ) -> None:
        path = tokenizer_folder(cfg.tokenizer_path, folder)
        super().__init__(cfg, folder, tokenizer_folder=path, padded_dim=padded_dim)
        self.image_size, self._pads_words = image_size, pads_words

    def image(self, image: torch.Tensor, *, is_cropped: bool) -> torch.Tensor:
        """See ``FlowInputs``; without distortion."""
        del is_cropped
        return resize_with_padding(image, self.image_size)

    def tokens(self, task: str, state: torch.Tensor) -> list[int]:
        """See ``FlowInputs``."""
        cleaned = clean_task(task)
        if self.cfg.state_in_prompt:
            shown = F.pad(state, (0, self.padded_dim - len(state))) if self._pads_words else state
            words = f"Task: {cleaned}, State: {' '.join(map(str, state_bins(shown)))};\nAction: "
            found: list[int] = self._tokenizer(words).input_ids
            return found
        return [*self._tokenizer(cleaned).input_ids, *self._tokenizer("\n", add_special_tokens=False).input_ids]


def clean_task(task: str) -> str:
    """Return a sentence as PaliGemma's prompts have it."""
    return task.strip().replace("_", " ").replace("\n", " ")


def tokenizer_folder(path: str | None, folder: Path) -> Path:
    """Return where PaliGemma's tokenizer is.

    Args:
        path: ``actor.model.tokenizer_path``.
        folder: Of the checkpoint, where it is looked for if there is no ``path``.

    Raises:
        ConfigError: There is none.
    """
    found = Path(path).expanduser() if path else folder
    if not (found / "tokenizer.json").is_file():
        raise ConfigError(
            f"actor.model.tokenizer_path: '{found}' holds no tokenizer.json; openpi's folders come without one. "
            "Give the folder of PaliGemma's tokenizer."
        )
    return found


def pad_prompts(rows: Sequence[list[int]], tasks: Sequence[str], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return padded prompts: ids int32 [B, L], and where there are tokens, bool [B, L].

    Args:
        rows: Token ids of ``B`` prompts.
        tasks: Their sentences, for messages.
        length: ``L``.

    Raises:
        ConfigError: A prompt is longer.
    """
    ids = torch.zeros(len(rows), length, dtype=torch.int32)
    mask = torch.zeros(len(rows), length, dtype=torch.bool)
    for row, (tokens, task) in enumerate(zip(rows, tasks, strict=True)):
        if len(tokens) > length:
            raise ConfigError(
                f"actor.model.max_prompt_length: received {length}; the prompt of '{task}' has {len(tokens)} "
                f"tokens. Set it to {len(tokens)} or more."
            )
        ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        mask[row, : len(tokens)] = True
    return ids, mask


def state_bins(state: torch.Tensor) -> list[int]:
    """Return the bins of normalised numbers among 256 from -1 to 1; -1 below them."""
    edges = torch.arange(_STATE_BINS, dtype=torch.float64) * (2.0 / _STATE_BINS) - 1.0
    bins: list[int] = (torch.bucketize(state.double(), edges, right=True) - 1).tolist()
    return bins
