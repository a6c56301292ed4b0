"""What language models have in common, whichever training engine holds them."""

from __future__ import annotations

import abc
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from rlinf.config.schema.model import CausalLMConfig
from rlinf.data.packing import PackedSequences
from rlinf.models.language.expert_routing import ExpertRouting
from rlinf.models.trainable import TrainableModel


@dataclass(frozen=True, slots=True)
class TokenEvaluation:
    """Log-probabilities and values of packed tokens; entry i is about token i, given those before it in its sequence.

    Entries of tokens that were not scored, and of the first token of each sequence, are 0.

    Attributes:
        logprobs: float32 [T]; log-probability of the token.
        entropy: float32 [T]; entropy of the distribution that the token is from.
        values: float32 [T]; value of the state before the token. None without a value head.
        is_top: bool [T]; whether the token is the most likely one. None unless requested.
    """

    logprobs: torch.Tensor
    entropy: torch.Tensor
    values: torch.Tensor | None
    is_top: torch.Tensor | None = None


class LanguageModel(TrainableModel):
    """A decoder-only language model on packed sequences, or one rank's part of it.

    Attributes:
        cfg: The ``actor.model`` section.
        hf_config: Configuration of the whole model, as transformers has it.
        balance_scale: Factor on the gradient of the balance loss of experts; the engine sets that of the loss.
    """

    cfg: CausalLMConfig
    hf_config: Any
    balance_scale: float = 1.0

    @abc.abstractmethod
    def forward(
        self,
        packed: PackedSequences,
        *,
        temperature: float = 1.0,
        scored: torch.Tensor | None = None,
        with_top: bool = False,
        routing: ExpertRouting | None = None,
    ) -> TokenEvaluation:
        """Compute log-probabilities, entropies and values of every token of a pack, with gradients.

        Args:
            packed: On the model's device.
            temperature: Divides the logits as the sampler does; 0 counts as 1.
            scored: bool [T]; tokens to score: of the others (prompts) no logits are computed. None scores
                all. The first token of a sequence is never scored.
            with_top: Whether to find out which tokens are the most likely ones.
            routing: What the routers of experts do; None leaves it to them.
        """

    @property
    @abc.abstractmethod
    def has_value_head(self) -> bool:
        """Whether it also predicts the values of states."""

    @property
    @abc.abstractmethod
    def can_share_prompts(self) -> bool:
        """Whether sequences of a pack may share what they begin with."""

    @property
    @abc.abstractmethod
    def num_layer_parameters(self) -> int:
        """Parameters of all decoder layers of the whole model."""

    @abc.abstractmethod
    def without_adapters(self) -> AbstractContextManager[None]:
        """Return a context in which the model is the one before training (``is_lora``): the reference policy."""
