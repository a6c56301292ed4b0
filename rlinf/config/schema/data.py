"""The ``data`` section, what an offline run learns from: one dataclass per format, all sharing ``DataConfig``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlinf.config.schema.base import ConfigSection, Fraction, PositiveFloat, PositiveInt, PositiveShare
from rlinf.registry import Registry

ColumnNames = dict[str, str]
"""What a data set calls its columns, by what learners call what these hold: ``states``, ``actions``, ``rewards``, and
images by their keys, ``main_images``."""


@dataclass(frozen=True, kw_only=True)
class DataConfig(ConfigSection):
    """Keys of every dataset of recorded episodes."""

    format: str
    """Registered format."""
    path: str
    """The dataset's folder or file, readable by every actor rank."""
    max_episodes: PositiveInt | None = None
    """Read this number of episodes from the start; null reads all."""
    reward_coef: float = 1.0
    """Factor on every reward."""
    normalize_returns: bool = False
    """Scale rewards so that 1000 lies between the lowest and the highest return of an episode, before ``reward_coef``;
    usual for D4RL's recordings of locomotion."""
    reward_offset: float = 0.0
    """Added to every reward, before ``reward_coef``; -1 is usual for D4RL's mazes."""

    def required_files(self) -> dict[str, str]:
        """Return the dataset."""
        return {"path": self.path}


@dataclass(frozen=True, kw_only=True)
class MinariDataConfig(DataConfig):
    """``format: minari``: a Minari folder or its HDF5 file, one group per episode."""

    state_keys: list[str] = field(default_factory=list)
    """Entries of a Dict observation (``goal/position``, say) that are joined into ``states``, in this order."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what reads the file."""
        return ("h5py",)


@dataclass(frozen=True, kw_only=True)
class D4RLDataConfig(DataConfig):
    """``format: d4rl``: one HDF5 file with the steps of all episodes behind each other."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what reads the file."""
        return ("h5py",)


@dataclass(frozen=True, kw_only=True)
class AugmentationConfig(ConfigSection):
    """``data.augmentation``: random changes of images, by default none.

    OpenVLA and OpenVLA-OFT are published with ``crop_area`` 0.9, ``brightness``, ``contrast`` and ``saturation`` 0.2
    and ``hue`` 0.05. Fine-tuning does not crop to the middle what has been cropped somewhere; evaluation does.
    """

    crop_area: PositiveShare = 1.0
    """Share of the image's area that a crop somewhere in it keeps; resized to the image's size."""
    brightness: Fraction = 0.0
    """Largest amount that is added to the pixels, as a share of white."""
    contrast: Fraction = 0.0
    """Largest change of the distance from the mean of each colour, as a share of it."""
    saturation: Fraction = 0.0
    """Largest change of saturation, as a share of it."""
    hue: Fraction = 0.0
    """Largest turn of the hue, as a share of a whole turn."""


@dataclass(frozen=True, kw_only=True)
class MixtureEntryConfig(ConfigSection):
    """An entry of ``data.mixture``."""

    path: str
    """A further data set's folder."""
    weight: PositiveFloat = 1.0
    """How often its frames are sampled, next to ``data.weight``."""
    columns: ColumnNames | None = None
    """As ``data.columns``; null takes that."""


@dataclass(frozen=True, kw_only=True)
class LeRobotDataConfig(DataConfig):
    """``format: lerobot``: a LeRobot data set (v3.0, v2.1 or v2.0), for example one that was collected here."""

    columns: ColumnNames = field(default_factory=dict)
    """What the data set calls its columns where that is not what LeRobot does, as ``{main_images: image, wrist_images:
    wrist_image, states: state, actions: actions}`` for OpenPI's set of LIBERO."""
    weight: PositiveFloat = 1.0
    """``embodied_sft``: how often frames of ``path`` are sampled, next to those of ``mixture``."""
    mixture: list[MixtureEntryConfig] = field(default_factory=list)
    """``embodied_sft``: further data sets, of the same robot and cameras."""
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)
    """``embodied_sft``: random changes of images."""
    advantage_tag: str | None = None
    """``embodied_sft``: learn which frames are better than usual from ``meta/advantages_<tag>.parquet`` of each data
    set, as ``actor.model.guidance`` says; ``task_type: value`` writes these files. Null learns all frames alike."""

    def required_files(self) -> dict[str, str]:
        """Return all data sets."""
        return super().required_files() | {f"mixture[{i}].path": entry.path for i, entry in enumerate(self.mixture)}

    def required_packages(self) -> tuple[str, ...]:
        """Return what reads the files."""
        return ("pyarrow",)


data_formats: Registry[Any] = Registry("dataset format", config=DataConfig)
"""By ``data.format``; called as ``reader(cfg)``, yields episodes (``rlinf.data.datasets.episodes.Episode``)."""
data_formats.register("d4rl", "rlinf.data.datasets.d4rl:read_d4rl", config=D4RLDataConfig)
data_formats.register("lerobot", "rlinf.data.datasets.lerobot.episodes:read_lerobot", config=LeRobotDataConfig)
data_formats.register("minari", "rlinf.data.datasets.minari:read_minari", config=MinariDataConfig)
