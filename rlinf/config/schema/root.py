"""The whole recipe: what every task has, and what each kind of task adds."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlinf.config.schema.algorithm import AlgorithmConfig, EmbodiedAlgorithmConfig, TextAlgorithmConfig
from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.cluster import ClusterConfig
from rlinf.config.schema.data import DataConfig
from rlinf.config.schema.env import EnvSectionConfig
from rlinf.config.schema.generation import GenerationConfig
from rlinf.config.schema.reward import RewardConfig
from rlinf.config.schema.runner import ReasoningRunnerConfig, RunnerConfig
from rlinf.config.schema.text_data import TextDataConfig
from rlinf.config.schema.text_reward import TextRewardsConfig
from rlinf.config.schema.train import ActorConfig, RolloutConfig, TextActorConfig, WeightSyncerConfig


@dataclass(frozen=True, kw_only=True)
class RLinfConfig(ConfigSection):
    """A parsed recipe; what workers and runners receive. ``runner.task_type`` decides which class it is."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    """Nodes and placement."""
    runner: RunnerConfig = field(default_factory=RunnerConfig)
    """Length, evaluation, checkpoints, logging."""
    algorithm: AlgorithmConfig
    """Advantage and loss."""
    actor: ActorConfig
    """Model and training."""
    weight_syncer: WeightSyncerConfig = field(default_factory=WeightSyncerConfig)
    """Weights from actor to rollout."""

    @property
    def group_names(self) -> dict[str, str]:
        """Names of the worker groups by the components that are placed, in the order in which errors list them."""
        return {"actor": self.actor.group_name}


@dataclass(frozen=True, kw_only=True)
class EmbodiedConfig(RLinfConfig):
    """``task_type: embodied`` and ``offline``: policies that act in environments."""

    algorithm: EmbodiedAlgorithmConfig
    """Advantage and loss."""
    env: EnvSectionConfig
    """Environments."""
    reward: RewardConfig | None = None
    """Rewards beside, or instead of, the environments' own."""
    data: DataConfig | None = None
    """Dataset of an offline run."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """Inference."""

    @property
    def group_names(self) -> dict[str, str]:
        """See ``RLinfConfig``."""
        names = {"actor": self.actor.group_name, "rollout": self.rollout.group_name, "env": self.env.group_name}
        return names if self.reward is None else {**names, "reward": self.reward.group_name}


@dataclass(frozen=True, kw_only=True)
class ReasoningConfig(RLinfConfig):
    """``task_type: reasoning``: language models that answer prompts."""

    runner: ReasoningRunnerConfig = field(default_factory=ReasoningRunnerConfig)
    """Length, evaluation, checkpoints, logging."""
    algorithm: TextAlgorithmConfig
    """Advantage and loss."""
    actor: TextActorConfig
    """Model and training."""
    data: TextDataConfig
    """Prompts."""
    reward: TextRewardsConfig
    """What answers earn."""
    rollout: GenerationConfig
    """Generation engines."""

    @property
    def group_names(self) -> dict[str, str]:
        """See ``RLinfConfig``."""
        return {
            "actor": self.actor.group_name,
            "rollout": self.rollout.group_name,
            "reward": self.reward.group_name,
        }

    @property
    def max_context_tokens(self) -> int:
        """Most tokens that a prompt and its answer have together."""
        return self.data.max_prompt_length + self.algorithm.sampling_params.max_new_tokens

    @property
    def max_prompts_per_step(self) -> int:
        """Prompts that a step uses up at most, those among them whose groups are replaced."""
        return self.algorithm.max_num_gen_batches * (self.data.gen_batch_size or self.data.rollout_batch_size)

    @property
    def answers_per_step(self) -> int:
        """Answers that one step trains on."""
        return self.data.rollout_batch_size * self.algorithm.group_size
