"""Which dataclass a discriminator's value selects. Built-ins are listed here; plug-ins register their own beside.

Names that are registered without a dataclass of their own take the family's base: they accept its keys and no others.
"""

from __future__ import annotations

from typing import TypeVar

from rlinf.config.schema.algorithm import (
    ActorCriticLossConfig,
    ActorLossConfig,
    AdvantageConfig,
    BCLossConfig,
    CISPOLossConfig,
    CrossQLossConfig,
    DAggerLossConfig,
    DecoupledActorCriticLossConfig,
    GAEConfig,
    GRPOConfig,
    GSPOLossConfig,
    HGDAggerLossConfig,
    IQLLossConfig,
    LossConfig,
    NFTLossConfig,
    NoAdvantageConfig,
    RawAdvantageConfig,
    ReinPPBaselineConfig,
    ReinPPConfig,
    RLOOConfig,
    SACLossConfig,
    SftLossConfig,
    TD3LossConfig,
)
from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.data import D4RLDataConfig, DataConfig, LeRobotDataConfig, MinariDataConfig
from rlinf.config.schema.env import (
    ActionDelayConfig,
    ActionRepeatConfig,
    EnvConfig,
    FrameStackConfig,
    FrankaSimEnvConfig,
    GymnasiumEnvConfig,
    ManiSkillEnvConfig,
    MetaWorldEnvConfig,
    NoEnvConfig,
    PixelReachEnvConfig,
    WrapperConfig,
)
from rlinf.config.schema.expert import ExpertConfig, PolicyExpertConfig, ScriptedExpertConfig
from rlinf.config.schema.generation import (
    GenerationConfig,
    HFGenerationConfig,
    SGLangGenerationConfig,
    VLLMGenerationConfig,
)
from rlinf.config.schema.intervention import (
    IntervenerConfig,
    InterventionConfig,
    KeyboardIntervenerConfig,
    ScriptedIntervenerConfig,
    SpaceMouseIntervenerConfig,
)
from rlinf.config.schema.model import (
    CausalLMConfig,
    CNNPolicyConfig,
    FlowPolicyConfig,
    MLPPolicyConfig,
    ModelConfig,
)
from rlinf.config.schema.realworld import FrankaHardwareConfig, RealWorldEnvConfig
from rlinf.config.schema.reward import (
    ActionPenaltyConfig,
    ApiRewardConfig,
    EnvRewardConfig,
    ModelRewardConfig,
    RewardTermConfig,
)
from rlinf.config.schema.root import EmbodiedConfig, ReasoningConfig, RLinfConfig, SftConfig
from rlinf.config.schema.text_reward import (
    CodeRewardConfig,
    FunctionRewardConfig,
    MathRewardConfig,
    OverlongRewardConfig,
    SearchR1RewardConfig,
    TextApiRewardConfig,
    TextModelRewardConfig,
    VQARewardConfig,
)
from rlinf.registry import Registry

S = TypeVar("S", bound=ConfigSection)

task_configs: Registry[type[RLinfConfig]] = Registry("task type")
env_configs: Registry[type[EnvConfig]] = Registry("environment")
wrapper_configs: Registry[type[WrapperConfig]] = Registry("environment wrapper")
intervener_configs: Registry[type[IntervenerConfig]] = Registry("intervener")
hardware_configs: Registry[type[ConfigSection]] = Registry("hardware type")
"""By ``hardware.type``: keys of an entry of its ``configs``; other types have any."""
model_configs: Registry[type[ModelConfig]] = Registry("model")
advantage_configs: Registry[type[AdvantageConfig]] = Registry("advantage estimator")
loss_configs: Registry[type[LossConfig]] = Registry("policy loss")
reward_configs: Registry[type[RewardTermConfig]] = Registry("reward")
expert_configs: Registry[type[ExpertConfig]] = Registry("expert")
data_configs: Registry[type[DataConfig]] = Registry("dataset format")
generation_configs: Registry[type[GenerationConfig]] = Registry("generation engine")

