"""The ``actor.model`` section of vision-language-action policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from rlinf.config.schema.base import (
    ConfigSection,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
)
from rlinf.config.schema.lora_keys import LoRAKeys
from rlinf.config.schema.model import ModelConfig, encoders, models


@dataclass(frozen=True, kw_only=True)
class VLAConfig(ModelConfig, LoRAKeys):
    """Keys that all vision-language-action policies share."""

    carries_weights: ClassVar[bool] = True

    model_path: str
    """Folder in the published layout; or its name on the Hub, unless ``HF_HUB_OFFLINE`` is set."""
    action_dim: PositiveInt
    """Length of one action (``A``); that of the statistics of ``unnorm_key``."""
    state_dim: PositiveInt | None = None
    """Length of ``obs["states"]`` (``S``) where the model reads it; null is that of the statistics."""
    unnorm_key: str | None = None
    """Data set whose statistics actions and states are normalised by; null where the folder has one alone."""
    image_keys: list[str] = field(default_factory=lambda: ["main_images"])
    """Cameras in the model's order: keys of the observation that hold uint8 [B, H, W, 3]."""
    value_hidden_dims: list[PositiveInt] = field(default_factory=lambda: [512, 128])
    """Widths of the value head's hidden layers."""
    value_detach: bool = False
    """Train the value head alone on the values' loss, and not what is below it."""
    freeze: list[Literal["vision", "projector", "language"]] = field(default_factory=list)
    """Parts that keep their weights."""
    lora_target_modules: list[str] = field(
        default_factory=lambda: [
            *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"),
            *("qkv", "proj", "fc1", "fc2", "fc3"),
        ]
    )
    """Names of the linear layers that have adapters."""
    lora_whole_modules: list[str] = field(default_factory=lambda: ["value_head"])
    """Modules that are trained whole next to the adapters, by their names or parts of dotted ones; the default has all
    that a model of this kind may have: heads, projections of states and actions, and what modulates images by words."""

    @classmethod
    def possible_whole_modules(cls) -> list[str]:
        """Return the default of ``lora_whole_modules``, of which a model may lack some."""
        factory: Any = cls.__dataclass_fields__["lora_whole_modules"].default_factory
        names: list[str] = factory()
        return names

    def required_packages(self) -> tuple[str, ...]:
        """Return what loads the checkpoint, and what adds adapters."""
        return ("transformers", *(("peft",) if self.is_lora else ()))


CENTER_AREA = 0.9
"""Share of an image's area that ``center_crop`` shows, as published."""


@dataclass(frozen=True, kw_only=True)
class OpenVLAConfig(VLAConfig):
    """``model_type: openvla``: one action from one image, ``A`` tokens one by one (arXiv 2406.09246)."""

    max_prompt_length: PositiveInt = 64
    """Tokens of the longest prompt; shorter ones are padded."""
    norm_scheme: Literal["bounds_q99", "bounds"] = "bounds_q99"
    """What is brought to [-1, 1]: the 1st to 99th percentile (LIBERO, Bridge), or minimum to maximum (ALOHA)."""
    center_crop: bool = False
    """Show the middle nine tenths of each image, as checkpoints that were tuned on augmented images need; not of images
    that ``data.augmentation.crop_area`` has cropped already."""
    image_resize: Literal["lanczos3", "bicubic"] = "lanczos3"
    """How images of another size are brought to the model's: as the published evaluation does, or as the published
    image processor."""
    image_jpeg: bool = False
    """Bring images of another size through JPEG once, as the published evaluation does."""
    temperature: PositiveFloat = 1.0
    """Of action tokens that training samples; evaluation takes the most likely ones, and fine-tuning on recorded
    actions learns from the logits as they are."""
    top_k: PositiveInt | None = None
    """Training samples among this number of the most likely tokens of each number, and an update compares
    log-probabilities among those that the rollout sampled among; null samples among all."""

    def required_packages(self) -> tuple[str, ...]:
        """Return also what writes JPEG."""
        return (*super().required_packages(), *(("PIL",) if self.image_jpeg else ()))


@dataclass(frozen=True, kw_only=True)
class OpenVLAOFTConfig(OpenVLAConfig):
    """``model_type: openvla_oft``: a chunk of actions in one pass (arXiv 2502.19645)."""

    head: Literal["tokens", "l1"] = "tokens"
    """Action tokens, or numbers of the L1 head (``action_head--*_checkpoint.pt``)."""
    use_proprio: bool = False
    """Read ``obs["states"]`` (``proprio_projector--*_checkpoint.pt``)."""
    use_film: bool = False
    """Modulate images by the words (``vision_backbone--*_checkpoint.pt``)."""
    l1_std: PositiveFloat = 0.05
    """Start of the standard deviation of exploration with ``head: l1``, in normalised actions; it is learned."""
    lora_whole_modules: list[str] = field(
        default_factory=lambda: ["action_head", "log_std", "proprio_projector", "scale", "shift", "value_head"]
    )
    """Modules that are trained whole next to the adapters; ``scale`` and ``shift`` are those of FiLM."""


