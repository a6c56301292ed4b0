"""The ``critic`` section of reasoning recipes: a value model of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlinf.config.schema.base import ConfigSection, PositiveFloat
from rlinf.config.schema.model import CausalLMConfig
from rlinf.config.schema.train import FSDPConfig, OptimConfig


@dataclass(frozen=True, kw_only=True)
class CriticConfig(ConfigSection):
    """``critic``: a second model with a value head, which predicts the returns of tokens for ``adv_type: gae``.

    It is on the actor's ranks, under FSDP2, whichever engine trains the policy.
    """

    use_critic_model: bool = False
    """Whether there is one; without it values come from the policy's own head (``actor.model.add_value_head``)."""
    model: CausalLMConfig | None = None
    """The model that it starts from, to which a value head is added; null starts from ``actor.model``."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Its optimizer."""
    fsdp_config: FSDPConfig = field(default_factory=FSDPConfig)
    """Its sharding and precision."""
    value_clip: PositiveFloat | None = None
    """Largest change of a value prediction per update that is rewarded; null does not clip."""
    huber_delta: PositiveFloat | None = None
    """Switch from squared to linear value error at this size; null is squared throughout."""
    enable_offload: bool = False
    """Move its weights and optimizer state to host memory while it neither predicts nor learns."""
