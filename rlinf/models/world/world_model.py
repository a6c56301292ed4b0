"""The contract of world models, which ``env_type: world_model`` drives."""

from __future__ import annotations

import abc
from pathlib import Path

import torch
from torch import nn

from rlinf.data.messages.embodied import FrameWindow


class WorldModel(nn.Module, abc.ABC):
    """Imagines what follows actions, and judges whether the task is solved in it.

    What it imagines for a row depends on that row's frames, actions and seeds alone, to the bit: neither on other rows
    nor on how many there are.

    Attributes:
        image_size: Height and width of the images in pixels.
        state_dim: Length of the states (``S``), 0 for none.
        action_low: float32 [A]; smallest actions that it has seen.
        action_high: float32 [A]; largest.
        num_frames: Steps of the past that it looks at (``F``).
    """

    image_size: tuple[int, int]
    state_dim: int
    action_low: torch.Tensor
    action_high: torch.Tensor
    num_frames: int

    @classmethod
    @abc.abstractmethod
    def load(cls, folder: Path) -> WorldModel:
        """Read a trained model.

        Args:
            folder: Where it was written.

        Raises:
            ConfigError: There is none.
        """

    def check_tasks(self, tasks: list[str]) -> None:
        """Check that the model can judge some tasks; unless overridden, it can judge any.

        Args:
            tasks: Sentences.

        Raises:
            ConfigError: It does not know one of them.
        """

    @abc.abstractmethod
    def imagine(self, past: FrameWindow, actions: torch.Tensor, seeds: torch.Tensor) -> FrameWindow:
        """Return what follows the past.

        Args:
            past: The last ``F`` steps, the newest last.
            actions: float32 [B, C, A].
            seeds: int64 [B, C]; of what is random in each step.

        Returns:
            ``C`` steps.
        """

    @abc.abstractmethod
    def success(self, frames: FrameWindow, tasks: list[str]) -> torch.Tensor:
        """Return the probability that the task of a sentence is solved, float32 [B, T].

        Args:
            frames: ``T`` steps.
            tasks: ``B`` sentences, one for all steps of a row.
        """
