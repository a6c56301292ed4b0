"""Who may act in place of a policy: people at a device, or programs that stand in for them.

Imports what ``rlinf.envs`` may. An intervener is one file here that implements ``Intervener``, with its dataclass and
its registration in ``rlinf.config.schema.intervention``; from outside, use ``register_intervener``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rlinf.config.registries import interveners

if TYPE_CHECKING:
    import torch

    from rlinf.config.schema.env import EnvConfig
    from rlinf.config.schema.intervention import IntervenerConfig
    from rlinf.data.embodied import Observation


@dataclass(frozen=True, slots=True)
class Situation:
    """What one environment is about to do.

    Attributes:
        obs: What the policy acted on, one row.
        action: float32 [A]; what the policy wants to do.
        reward: The last step's reward; 0 at the start of an episode.
        step: Actions taken in the episode so far.
    """

    obs: Observation
    action: torch.Tensor
    reward: float
    step: int


class Intervener(Protocol):
    """Watches one environment and acts in place of the policy where it chooses to.

    One that remembers something from one action to the next names the attributes that hold it (numbers, strings,
    tensors) in a tuple ``state_names``, so that a resumed run goes on with it.
    """

    def begin(self) -> None:
        """An episode begins."""

    def act(self, situation: Situation) -> torch.Tensor | None:
        """Return what is done instead, float32 [A] as the environment takes it, or None to let the policy act."""

    def close(self) -> None:
        """Free the device."""


class IntervenerBuilder(Protocol):
    """Builds the intervener of one environment."""

    def __call__(self, cfg: Any, *, env: EnvConfig, row: int) -> Intervener:
        """Build.

        Args:
            cfg: The ``intervener`` section.
            env: The environment's configuration.
            row: Which of the environments of its worker it is, from 0.
        """


def register_intervener(name: str, builder: IntervenerBuilder, config: type[IntervenerConfig]) -> None:
    """Make an intervener known under ``intervener_type`` of the wrapper ``intervention``.

    Args:
        name: The name recipes use.
        builder: Called as ``builder(cfg, env=..., row=...)`` for each environment.
        config: Dataclass of its keys, derived from ``IntervenerConfig``.

    Raises:
        RegistryError: The name is taken.
    """
    interveners.register(name, builder, config=config)
