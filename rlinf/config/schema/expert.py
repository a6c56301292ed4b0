"""Experts that a policy can imitate while it acts: one dataclass per type, all of them sharing ``ExpertConfig``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.frozen_policy import FrozenPolicyKeys
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class ExpertConfig(ConfigSection):
    """Keys of every expert."""

    expert_type: str
    """Registered expert."""


@dataclass(frozen=True, kw_only=True)
class PolicyExpertConfig(ExpertConfig, FrozenPolicyKeys):
    """``expert_type: policy``: a trained policy, which acts greedily, in the precision of the rollout."""


@dataclass(frozen=True, kw_only=True)
class ScriptedExpertConfig(ExpertConfig):
    """``expert_type: scripted``: a policy that is a program, as simulators bring along."""

    policy: str
    """Registered scripted policy, ``metaworld`` say, which knows all of its tasks."""


experts: Registry[Any] = Registry("expert", config=ExpertConfig)
"""By ``algorithm.expert.expert_type``; called as ``builder(cfg, recipe=..., device=...)``."""
experts.register("policy", "rlinf.workers.rollout.experts:build_policy_expert", config=PolicyExpertConfig)
experts.register("scripted", "rlinf.workers.rollout.experts:build_scripted_expert", config=ScriptedExpertConfig)
