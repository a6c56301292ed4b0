"""The ``actor.model`` section: one dataclass per model type, all of them sharing ``ModelConfig``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from rlinf.config.schema.base import (
    ConfigSection,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Precision,
)
from rlinf.config.schema.lora_keys import LoRAKeys
from rlinf.errors import ConfigError
from rlinf.registry import Registry

SizeT = TypeVar("SizeT")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ConfigSection):
    """Keys of every model."""

    has_velocity: ClassVar[bool] = False
    """Whether the model is a flow, which ``loss_type: embodied_nft`` needs (``VelocityPolicy``)."""

    carries_weights: ClassVar[bool] = False
    """Whether building the model loads trained weights, so that it can be evaluated without a checkpoint."""

    model_type: str
    """Registered model."""
    precision: Precision = "fp32"
    """Precision of the forward pass; master weights and optimizer state stay fp32."""
    add_value_head: bool = False
    """Whether the model also predicts values; needed by ``loss_type: actor_critic``."""
    add_q_head: bool = False
    """Whether the model has Q heads and squashes its actions into (-1, 1), which off-policy losses need; a
    vision-language-action policy's flow then starts from noise that a small policy with Q heads chooses."""
    num_q_heads: PositiveInt = 2
    """Q functions of the ensemble, with ``add_q_head``."""
    q_head_type: Literal["default", "layer_norm", "crossq"] = "default"
    """Q functions, with ``add_q_head``: plain, with layer normalisation (RLPD) or batch normalisation (CrossQ)."""
    num_action_chunks: PositiveInt = 1
    """Actions predicted from one observation and executed in a row (``C``)."""

    @property
    def inference_delay(self) -> int | None:
        """Actions that evaluation executes while the next chunk is computed; None if it waits for each chunk."""
        return None


@dataclass(frozen=True, kw_only=True)
class NoModelConfig(ModelConfig):
    """``model_type: none``: nothing learns, as in ``task_type: collect``."""

    model_type: str = "none"
    """Registered model."""


@dataclass(frozen=True, kw_only=True)
class StatePolicyConfig(ModelConfig):
    """Keys that all models on state observations share."""

    obs_dim: PositiveInt | None = None
    """Length of ``obs["states"]`` of one environment; null takes the environment's."""
    action_dim: PositiveInt | None = None
    """Length of one action; for discrete actions their number; null takes the environment's."""
    hidden_dims: list[PositiveInt] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers, of the policy and of the value or Q networks alike."""
    activation: Literal["tanh", "relu", "gelu"] = "tanh"
    """Activation between layers."""
    normalize_obs: bool = False
    """Normalise observations by running statistics, which travel with the weights."""
    obs_clip: PositiveFloat = 10.0
    """Bound of a normalised observation."""
    action_scale: PositiveFloat = 1.0
    """Actions are this times the policy's sample, clipped by the environment to its bounds; with ``add_q_head`` the
    sample is squashed into (-1, 1)."""

    @property
    def state_size(self) -> int:
        """``obs_dim``, which must be known by now."""
        return self._known("obs_dim", self.obs_dim)

    @property
    def action_size(self) -> int:
        """``action_dim``, which must be known by now."""
        return self._known("action_dim", self.action_dim)

    @staticmethod
    def _known(key: str, size: SizeT | None) -> SizeT:
        if size is None:
            raise ConfigError(
                f"actor.model.{key}: missing; a run takes it from the environment, a model that is built by itself "
                f"cannot. Give {key}."
            )
        return size


@dataclass(frozen=True, kw_only=True)
class MLPPolicyConfig(StatePolicyConfig):
    """``model_type: mlp_policy``: a multi-layer perceptron on state observations."""

    discrete: bool | None = None
    """A categorical policy over ``action_dim`` choices instead of a diagonal Gaussian; null takes the environment's
    where ``action_dim`` is left out too, and is false where it is given."""
    initial_log_std: float = 0.0
    """Start of the Gaussian's log standard deviation, which depends on the state only with ``add_q_head``."""
    deterministic: bool = False
    """With ``add_q_head``: one action for each state instead of a Gaussian."""
    exploration_noise: NonNegativeFloat = 0.1
    """With ``deterministic``: standard deviation of the noise on training's actions, which lie in (-1, 1)."""


