"""Who may act in place of a policy: people at a device, or programs that stand in for them.

Imports what ``rlinf.envs`` may. An intervener is one file here that implements ``Intervener``, with its dataclass and
its registration in ``rlinf.config.schema.intervention``; from outside, use ``register_intervener``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rlinf.config.registries import interveners

if TYPE_CHECKING:
    import torch

    from rlinf.config.schema.env import EnvConfig as EnvConfig
    from rlinf.data.messages.embodied import Observation


@dataclass(frozen=True, slots=True)
class Situation:
    """What one environment is about to do.

    Attributes:
        obs: What the policy acted on, one row.
        action: float32 [A]; what the policy wants to do.
        reward: The last step's reward; 0 at the start of an episode.
        step: Actions executed in the episode so far.
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
        """Return what is done instead, or None to let the policy act.

        Returns:
            float32 [A], in the convention of policies (``env.*.action_convention``).
        """

    def close(self) -> None:
        """Free the device."""


register_intervener = interveners.register
"""``register_intervener(name, builder, config=MyConfig)`` makes an intervener known from outside."""
