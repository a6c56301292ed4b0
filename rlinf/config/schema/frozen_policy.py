"""Keys of a second policy, which is never trained: an expert, or a teacher."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.model import ModelConfig
from rlinf.config.schema.vla import VLAConfig


@dataclass(frozen=True, kw_only=True)
class FrozenPolicyKeys(ConfigSection):
    """What the second policy is, and where its weights are."""

    model: ModelConfig | None = None
    """Its model; null takes ``actor.model``."""
    model_path: str | None = None
    """Folder that it is read from instead of ``actor.model.model_path``; the rest of ``actor.model`` holds for it."""
    ckpt_path: str | None = None
    """Its weights, as a run has saved them: a checkpoint folder, ``.pt`` or ``.safetensors``."""

    def model_beside(self, policy: ModelConfig) -> ModelConfig:
        """Return the section of its model.

        Args:
            policy: The ``actor.model`` section.
        """
        model = self.model or policy
        if self.model_path is not None and isinstance(model, VLAConfig):
            model = replace(model, model_path=self.model_path, is_lora=False, lora_path=None)
        return model

    def required_files(self) -> dict[str, str]:
        """Return the weights."""
        return {} if self.ckpt_path is None else {"ckpt_path": self.ckpt_path}
