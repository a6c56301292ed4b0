"""The whole recipe: what every task has, and what each kind of task adds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rlinf.config.schema.agent import ONE_REQUEST_WORKFLOWS, AgentConfig
from rlinf.config.schema.algorithm import (
    AlgorithmConfig,
    BCLossConfig,
    DAggerLossConfig,
    EmbodiedAlgorithmConfig,
    LanguageAlgorithmConfig,
    NoAdvantageConfig,
    SftAlgorithmConfig,
    TextAlgorithmConfig,
)
from rlinf.config.schema.base import ConfigSection, Precision
from rlinf.config.schema.cluster import ClusterConfig
from rlinf.config.schema.critic import CriticConfig
from rlinf.config.schema.data import DataConfig
from rlinf.config.schema.env import EnvSectionConfig
from rlinf.config.schema.expert import ScriptedExpertConfig
from rlinf.config.schema.generation import GenerationConfig
from rlinf.config.schema.inference import InferenceConfig
from rlinf.config.schema.lora_keys import LoRAKeys
from rlinf.config.schema.reward import RewardConfig, TextRewardsConfig
from rlinf.config.schema.runner import RunnerConfig, SftRunnerConfig, TextRunnerConfig
from rlinf.config.schema.text_data import SftDataConfig, TextDataConfig, TextRowsConfig
from rlinf.config.schema.train import (
    ActorConfig,
    CollectActorConfig,
    RolloutConfig,
    TextActorConfig,
    WeightSyncerConfig,
)
from rlinf.config.schema.value import ValueActorConfig, ValueAlgorithmConfig, ValueDataConfig
from rlinf.registry import Registry


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
    def learner(self) -> str:
        """Registered learner of the actor."""
        return self.algorithm.loss.learner

    @property
    def needs_master_weights(self) -> str | None:
        """The key by which a receiver needs the master weights as they are, if there is one."""
        model = self.actor.model
        return "actor.model.is_lora" if isinstance(model, LoRAKeys) and model.is_lora else None

    @property
    def published_precision(self) -> Precision | None:
        """Precision in which the actor publishes floating-point weights; None publishes the master weights as they are.

        Policies of environments keep parts of theirs in float32, so that only the recipe says otherwise.
        """
        return self.weight_syncer.bucket.bucket_dtype

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
    """Rewards in addition to, or instead of, the environments' own."""
    data: DataConfig | None = None
    """Dataset of an offline run, or of co-training (``actor.sft_loss_weight``)."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """Inference."""

    @property
    def group_names(self) -> dict[str, str]:
        """See ``RLinfConfig``."""
        names = {"actor": self.actor.group_name, "rollout": self.rollout.group_name, "env": self.env.group_name}
        return names if self.reward is None else {**names, "reward": self.reward.group_name}

    def actions_per_chunk(self, mode: Literal["train", "eval"]) -> int:
        """Return how many actions are chosen at once: those of the model, or one by scripts and operators."""
        if mode == "eval" and self.env.eval is not None and self.env.eval.data_collection.is_scripted:
            return 1
        return self.actor.model.num_action_chunks

    @property
    def labelled_in_env(self) -> DAggerLossConfig | None:
        """The loss whose scripted expert labels each action of a chunk, for which it sits where environments do."""
        loss = self.algorithm.loss
        if not isinstance(loss, DAggerLossConfig) or self.actor.model.num_action_chunks == 1:
            return None
        return loss if isinstance(loss.expert, ScriptedExpertConfig) else None


def _no_algorithm() -> EmbodiedAlgorithmConfig:
    return EmbodiedAlgorithmConfig(
        adv_type="embodied_bc", loss_type="embodied_bc", advantage=NoAdvantageConfig(), loss=BCLossConfig()
    )


@dataclass(frozen=True, kw_only=True)
class CollectConfig(EmbodiedConfig):
    """``task_type: collect``: a script or an operator acts, and the episodes become a data set; nothing learns."""

    algorithm: EmbodiedAlgorithmConfig = field(default_factory=_no_algorithm)
    """Not used."""
    actor: CollectActorConfig = field(default_factory=CollectActorConfig)
    """Its ``seed`` alone is used."""

    @property
    def group_names(self) -> dict[str, str]:
        """See ``RLinfConfig``: there is no actor."""
        return {"rollout": self.rollout.group_name, "env": self.env.group_name}


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(RLinfConfig):
    """What the recipes of language models have in common."""

    runner: TextRunnerConfig
    """Length, evaluation, checkpoints, logging."""
    algorithm: LanguageAlgorithmConfig
    """Loss, and how responses are sampled."""
    actor: TextActorConfig
    """Model and training."""
    data: TextRowsConfig
    """Data sets."""
    reward: TextRewardsConfig | None
    """Rewards of responses."""
    rollout: GenerationConfig | None
    """Generation engines."""

    @property
    def sequence_keys(self) -> str:
        """The keys that ``max_sequence_tokens`` follows from, for messages."""
        raise NotImplementedError

    @property
    def max_sequence_tokens(self) -> int:
        """Most tokens of a sequence that is trained on."""
        raise NotImplementedError

    @property
    def max_context_tokens(self) -> int:
        """Most tokens that a prompt and an answer of the engines have together."""
        raise NotImplementedError

    @property
    def engine_precision(self) -> Precision:
        """Precision of the generation engines' weights."""
        own = None if self.rollout is None else self.rollout.model.precision
        return own or self.actor.model.precision

    @property
    def published_precision(self) -> Precision | None:
        """See ``RLinfConfig``: that of the engines, where they are the only receivers."""
        if self.needs_master_weights is not None:
            return None
        return self.weight_syncer.bucket.bucket_dtype or self.engine_precision

    @property
    def group_names(self) -> dict[str, str]:
        """See ``RLinfConfig``."""
        optional = {"rollout": self.rollout, "reward": self.reward}
        sections = {name: section.group_name for name, section in optional.items() if section is not None}
        return {"actor": self.actor.group_name, **sections}


