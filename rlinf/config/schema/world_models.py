"""``env_type: world_model`` and the registry of world models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rlinf.config.schema.base import Fraction
from rlinf.config.schema.env import EnvConfig, envs
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class WorldModelEnvConfig(EnvConfig):
    """``env_type: world_model``: episodes that a learned model imagines, from frames that were recorded."""

    supports_offload: ClassVar[bool] = True

    world_model_type: str = "frame_unet"
    """Registered world model."""
    model_path: str
    """Folder of the trained model; ``examples/world_model/train_world_model.py`` writes one."""
    data_path: str
    """Data set in the LeRobot format, of which episodes take their first frames, sentences and states."""
    start_frames: Literal["first", "any"] = "first"
    """Begin where recorded episodes begin, or at any of their frames."""
    success_threshold: Fraction = 0.5
    """Probability of success, as the world model judges a frame, from which the task counts as solved. The first such
    frame after one below it ends the episode, and is its reward: 1."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what reads the data set."""
        return ("pyarrow",)

    def required_files(self) -> dict[str, str]:
        """Return the model and the data set."""
        return {"model_path": self.model_path, "data_path": self.data_path}


world_models: Registry[Any] = Registry("world model")
"""By ``env.*.world_model_type``: classes derived from ``rlinf.models.world.world_model.WorldModel``."""
world_models.register("frame_unet", "rlinf.models.world.frame_unet:FrameUNet")

envs.register("world_model", "rlinf.envs.simulators.world_model_env:WorldModelEnv", config=WorldModelEnvConfig)