@dataclass(frozen=True, kw_only=True)
class NoisePolicyConfig(ConfigSection):
    """``actor.model.noise_policy``: with ``add_q_head``, the policy that chooses the noise of a frozen flow (DSRL)."""

    noise_scale: PositiveFloat = 1.0
    """Noise lies between minus this and this, while flows are trained from normal noise."""
    hidden_dims: list[PositiveInt] = field(default_factory=lambda: [128, 128, 128])
    """Widths of the hidden layers, of the policy and of the Q networks alike."""
    activation: Literal["tanh", "relu", "gelu"] = "relu"
    """Activation between layers."""
    initial_log_std: float = 0.0
    """Start of the log standard deviation before squashing."""
    image_keys: list[str] = field(default_factory=lambda: ["main_images"])
    """Cameras that it sees, each through an encoder of its own."""
    image_size: PositiveInt = 64
    """Side of these images in pixels, to which those of the environment are brought; replays hold them."""
    encoder: Annotated[str, encoders] = "small"
    """Convolutions, as those of ``model_type: cnn_policy``."""
    latent_dim: PositiveInt = 64
    """Features of one camera."""
    random_shift: NonNegativeInt = 0
    """Largest shift, in pixels, of the images that are trained on (DrQ)."""


@dataclass(frozen=True, kw_only=True)
class ActionPolicyConfig(ConfigSection):
    """``actor.model.action_policy``: with ``refine_actions``, the policy that acts next to a frozen flow (RLT)."""

    action_scale: PositiveFloat = 1.0
    """Normalised actions lie between minus this and this."""
    hidden_dims: list[PositiveInt] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers, of the policy and of the Q networks alike."""
    activation: Literal["tanh", "relu", "gelu"] = "relu"
    """Activation between layers."""
    exploration_noise: NonNegativeFloat = 0.1
    """Standard deviation of the noise on training's actions, which lie in (-1, 1) before they are scaled."""
    proposal_dropout: Fraction = 0.5
    """Probability that an update hides the flow's proposal from the policy, so that it does not merely copy it."""


@dataclass(frozen=True, kw_only=True)
class RLTokenConfig(ConfigSection):
    """``actor.model.rlt``: with ``use_rlt``, the token that stands for what a flow's expert attends to (RLT)."""

    vla_loss_weight: NonNegativeFloat = 1.0
    """Weight of the flow's own loss next to the reconstruction; at 0 the flow keeps its weights."""
    embed_dim: PositiveInt | None = None
    """Width of the token (``E``); null is that of the language model."""
    prefix_seq_len: PositiveInt = 768
    """Longest sequence of images and words that is encoded, in tokens."""
    num_layers: PositiveInt = 2
    """Layers of the encoder, and of the decoder."""
    num_heads: PositiveInt = 8
    """Heads of their attention; divide the width."""
    mlp_ratio: PositiveFloat = 4.0
    """Width of the hidden layers, as a multiple of the token's."""


@dataclass(frozen=True, kw_only=True)
class GuidanceConfig(ConfigSection):
    """``actor.model.guidance``: a policy of which good actions can be requested (RECAP, CFGRL).

    Fine-tuning with ``data.advantage_tag`` trains it.
    """

    type: Literal["none", "positive", "negative"] = "none"
    """What acting requests: nothing, the task alone; or actions better, or worse, than usual."""
    scale: NonNegativeFloat = 1.0
    """How far acting goes from the velocity without the word to the one with it, and beyond; other than 1 takes two
    passes in place of one."""
    unconditional_prob: Fraction = 0.1
    """Training: probability that a frame is learned without the word for its label."""
    positive_only_conditional: bool = True
    """Training: frames whose label is negative are all learned without it."""


@dataclass(frozen=True, kw_only=True)
class RealTimeChunkingConfig(ConfigSection):
    """``actor.model.real_time_chunking``: evaluation acts on while the next chunk is computed (arXiv 2506.07339).

    A robot then does not stop between two chunks, and a new one goes on from what the one before has planned.
    """

    enabled: bool = False
    """Whether evaluation does so."""
    inference_delay: NonNegativeInt = 1
    """Actions that are executed while the next chunk is computed (``d``); fewer than ``num_action_chunks``, which with
    them are at most ``horizon``."""
    max_guidance_weight: NonNegativeFloat = 5.0
    """How strongly a chunk is led to agree with the one before, at most; 0 takes it as it comes."""
    prefix_attention_schedule: Literal["exp", "linear", "ones", "zeros"] = "exp"
    """How much actions that were planned, and that a new chunk replaces, matter to it: less and less, all alike, or
    not at all."""


