"""The ``reward`` section of embodied recipes, and what all rewards share; one dataclass per kind.

Rewards of text are in ``rlinf.config.schema.text_reward``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rlinf.config.schema.base import ConfigSection, Fraction, NonNegativeInt, PositiveFloat
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class RewardTermConfig(ConfigSection):
    """Keys of every reward."""

    reward_type: str
    """Registered reward."""
    weight: float = 1.0
    """Factor in the sum that the policy learns from."""


@dataclass(frozen=True, kw_only=True)
class EmbodiedRewardConfig(RewardTermConfig):
    """Keys of every reward of actions."""

    reward_mode: Literal["per_step", "terminal"] = "per_step"
    """Whether every chunk of actions is rewarded, or only the one that ends an episode."""


@dataclass(frozen=True, kw_only=True)
class EnvRewardConfig(EmbodiedRewardConfig):
    """``reward_type: env``: what the environment itself gives."""


@dataclass(frozen=True, kw_only=True)
class ActionPenaltyConfig(EmbodiedRewardConfig):
    """``reward_type: action_penalty``: minus the mean square of an action's dimensions."""


@dataclass(frozen=True, kw_only=True)
class ModelRewardConfig(EmbodiedRewardConfig):
    """``reward_type: model``: a learned classifier's probability that the task is solved after the chunk."""

    model_path: str
    """File that ``examples/reward/train_reward_model.py`` wrote."""
    reward_threshold: Fraction = 0.0
    """Probabilities below this count as 0."""

    def required_files(self) -> dict[str, str]:
        """Return the classifier."""
        return {"model_path": self.model_path}


@dataclass(frozen=True, kw_only=True)
class ApiRewardConfig(EmbodiedRewardConfig):
    """``reward_type: api``: a number for each environment from an HTTP service."""

    url: str
    """Address that the requests are posted to."""
    obs_keys: list[str]
    """Keys of the observation that are sent."""
    timeout_seconds: PositiveFloat = 30.0
    """Time of a request, from connecting to the last byte of the response."""
    max_retries: NonNegativeInt = 3
    """Further attempts after one that failed, each twice as long after the last."""


@dataclass(frozen=True, kw_only=True)
class RewardConfig(ConfigSection):
    """The ``reward`` section; without it policies learn from the environments' own rewards."""

    group_name: str = "RewardGroup"
    """Name of the worker group."""
    rewards: dict[str, EmbodiedRewardConfig] = field(default_factory=dict)
    """Rewards by names of your choice: what is learned from is their weighted sum, ``env/reward/<name>`` shows each."""


rewards: Registry[Any] = Registry("reward")
"""By ``reward_type``; the config says whether it is one of actions (here) or of text (``text_reward``)."""
rewards.register(
    "action_penalty", "rlinf.algorithms.rewards.action_penalty:ActionPenaltyReward", config=ActionPenaltyConfig
)
rewards.register("api", "rlinf.workers.reward.api_reward:ApiReward", config=ApiRewardConfig)
rewards.register("env", "rlinf.algorithms.rewards.env_reward:EnvReward", config=EnvRewardConfig)
rewards.register("model", "rlinf.workers.reward.model_reward:ModelReward", config=ModelRewardConfig)
