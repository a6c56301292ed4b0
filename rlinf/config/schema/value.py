"""Value models of recorded frames: their data, their losses and the ``actor.model`` section."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from rlinf.config.schema.algorithm import (
    AdvantageConfig,
    AlgorithmConfig,
    LossConfig,
    NoAdvantageConfig,
    advantages,
    losses,
)
from rlinf.config.schema.base import ConfigSection, Fraction, PositiveFloat, PositiveInt, PositiveShare
from rlinf.config.schema.data import AugmentationConfig, ColumnNames
from rlinf.config.schema.model import ModelConfig, encoders, models
from rlinf.config.schema.train import ActorConfig


@dataclass(frozen=True, kw_only=True)
class FrameSourceConfig(ConfigSection):
    """A LeRobot data set whose frames are judged."""

    path: str
    """The data set's folder, readable by every actor rank."""
    type: Literal["sft", "rollout"] = "sft"
    """``sft``: demonstrations, all of which succeed. ``rollout``: what a policy did; an episode succeeds if a frame's
    ``next.success``, or ``is_success``, says so."""
    weight: PositiveFloat = 1.0
    """How often its frames are sampled, next to those of the other data sets."""
    columns: ColumnNames = field(default_factory=dict)
    """What the data set calls its columns where that is not what LeRobot does: ``main_images``, ``actions``."""


@dataclass(frozen=True, kw_only=True)
class ValueDataConfig(FrameSourceConfig):
    """The ``data`` section of ``task_type: value``."""

    format: Literal["lerobot"] = "lerobot"
    """Format of all data sets."""
    mixture: list[FrameSourceConfig] = field(default_factory=list)
    """Further data sets to learn from, with the same cameras."""
    val: list[FrameSourceConfig] = field(default_factory=list)
    """Data sets that evaluations judge and training does not see."""
    max_val_frames: PositiveInt = 2048
    """Frames of an evaluation, evenly spaced over those of ``val``."""
    max_episodes: PositiveInt | None = None
    """Read this number of episodes from the start of each data set; null reads all."""
    only_success: bool = False
    """Learn from successful episodes alone; advantages are computed for all."""
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    """Random changes of images in training."""
    advantage_tag: str | None = None
    """Write the advantage of every frame into ``meta/advantages_<tag>.parquet`` of its data set once the run has ended;
    a policy with ``data.advantage_tag`` learns from it. Null writes nothing."""

    @property
    def sources(self) -> list[FrameSourceConfig]:
        """All data sets to learn from."""
        return [self, *self.mixture]

    def required_files(self) -> dict[str, str]:
        """Return all data sets."""
        further = {
            f"{name}[{index}].path": entry.path
            for name, entries in (("mixture", self.mixture), ("val", self.val))
            for index, entry in enumerate(entries)
        }
        return {"path": self.path, **further}

    def required_packages(self) -> tuple[str, ...]:
        """Return what reads the files."""
        return ("pyarrow",)


@dataclass(frozen=True, kw_only=True)
class FrameValueLossConfig(LossConfig):
    """Keys of every loss by which a model learns to judge frames."""

    learner: ClassVar[str] = "value"


@dataclass(frozen=True, kw_only=True)
class RecapValueLossConfig(FrameValueLossConfig):
    """``loss_type: recap_value``: the return of the rest of the episode, as a distribution over bins (RECAP)."""

    gamma: PositiveShare = 1.0
    """Discount per step; every step but the last costs 1."""
    failure_reward: float = -300.0
    """Reward of the last step of an episode that fails; that of one that succeeds is 0."""
    advantage_lookahead_step: PositiveInt = 10
    """Steps whose rewards advantages take as they were; what follows them is the model's estimate (``N``)."""
    positive_quantile: Fraction = 0.3
    """Share of all frames whose advantages are the largest, which are labelled as positive."""


@dataclass(frozen=True, kw_only=True)
class SteamValueLossConfig(FrameValueLossConfig):
    """``loss_type: steam_value``: how many steps lie between two frames of an episode, in bins (STEAM)."""

    k: PositiveInt = 32
    """Largest distance between the frames in steps, forwards or backwards; advantages look so far ahead. Twice as many
    are a multiple of ``actor.model.num_bins``."""
    length_scale_percentile: PositiveFloat | None = None
    """Distances in episodes shorter than this percentile of all lengths count for more, in proportion, so that quicker
    episodes score higher; null counts steps."""
    label_smoothing: Fraction = 0.05
    """Share of the target that is spread over all bins."""
    label_mode: Literal["quantile", "threshold"] = "quantile"
    """How advantages become labels: the largest of each kind of data set are positive, or those above a threshold."""
    rollout_quantile: Fraction = 0.3
    """``quantile``: share of the frames of rollouts that are positive."""
    expert_quantile: Fraction | None = None
    """``quantile``: share of the frames of demonstrations that are positive; null is all of them."""
    positive_threshold: float = 0.0
    """``threshold``: advantage, in [-1, 1], above which frames of rollouts are positive; demonstrations all are."""


