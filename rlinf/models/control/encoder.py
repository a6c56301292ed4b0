"""From observations to features: what policies of every kind of head put in front of it."""

from __future__ import annotations

import abc
from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.model import StatePolicyConfig
from rlinf.data.messages.embodied import Observation
from rlinf.models.control.normalizer import build_normalizer


class Encoder(nn.Module, abc.ABC):
    """Turns what is seen of ``N`` observations into features [N, F].

    Attributes:
        width: Features (``F``).
    """

    width: int

    @abc.abstractmethod
    def observe(self, obs: Observation, device: torch.device) -> dict[str, torch.Tensor]:
        """Return what is seen of ``B`` observations, as trajectories and replays keep it: tensors [B, ...]."""

    @abc.abstractmethod
    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return features, float [N, F], of what ``observe`` returned; further entries are ignored."""

    def augment(self, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Return random views of the same states to learn from; this base leaves them as they are."""
        return inputs

    def shard_units(self) -> list[nn.Module]:
        """Return the submodules that are sharded and recomputed as units."""
        return []

    def update_statistics(
        self,
        inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """See ``BasePolicy``; this base keeps no statistics."""


class StateEncoder(Encoder):
    """``obs["states"]`` float32 [B, S] as it is, or normalised by running statistics.

    Args:
        cfg: The model's keys.
    """

    def __init__(self, cfg: StatePolicyConfig) -> None:
        super().__init__()
        self.width = cfg.state_size
        self.normalizer = build_normalizer(cfg)

    def observe(self, obs: Observation, device: torch.device) -> dict[str, torch.Tensor]:
        """See ``Encoder``."""
        return {"states": obs["states"].to(device, torch.float32)}

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``Encoder``."""
        features: torch.Tensor = self.normalizer(inputs["states"])
        return features

    def update_statistics(
        self,
        inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """See ``Encoder``."""
        self.normalizer.update(inputs["states"][valid], all_reduce)