@dataclass(frozen=True, kw_only=True)
class CameraPolicyConfig(StatePolicyConfig):
    """Keys of policies that see camera images next to state observations."""

    obs_dim: NonNegativeInt | None = None
    """Length of ``obs["states"]`` of one environment; 0 sees images only; null takes the environment's."""
    image_keys: list[str] = field(default_factory=list)
    """Cameras: keys of the observation that hold uint8 [B, H, W, 3]; each has an encoder of its own. Empty sees states
    only."""
    image_size: list[PositiveInt] | None = None
    """Height and width of the images in pixels; null takes the environment's."""
    num_frames: PositiveInt = 1
    """Images that the wrapper ``frame_stack`` puts side by side."""
    encoder: Annotated[str, encoders] = "small"
    """Convolutions: three plain layers, or a residual network with group normalisation."""
    latent_dim: PositiveInt = 128
    """Features of one camera."""
    random_shift: NonNegativeInt = 0
    """Largest shift, in pixels, of the images that are trained on (DrQ); only with ``add_q_head``."""

    @property
    def camera_size(self) -> tuple[int, int]:
        """``image_size``, which must be known by now: height and width."""
        height, width = self._known("image_size", self.image_size)
        return height, width

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape of the images of one camera: height, width and the channels of all its frames."""
        return (*self.camera_size, 3 * self.num_frames)


@dataclass(frozen=True, kw_only=True)
class CNNPolicyConfig(CameraPolicyConfig, MLPPolicyConfig):
    """``model_type: cnn_policy``: convolutions on camera images next to state observations, under the same heads."""

    obs_dim: NonNegativeInt | None = 0
    """Length of ``obs["states"]`` of one environment; 0 sees images only; null takes the environment's."""
    image_keys: list[str] = field(default_factory=lambda: ["main_images"])
    """Cameras: keys of the observation that hold uint8 [B, H, W, 3]; each has an encoder of its own."""


@dataclass(frozen=True, kw_only=True)
class FlowPolicyConfig(CameraPolicyConfig):
    """``model_type: flow_policy``: actions that a velocity field carries from noise, on states, images or both."""

    has_velocity: ClassVar[bool] = True

    num_denoise_steps: PositiveInt = 4
    """Steps from noise to an action."""
    velocity: Literal["mlp", "gated"] = "mlp"
    """Network of the velocity: ``mlp``, or ``gated``, whose steps forget a share of where they began (SAC Flow)."""
    noise_method: Literal["flow_ode", "flow_sde", "flow_noise"] = "flow_sde"
    """How training explores: ``flow_ode`` by the first noise alone, which leaves no log-probabilities, with samples
    cut off at -1 and 1; ``flow_sde`` by noise in every step that keeps the distribution; ``flow_noise`` by noise in
    every step of learned size."""
    noise_level: PositiveFloat = 0.5
    """``flow_sde``: factor on the noise; ``flow_noise``: standard deviation in each step at the start."""


@dataclass(frozen=True, kw_only=True)
class CausalLMConfig(ModelConfig, LoRAKeys):
    """``model_type: causal_lm`` (also ``qwen2.5``, ``qwen3`` and ``qwen3_moe``): a language model of transformers."""

    carries_weights: ClassVar[bool] = True

    model_path: str
    """Folder of a Hugging Face checkpoint; or its name on the Hub, unless ``HF_HUB_OFFLINE`` is set."""
    attn_implementation: Literal["auto", "sdpa", "flash_attention_2"] = "auto"
    """Attention over packed sequences; ``auto`` takes FlashAttention where it is installed, except in fp32."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what loads the checkpoint, and what adds adapters."""
        return ("transformers", *(("peft",) if self.is_lora else ()))


@dataclass(frozen=True, kw_only=True)
class VisionLMConfig(CausalLMConfig):
    """``model_type: vision_lm`` (also ``qwen2.5_vl`` and ``qwen3_vl``): a language model that reads images."""

    freeze_vision: bool = False
    """Leave the vision tower as it is: it gets no gradients and no optimizer state."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what loads the checkpoint, and what reads images."""
        return (*super().required_packages(), "PIL")


@dataclass(frozen=True, kw_only=True)
class RolloutModelConfig(ConfigSection):
    """``rollout.model``: where the rollout's copy of the model differs from the actor's."""

    precision: Precision | None = None
    """Precision of inference; null takes the actor's."""


models: Registry[Any] = Registry("model", config=ModelConfig)
"""By ``actor.model.model_type``; called as ``builder(cfg, num_values=V)``."""
models.register("cnn_policy", "rlinf.models.control.cnn_policy:build_cnn_policy", config=CNNPolicyConfig)
models.register("flow_policy", "rlinf.models.control.flow_policy:build_flow_policy", config=FlowPolicyConfig)
models.register("mlp_policy", "rlinf.models.control.mlp_policy:build_mlp_policy", config=MLPPolicyConfig)
models.register("none", config=NoModelConfig)
# The names of families are those that recipes of language models use; what is loaded depends on the checkpoint alone.
for _name in ("causal_lm", "qwen2.5", "qwen3", "qwen3_moe"):
    models.register(_name, "rlinf.models.language.causal_lm:build_causal_lm", config=CausalLMConfig)
for _name in ("vision_lm", "qwen2.5_vl", "qwen3_vl"):
    models.register(_name, "rlinf.models.language.vision_lm:build_vision_lm", config=VisionLMConfig)

encoders: Registry[Any] = Registry("image encoder")
"""By ``actor.model.encoder``; called with the number of channels."""
for _name in ("small", "resnet10", "resnet18"):
    encoders.register(_name, f"rlinf.models.control.convolutions:{_name}")