@dataclass(frozen=True, kw_only=True)
class FlowVLAConfig(VLAConfig):
    """Keys of policies whose flow makes chunks of actions of noise."""

    has_velocity: ClassVar[bool] = True

    horizon: PositiveInt | None = None
    """Actions that the model predicts (``H``), of which the first ``num_action_chunks`` are executed; null takes as
    many as the checkpoint's configuration says."""
    max_prompt_length: PositiveInt | None = None
    """Tokens of the longest prompt; shorter ones are padded. Null is as many as published models have."""
    delta_actions: list[int] = field(default_factory=list)
    """Which numbers of an action the model predicts relative to the state, in runs: ``[6, -1]`` are six that are, and
    one that is not. Number ``i`` of the action is relative to number ``i`` of the state."""
    num_steps: PositiveInt = 10
    """Steps from noise to actions (``K``)."""
    noise_method: Literal["flow_ode", "flow_sde", "flow_noise"] = "flow_sde"
    """How training explores: by noise in the steps, on what is executed, that keeps the distribution, or whose size a
    network learns; or by the first noise alone, which leaves no log-probabilities."""
    noise_level: PositiveFloat = 0.5
    """``flow_sde``: factor on the noise."""
    noise_range: list[PositiveFloat] = field(default_factory=lambda: [0.08, 0.16])
    """``flow_noise``: least and largest deviation of a step's noise, in normalised actions."""
    noise_steps: Literal["all", "one"] = "all"
    """Steps that have noise in training, and of which log-probabilities are: all; or one for each sample, chosen at
    random, which takes a part of the memory and of the updates' time."""
    ignore_last: bool = False
    """``noise_steps: one``: never choose the last step, whose noise is executed as it is."""
    chain_reduction: Literal["sum", "mean"] = "sum"
    """``noise_steps: all``: whether log-probabilities are those of the chain, sums over the steps; or these divided by
    ``num_steps + 1``, as in published training with ``joint_logprob``, so that ratios are roots of the chain's."""
    start_std: NonNegativeFloat = 1.0
    """Deviation of where flows start in training; at 0 they start at the mean, and the steps' noise alone explores."""
    eval_start: Literal["normal", "zeros"] = "normal"
    """Where flows start in evaluation: at noise that belongs to the environment and the chunk, the same in every
    evaluation; or at its mean. Policies that act outside a run (export, experts) start at the mean."""
    value_input: Literal["prefix_mean", "expert_mean", "expert_chunk_mean"] = "prefix_mean"
    """What values read: the mean over the images and words, or over the expert's outputs for the ``horizon``, or for
    the executed, actions where a flow starts."""
    noise_policy: NoisePolicyConfig = field(default_factory=NoisePolicyConfig)
    """Policy that chooses the noise, with ``add_q_head``: the flow itself is frozen."""
    refine_actions: bool = False
    """With ``add_q_head``: a small policy acts next to the frozen flow, which proposes actions; else it steers it."""
    action_policy: ActionPolicyConfig = field(default_factory=ActionPolicyConfig)
    """Policy that acts, with ``refine_actions``."""
    use_rlt: bool = False
    """Fine-tuning: learn a token from which what the expert attends to can be reconstructed. With ``refine_actions``:
    the policy sees the token in place of the mean."""
    rlt: RLTokenConfig = field(default_factory=RLTokenConfig)
    """The token's network, with ``use_rlt``."""
    guidance: GuidanceConfig = field(default_factory=GuidanceConfig)
    """Requests of actions that are better than usual."""
    real_time_chunking: RealTimeChunkingConfig = field(default_factory=RealTimeChunkingConfig)
    """Acting while the next chunk is computed."""
    norm_scheme: Literal["mean_std", "quantiles", "min_max"] = "mean_std"
    """What actions and states are brought to: mean 0 and deviation 1; or the 1st to 99th percentile, or minimum to
    maximum, to [-1, 1]."""
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )
    """Names of the linear layers that have adapters."""
    lora_whole_modules: list[str] = field(
        default_factory=lambda: [
            *("state_proj", "action_in_proj", "action_out_proj", "action_time_mlp_in", "action_time_mlp_out"),
            *("time_mlp_in", "time_mlp_out", "value_head"),
        ]
    )
    """Modules that are trained whole next to the adapters: projections of actions, states and time."""

    @property
    def has_step_noise(self) -> bool:
        """Whether training adds noise to steps, which gives log-probabilities."""
        return self.noise_method != "flow_ode"

    @property
    def value_reads_expert(self) -> bool:
        """Whether values read the expert's output."""
        return self.value_input != "prefix_mean"

    @property
    def prompt_length(self) -> int:
        """Tokens of the longest prompt."""
        assert self.max_prompt_length is not None
        return self.max_prompt_length

    @property
    def inference_delay(self) -> int | None:
        """See ``ModelConfig``."""
        return self.real_time_chunking.inference_delay if self.real_time_chunking.enabled else None

    @property
    def num_denoise_steps(self) -> int:
        """``num_steps``, by the name that other flows have for it."""
        return self.num_steps

    @property
    def action_size(self) -> int:
        """``action_dim``, by the name that other flows have for it."""
        return self.action_dim