@dataclass(frozen=True, kw_only=True)
class SuccessLossConfig(FrameValueLossConfig):
    """``loss_type: success``: whether the task is solved, frame by frame; what ``reward_type: model`` rewards by."""

    success_share: Fraction = 0.5
    """Share of solved frames in every batch, however rare they are."""
    wrong_sentence_share: Fraction = 0.0
    """Share of the solved frames of a batch that get the sentence of another task, and are not solved then; for tasks
    of which a frame shows one solved at most. Needs ``actor.model.words``."""


@dataclass(frozen=True, kw_only=True)
class ValueAlgorithmConfig(AlgorithmConfig):
    """The ``algorithm`` section of ``task_type: value``."""

    adv_type: str = "value"
    """There is nothing to estimate while the model learns."""
    loss_type: str = "recap_value"
    """Registered loss."""
    advantage: AdvantageConfig = field(default_factory=NoAdvantageConfig)
    """Keys that belong to ``adv_type`` (written flat under ``algorithm``)."""
    loss: LossConfig = field(default_factory=RecapValueLossConfig)
    """Keys that belong to ``loss_type`` (written flat under ``algorithm``)."""


@dataclass(frozen=True, kw_only=True)
class FrameModelConfig(ModelConfig):
    """Keys of every model that judges frames."""

    num_frames: ClassVar[int] = 1
    """Frames that it sees side by side."""
    loss_type: ClassVar[str] = "recap_value"
    """What it is made for."""

    image_keys: list[str] = field(default_factory=lambda: ["main_images"])
    """Cameras in the model's order, by the names that environments give them."""

    @property
    def output_size(self) -> int:
        """Numbers that the model says of a sample (``B``)."""
        return 1


@dataclass(frozen=True, kw_only=True)
class ValueModelConfig(FrameModelConfig):
    """Keys of models that judge frames by what a published vision-language model sees in them."""

    model_path: str
    """Folder of openpi (pi-0, pi-0.5), whose SigLIP and Gemma the model begins with; or its name on the Hub."""
    tokenizer_path: str | None = None
    """Folder of PaliGemma's tokenizer, which published folders lack; null takes ``model_path``."""
    max_prompt_length: PositiveInt = 64
    """Tokens of the longest prompt; shorter ones are padded."""
    num_bins: PositiveInt = 201
    """Bins of the predicted distribution."""
    ensemble_size: PositiveInt = 1
    """Models of the ensemble: equal but for their heads at first, they learn from the same frames."""
    fusion_hidden_dim: PositiveInt = 512
    """Width of the hidden layer of each head."""
    freeze: list[Literal["vision", "projector", "language"]] = field(default_factory=list)
    """Parts that keep their weights."""

    @property
    def output_size(self) -> int:
        """See ``FrameModelConfig``."""
        return self.num_bins

    def required_packages(self) -> tuple[str, ...]:
        """Return what loads the checkpoint."""
        return ("transformers",)


@dataclass(frozen=True, kw_only=True)
class ValueActorConfig(ActorConfig):
    """The ``actor`` section of ``task_type: value``; a sample of a batch is a frame, or a pair of frames."""

    model: FrameModelConfig
    """The model that judges."""


@dataclass(frozen=True, kw_only=True)
class RecapValueModelConfig(ValueModelConfig):
    """``model_type: recap_value_model``: judges a frame (RECAP, arXiv 2511.14759)."""


@dataclass(frozen=True, kw_only=True)
class SteamValueModelConfig(ValueModelConfig):
    """``model_type: steam_value_model``: judges the way from one frame to another (STEAM)."""

    num_frames: ClassVar[int] = 2
    loss_type: ClassVar[str] = "steam_value"

    num_bins: PositiveInt = 2
    """Bins of the predicted distribution, an even number: the lower half goes back."""


@dataclass(frozen=True, kw_only=True)
class SuccessClassifierConfig(FrameModelConfig):
    """``model_type: success_classifier``: whether the task is solved in a frame, by convolutions."""

    loss_type: ClassVar[str] = "success"

    image_size: list[PositiveInt] = field(default_factory=lambda: [64, 64])
    """Height and width of the images in pixels, those of the data sets and of the environment that is rewarded."""
    encoder: Annotated[str, encoders] = "small"
    """Convolutions, as those of ``model_type: cnn_policy``."""
    latent_dim: PositiveInt = 64
    """Features of one camera."""
    words: list[str] = field(default_factory=list)
    """Words of the data sets' sentences, in small letters: with them a frame is judged by its sentence. Without any the
    model reads none, and serves one task."""


models.register(
    "success_classifier", "rlinf.models.control.frame_classifier:build_classifier", config=SuccessClassifierConfig
)
models.register("recap_value_model", "rlinf.models.vla.value_model:build_value_model", config=RecapValueModelConfig)
models.register("steam_value_model", "rlinf.models.vla.value_model:build_value_model", config=SteamValueModelConfig)
advantages.register("value", config=NoAdvantageConfig)
losses.register("recap_value", "rlinf.algorithms.frame_values.recap:RecapValue", config=RecapValueLossConfig)
losses.register("success", "rlinf.algorithms.frame_values.success:SuccessValue", config=SuccessLossConfig)
losses.register("steam_value", "rlinf.algorithms.frame_values.steam:SteamValue", config=SteamValueLossConfig)