@dataclass(frozen=True, kw_only=True)
class ReasoningConfig(LanguageConfig):
    """``task_type: reasoning``: language models that answer prompts."""

    runner: TextRunnerConfig = field(default_factory=TextRunnerConfig)
    """Length, evaluation, checkpoints, logging."""
    algorithm: TextAlgorithmConfig
    """Advantage and loss."""
    data: TextDataConfig
    """Prompts."""
    reward: TextRewardsConfig
    """Rewards of responses."""
    rollout: GenerationConfig
    """Generation engines."""
    inference: InferenceConfig | None = None
    """Log-probabilities outside the actor."""
    critic: CriticConfig = field(default_factory=CriticConfig)
    """A value model of its own."""
    agent: AgentConfig | None = None
    """How episodes are played; left out, each is one completion of the prompt, which the engines sample by
    themselves."""

    @property
    def learner(self) -> str:
        """See ``RLinfConfig``: of language models, independent of the policy loss."""
        return "text"

    @property
    def group_names(self) -> dict[str, str]:
        """See ``RLinfConfig``."""
        names = super().group_names
        if self.inference is not None:
            names = {**names, "inference": self.inference.group_name}
        return {**names, "agent": self.agent.group_name} if self.agent is not None and self.places_agent else names

    @property
    def plays_episodes(self) -> bool:
        """Whether a workflow plays episodes; without one, and with ``rlvr``, a request to an engine is all there is."""
        return self.agent is not None and self.agent.workflow not in ONE_REQUEST_WORKFLOWS

    @property
    def places_agent(self) -> bool:
        """Whether a group of its own plays the episodes."""
        placed = (name.strip() for names in self.cluster.component_placement for name in str(names).split(","))
        return self.plays_episodes and "agent" in placed

    @property
    def needs_master_weights(self) -> str | None:
        """See ``LanguageConfig``; the inference group rounds as the actor does, from the same weights."""
        return super().needs_master_weights if self.inference is None else "inference"

    @property
    def sequence_keys(self) -> str:
        """See ``LanguageConfig``."""
        if self.agent is not None and self.agent.max_context_tokens is not None:
            return "agent.max_context_tokens"
        return "data.max_prompt_length + algorithm.sampling_params.max_new_tokens"

    @property
    def max_sequence_tokens(self) -> int:
        """See ``LanguageConfig``: a prompt and its answer."""
        return self.max_context_tokens

    @property
    def max_context_tokens(self) -> int:
        """See ``LanguageConfig``: of an episode, where there are any."""
        of_one_turn = self.data.max_prompt_length + self.algorithm.sampling_params.max_new_tokens
        return of_one_turn if self.agent is None else self.agent.max_context_tokens or of_one_turn

    @property
    def max_own_tokens(self) -> int:
        """Most tokens of a response that the model samples."""
        turns = self.agent.max_turns if self.agent is not None and self.plays_episodes else 1
        return min(turns * self.algorithm.sampling_params.max_new_tokens, self.max_context_tokens)

    @property
    def max_prompts_per_step(self) -> int:
        """Prompts that a step uses up at most, those among them whose groups are replaced."""
        return self.algorithm.max_num_gen_batches * (self.data.gen_batch_size or self.data.rollout_batch_size)

    @property
    def answers_per_step(self) -> int:
        """Answers that one step trains on."""
        return self.data.rollout_batch_size * self.algorithm.group_size


