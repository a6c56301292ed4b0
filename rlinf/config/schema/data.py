"""The ``data`` section, what an offline run learns from: one dataclass per format, all sharing ``DataConfig``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlinf.config.schema.base import ConfigSection, PositiveInt
from rlinf.registry import Registry


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
class LeRobotDataConfig(DataConfig):
    """``format: lerobot``: a LeRobot data set (v3.0 or v2.1), for example one that was collected here."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what reads the files."""
        return ("pyarrow",)


data_formats: Registry[Any] = Registry("dataset format", config=DataConfig)
"""By ``data.format``; called as ``reader(cfg)``, yields episodes (``rlinf.data.datasets.episodes.Episode``)."""
data_formats.register("d4rl", "rlinf.data.datasets.d4rl:read_d4rl", config=D4RLDataConfig)
data_formats.register("lerobot", "rlinf.data.datasets.lerobot.episodes:read_lerobot", config=LeRobotDataConfig)
data_formats.register("minari", "rlinf.data.datasets.minari:read_minari", config=MinariDataConfig)
