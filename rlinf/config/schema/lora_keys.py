"""Keys of low-rank adapters, which language models and vision-language-action policies share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from rlinf.config.schema.base import ConfigSection, PositiveFloat, PositiveInt

KeysT = TypeVar("KeysT", bound="LoRAKeys")


@dataclass(frozen=True, kw_only=True)
class LoRAKeys(ConfigSection):
    """Low-rank adapters in the linear layers of a model."""

    is_lora: bool = False
    """Train low-rank adapters and leave the weights as they are. Engines and rollouts get the whole model once; then
    only what is trained travels, and each worker adds adapters to a copy of the model that it keeps in host memory."""
    lora_rank: PositiveInt = 32
    """Rank of the adapters."""
    lora_alpha: PositiveFloat | None = None
    """The adapters' output is multiplied by this over ``lora_rank``; null takes ``lora_rank``."""
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )
    """Names of the linear layers that have adapters."""
    lora_path: str | None = None
    """Folder of an adapter of ``peft`` to start from; null starts from one that changes nothing. Policies without
    ``is_lora`` have it added in."""

    def without_adapters(self: KeysT) -> KeysT:
        """Return the keys of the same model whose adapters have been added in."""
        return replace(self, is_lora=False, lora_path=None)

    @property
    def lora_scaling(self) -> float:
        """Factor on the adapters' output."""
        return (self.lora_rank if self.lora_alpha is None else self.lora_alpha) / self.lora_rank