@dataclass(frozen=True, kw_only=True)
class PiConfig(FlowVLAConfig):
    """``model_type: openpi``: pi-0 (arXiv 2410.24164) and pi-0.5 (arXiv 2504.16054)."""

    variant: Literal["pi0", "pi05"]
    """Pi-0 reads the state as a token of the expert; pi-0.5 as words, and time modulates its norms."""
    discrete_state_input: bool | None = None
    """Whether pi-0.5 reads the state, as words; null is yes. Most of the published fine-tuned ones do not."""
    tokenizer_path: str | None = None
    """Folder of PaliGemma's tokenizer, which published folders lack; null takes ``model_path``."""

    @property
    def prompt_length(self) -> int:
        """See ``FlowVLAConfig``; as openpi's models have."""
        return self.max_prompt_length or (200 if self.variant == "pi05" else 48)

    @property
    def state_in_prompt(self) -> bool:
        """Whether prompts hold the state."""
        return self.variant == "pi05" and self.discrete_state_input is not False


@dataclass(frozen=True, kw_only=True)
class SmolVLAConfig(FlowVLAConfig):
    """``model_type: smolvla``: SmolVLA, whose expert looks across at SmolVLM2's layers (arXiv 2506.01844)."""

    vlm_path: str | None = None
    """Folder, or name on the Hub, of the SmolVLM2 whose sizes and tokenizer are the model's; null takes the
    ``vlm_model_name`` of the checkpoint's configuration."""
    max_prompt_length: PositiveInt = 48
    """Tokens of the longest prompt; shorter ones are padded."""


GR00T_EMBODIMENTS: dict[str, int] = {
    "so100": 2,
    "unitree_g1": 3,
    "oxe_droid": 17,
    "gr1": 24,
    "agibot_genie1": 26,
    "maniskill_widowx": 30,
    "isaaclab_franka": 31,
    "libero_franka": 31,
    "new_embodiment": 31,
}
"""Which of GR00T's encoders published checkpoints were trained with."""


@dataclass(frozen=True, kw_only=True)
class Gr00tConfig(FlowVLAConfig):
    """``model_type: gr00t``: GR00T N1.5, a diffusion transformer behind Eagle 2.5 (arXiv 2503.14734)."""

    num_steps: PositiveInt = 4
    """Steps from noise to actions (``K``)."""
    norm_scheme: Literal["min_max", "mean_std", "quantiles"] = "min_max"
    """What actions and states are brought to: minimum to maximum to [-1, 1]; or as for other flows."""
    max_prompt_length: PositiveInt = 570
    """Tokens of the longest prompt, 258 for each image among them; shorter ones are padded."""
    embodiment_tag: str = "new_embodiment"
    """Robot whose encoders are used, and whose statistics unless ``unnorm_key`` names others."""
    embodiment_id: NonNegativeInt | None = None
    """Number of the encoders; null takes that of ``embodiment_tag``."""
    eagle_path: str | None = None
    """Folder, or name on the Hub, of Eagle's configuration and tokenizer; null takes ``eagle`` in the model's folder,
    or else ``lerobot/eagle2hg-processor-groot-n1p5``."""
    crop_scale: PositiveShare = 0.95
    """Show the middle of each image, of this part of its height and width, as the training augmentation needs; not of
    images that ``data.augmentation.crop_area`` has cropped already."""
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "to_q", "to_k", "to_v"]
    )
    """Names of the linear layers that have adapters."""
    lora_whole_modules: list[str] = field(
        default_factory=lambda: [
            *("action_head.state_encoder", "action_head.action_encoder", "action_head.action_decoder"),
            *("action_head.future_tokens", "action_head.position_embedding", "action_head.vlln"),
            *("action_head.vl_self_attention", "value_head"),
        ]
    )
    """Modules that are trained whole next to the adapters: all of the action head but its transformer."""


models.register("gr00t", "rlinf.models.vla.gr00t:build_gr00t", config=Gr00tConfig)
models.register("openpi", "rlinf.models.vla.openpi:build_openpi", config=PiConfig)
models.register("openvla", "rlinf.models.vla.openvla:build_openvla", config=OpenVLAConfig)
models.register("openvla_oft", "rlinf.models.vla.openvla_oft:build_openvla_oft", config=OpenVLAOFTConfig)
models.register("smolvla", "rlinf.models.vla.smolvla:build_smolvla", config=SmolVLAConfig)
