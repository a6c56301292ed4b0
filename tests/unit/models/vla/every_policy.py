"""All kinds of vision-language-action policies at a tiny size, by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlinf.data.messages.embodied import Observation
from rlinf.models.base_policy import BasePolicy
from tests.unit.models.vla.gr00t_policies import gr00t_policy
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.smolvla_policies import smolvla_policy
from tests.unit.models.vla.vla_policies import observations, random_policy

L1: dict[str, Any] = {"head": "l1", "use_proprio": True, "state_dim": 2}
LORA: dict[str, Any] = {"is_lora": True, "lora_rank": 2}
TOKENS = partial(random_policy, "oft", temperature=1.3, top_k=8)
EVERY: dict[str, Any] = {
    "openvla": partial(random_policy, "openvla", temperature=0.8),
    "tokens": TOKENS,
    "l1": partial(random_policy, "oft", **L1),
    "film": partial(random_policy, "oft", **L1, use_film=True),
    "pi0": partial(pi_policy, variant="pi0"),
    "pi05": partial(pi_policy, variant="pi05"),
    "smolvla": smolvla_policy,
    "gr00t": gr00t_policy,
}
OF_TWO = ("openvla", "tokens", "l1", "film")
"""Kinds that read two numbers as a state, or none; the others read three."""


def every_policy(kind: str, folder: Path, *, adapted: bool = False, **keys: Any) -> BasePolicy:
    """Return a policy with a value head; with adapters, none of which are as they start."""
    policy: BasePolicy = EVERY[kind](folder, add_value_head=True, **(LORA if adapted else {}), **keys)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if policy.is_adapter(name) or name.startswith("value_head."):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return policy


def seen_by(kind: str) -> Observation:
    """Return three observations for a policy of the kind."""
    states = {} if kind in OF_TWO else {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}
    return observations() | states
