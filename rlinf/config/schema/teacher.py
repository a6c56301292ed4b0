"""The section ``algorithm.teacher``: the model that a language model or a policy is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.frozen_policy import FrozenPolicyKeys
from rlinf.config.schema.model import CausalLMConfig
from rlinf.config.schema.train import FSDPConfig


@dataclass(frozen=True, kw_only=True)
class TeacherConfig(ConfigSection):
    """``algorithm.teacher``: a second model of the same vocabulary, which is never trained.

    It is on the actor's ranks, under FSDP2, whichever engine trains the policy.
    """

    model: CausalLMConfig
    """The model, of any size."""
    fsdp_config: FSDPConfig = field(default_factory=FSDPConfig)
    """Its sharding and precision."""
    enable_offload: bool = False
    """Move its weights to host memory while they are not in use."""


@dataclass(frozen=True, kw_only=True)
class PolicyTeacherConfig(FrozenPolicyKeys):
    """``algorithm.teacher`` of policies that act: a second policy with the same actions, which is never trained.

    It is on the actor's ranks, sharded as the policy is.
    """

    enable_offload: bool = False
    """Move its weights to host memory while they are not in use."""