task_configs.register("embodied", EmbodiedConfig)
task_configs.register("offline", EmbodiedConfig)
task_configs.register("reasoning", ReasoningConfig)
task_configs.register("sft", SftConfig)
env_configs.register("frankasim", FrankaSimEnvConfig)
env_configs.register("gymnasium", GymnasiumEnvConfig)
env_configs.register("maniskill", ManiSkillEnvConfig)
env_configs.register("metaworld", MetaWorldEnvConfig)
env_configs.register("pixel_reach", PixelReachEnvConfig)
env_configs.register("realworld", RealWorldEnvConfig)
env_configs.register("none", NoEnvConfig)
hardware_configs.register("franka", FrankaHardwareConfig)
wrapper_configs.register("action_delay", ActionDelayConfig)
wrapper_configs.register("action_repeat", ActionRepeatConfig)
wrapper_configs.register("frame_stack", FrameStackConfig)
wrapper_configs.register("intervention", InterventionConfig)
intervener_configs.register("keyboard", KeyboardIntervenerConfig)
intervener_configs.register("scripted", ScriptedIntervenerConfig)
intervener_configs.register("spacemouse", SpaceMouseIntervenerConfig)
model_configs.register("cnn_policy", CNNPolicyConfig)
model_configs.register("mlp_policy", MLPPolicyConfig)
model_configs.register("flow_policy", FlowPolicyConfig)
# The names of families are those that recipes of language models use; what is loaded depends on the checkpoint alone.
model_configs.register("causal_lm", CausalLMConfig)
model_configs.register("qwen2.5", CausalLMConfig)
model_configs.register("qwen3", CausalLMConfig)
advantage_configs.register("gae", GAEConfig)
advantage_configs.register("grpo", GRPOConfig)
advantage_configs.register("reinpp", ReinPPConfig)
advantage_configs.register("reinpp_baseline", ReinPPBaselineConfig)
advantage_configs.register("rloo", RLOOConfig)
advantage_configs.register("raw", RawAdvantageConfig)
advantage_configs.register("sft", NoAdvantageConfig)
advantage_configs.register("embodied_sac", NoAdvantageConfig)
advantage_configs.register("embodied_crossq", NoAdvantageConfig)
advantage_configs.register("embodied_td3", NoAdvantageConfig)
advantage_configs.register("embodied_bc", NoAdvantageConfig)
advantage_configs.register("offline_iql", NoAdvantageConfig)
advantage_configs.register("embodied_dagger", NoAdvantageConfig)
advantage_configs.register("embodied_hgdagger", NoAdvantageConfig)
loss_configs.register("actor", ActorLossConfig)
loss_configs.register("actor_critic", ActorCriticLossConfig)
loss_configs.register("gspo", GSPOLossConfig)
loss_configs.register("cispo", CISPOLossConfig)
loss_configs.register("sft", SftLossConfig)
loss_configs.register("embodied_nft", NFTLossConfig)
loss_configs.register("decoupled_actor_critic", DecoupledActorCriticLossConfig)
loss_configs.register("embodied_sac", SACLossConfig)
loss_configs.register("embodied_crossq", CrossQLossConfig)
loss_configs.register("embodied_td3", TD3LossConfig)
reward_configs.register("action_penalty", ActionPenaltyConfig)
reward_configs.register("api", ApiRewardConfig)
reward_configs.register("code", CodeRewardConfig)
reward_configs.register("env", EnvRewardConfig)
reward_configs.register("function", FunctionRewardConfig)
reward_configs.register("math", MathRewardConfig)
reward_configs.register("model", ModelRewardConfig)
reward_configs.register("overlong", OverlongRewardConfig)
reward_configs.register("searchr1", SearchR1RewardConfig)
reward_configs.register("text_api", TextApiRewardConfig)
reward_configs.register("text_model", TextModelRewardConfig)
reward_configs.register("vqa", VQARewardConfig)
loss_configs.register("embodied_bc", BCLossConfig)
loss_configs.register("offline_iql", IQLLossConfig)
loss_configs.register("embodied_dagger", DAggerLossConfig)
loss_configs.register("embodied_hgdagger", HGDAggerLossConfig)
expert_configs.register("policy", PolicyExpertConfig)
expert_configs.register("scripted", ScriptedExpertConfig)
data_configs.register("minari", MinariDataConfig)
data_configs.register("d4rl", D4RLDataConfig)
data_configs.register("lerobot", LeRobotDataConfig)
generation_configs.register("hf", HFGenerationConfig)
generation_configs.register("vllm", VLLMGenerationConfig)
generation_configs.register("sglang", SGLangGenerationConfig)