@dataclass(frozen=True, kw_only=True)
class SftConfig(LanguageConfig):
    """``task_type: sft``: language models that learn given answers."""

    runner: SftRunnerConfig = field(default_factory=SftRunnerConfig)
    """Length, evaluation, checkpoints, logging."""
    algorithm: SftAlgorithmConfig = field(default_factory=SftAlgorithmConfig)
    """Loss, and how evaluations sample."""
    data: SftDataConfig
    """Prompts with answers, or conversations."""
    reward: TextRewardsConfig | None = None
    """Rewards that mark answers as correct, where evaluations generate."""
    rollout: GenerationConfig | None = None
    """Generation engines that evaluations sample from; without them they measure loss and token accuracy alone."""

    @property
    def sequence_keys(self) -> str:
        """See ``LanguageConfig``."""
        return "data.max_length"

    @property
    def max_sequence_tokens(self) -> int:
        """See ``LanguageConfig``."""
        return self.data.max_length

    @property
    def max_context_tokens(self) -> int:
        """See ``LanguageConfig``."""
        return self.data.max_length + self.algorithm.sampling_params.max_new_tokens

    @property
    def samples_per_step(self) -> int:
        """Samples that one step trains on."""
        return self.algorithm.update_epoch * self.actor.global_batch_size


@dataclass(frozen=True, kw_only=True)
class ValueConfig(RLinfConfig):
    """``task_type: value``: models that learn to judge recorded frames; no environment and no policy takes part."""

    algorithm: ValueAlgorithmConfig = field(default_factory=ValueAlgorithmConfig)
    """Loss, and how judgements become advantages."""
    actor: ValueActorConfig
    """Model and training."""
    data: ValueDataConfig
    """Data sets."""


task_types: Registry[Any] = Registry("task type")
"""By ``runner.task_type``: the sections of a recipe, and the ``rlinf.runners.task_types.TaskType`` that runs it."""
task_types.register("collect", "rlinf.runners.task_types:COLLECT", config=CollectConfig)
task_types.register("embodied", "rlinf.runners.task_types:EMBODIED", config=EmbodiedConfig)
task_types.register("offline", "rlinf.runners.task_types:OFFLINE", config=EmbodiedConfig)
task_types.register("reasoning", "rlinf.runners.task_types:REASONING", config=ReasoningConfig)
task_types.register("sft", "rlinf.runners.task_types:SFT", config=SftConfig)
task_types.register("value", "rlinf.runners.task_types:VALUE", config=ValueConfig)
