"""The whole recipe."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlinf.config.schema.algorithm import AlgorithmConfig
from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.cluster import ClusterConfig
from rlinf.config.schema.data import DataConfig
from rlinf.config.schema.env import EnvSectionConfig
from rlinf.config.schema.reward import RewardConfig
from rlinf.config.schema.runner import RunnerConfig
from rlinf.config.schema.train import ActorConfig, RolloutConfig, WeightSyncerConfig


@dataclass(frozen=True, kw_only=True)
class RLinfConfig(ConfigSection):
    """A parsed recipe; what workers and runners receive."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    """Nodes and placement."""
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    """Length, evaluation, checkpoints, logging."""
    algorithm: AlgorithmConfig
    """Advantage and loss."""
    env: EnvSectionConfig
    """Environments."""
    reward: RewardConfig | None = None
    """Rewards beside, or instead of, the environments' own."""
    data: DataConfig | None = None
    """Dataset of an offline run."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """Inference."""
    actor: ActorConfig
    """Model and training."""
    weight_syncer: WeightSyncerConfig = field(default_factory=WeightSyncerConfig)
    """Weights from actor to rollout."""
