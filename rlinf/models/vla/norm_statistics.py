"""Statistics of data sets that actions and states are normalised by, in the forms in which they are published."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from rlinf.errors import ConfigError
from rlinf.models.files.tensor_files import TensorFiles

Scheme = Literal["bounds_q99", "bounds", "quantiles", "mean_std", "min_max"]
FIELDS: Mapping[str, tuple[str, str]] = {
    "bounds_q99": ("q01", "q99"),
    "bounds": ("min", "max"),
    "quantiles": ("q01", "q99"),
    "mean_std": ("mean", "std"),
    "min_max": ("min", "max"),
}
"""What a scheme reads: lowest and highest number, or mean and standard deviation.

``bounds*`` are those of OpenVLA, which cuts numbers off; ``quantiles`` and ``mean_std`` those of openpi;
``min_max`` is that of GR00T, whose entries that never change become 0.
"""
_TINY = {"bounds_q99": 1e-8, "bounds": 1e-8, "quantiles": 1e-6, "mean_std": 1e-6, "min_max": 0.0}
"""What is added to the range, so that it is not 0."""
_FAR, _FAR_DEVIATIONS = 1.05, 5.0
"""Beyond these, normalised numbers are rare in the data that statistics are of."""
_NO_NOOPS = "_no_noops"
"""What OpenVLA's data sets for LIBERO have behind their names when idle actions were removed."""
_LEROBOT = re.compile(
    r"(?:(?:un)?normalize_\w+(?:\.\w+)?\.buffer_)?(?P<entry>action|observation[._]state)\.(?P<statistic>\w+)"
)
"""Names of LeRobot's tensors."""
_ABOUT = 0.1
"""How exactly statistics tell what a gripper's numbers are."""
_GR00T_ENTRIES = {"action": "action", "proprio": "state"}
"""What GR00T calls our entries."""
_ASSETS = "assets"
"""Where openpi keeps statistics."""
_LEROBOT_NAME = "checkpoint"
"""What the data set of a LeRobot checkpoint, which has no name, is called."""


@dataclass(frozen=True)
class Normalizer:
    """Brings numbers to the model's units and back, entry by entry.

    Attributes:
        low: float32 [A]; lowest number, or mean.
        high: float32 [A]; highest number, or standard deviation.
        mask: bool [A]; false for entries that are left as they are.
        scheme: What they are: with ``mean_std`` numbers get mean 0 and deviation 1, otherwise ``low`` to ``high``
            becomes -1 to 1.
    """

    low: torch.Tensor
    high: torch.Tensor
    mask: torch.Tensor
    scheme: Scheme

    def __len__(self) -> int:
        return len(self.low)

    def normalize(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return numbers [..., A] in the model's units; with ``bounds*``, cut off at -1 and 1."""
        scaled = self._scaled(numbers)
        return scaled.clamp(-1.0, 1.0) if self.scheme.startswith("bounds") else scaled

    def beyond(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return which share of numbers [..., A] is far from what the statistics are of, float32 [A].

        That is outside of -1.05 to 1.05, or more than five standard deviations from the mean.
        """
        limit = _FAR_DEVIATIONS if self.scheme == "mean_std" else _FAR
        return (self._scaled(numbers).abs() > limit).flatten(0, -2).float().mean(0)

    def _scaled(self, numbers: torch.Tensor) -> torch.Tensor:
        low, high, mask = (tensor.to(numbers.device) for tensor in (self.low, self.high, self.mask))
        tiny = _TINY[self.scheme]
        if self.scheme == "mean_std":
            return torch.where(mask, (numbers - low) / (high + tiny), numbers)
        if self.scheme == "min_max":
            changes = high != low
            scaled = 2.0 * (numbers - low) / torch.where(changes, high - low, 1.0) - 1.0
            return torch.where(mask, torch.where(changes, scaled, 0.0), numbers)
        return torch.where(mask, 2.0 * (numbers - low) / (high - low + tiny) - 1.0, numbers)

    def restore(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return numbers [..., A] of the model in those of the data set."""
        low, high, mask = (tensor.to(numbers.device) for tensor in (self.low, self.high, self.mask))
        tiny = _TINY[self.scheme]
        if self.scheme == "mean_std":
            return torch.where(mask, numbers * (high + tiny) + low, numbers)
        return torch.where(mask, 0.5 * (numbers + 1.0) * (high - low + tiny) + low, numbers)


class Statistics:
    """Statistics of one data set: of ``action``, and of ``proprio`` where there are states.

    Args:
        entries: Lists of numbers by the name of the statistic, by ``action`` and ``proprio``.
        name: Of the data set, for messages.
    """

    def __init__(self, entries: Mapping[str, Mapping[str, Any]], name: str) -> None:
        self._entries, self._name = entries, name

    @classmethod
    def of_folder(cls, folder: Path, unnorm_key: str | None) -> Statistics:
        """Read the statistics of a checkpoint.

        They are in ``dataset_statistics.json``, in ``norm_stats`` of ``config.json`` (both OpenVLA), in
        ``assets/<data set>/norm_stats.json`` (openpi) or ``<data set>/norm_stats.json`` (published RLinf), in
        ``experiment_cfg/metadata.json`` (GR00T, whose data sets are robots), or in
        ``policy_preprocessor_*.safetensors`` and, before LeRobot 0.4, among the weights (LeRobot).

        Args:
            folder: The checkpoint's.
            unnorm_key: Which data set's; None if it is the only one.

        Raises:
            ConfigError: There are none, or none of that name.
        """
        known = read_statistics(folder)
        if unnorm_key is None and len(known) == 1:
            unnorm_key = next(iter(known))
        if unnorm_key not in known and f"{unnorm_key}{_NO_NOOPS}" in known:
            unnorm_key = f"{unnorm_key}{_NO_NOOPS}"
        if unnorm_key not in known:
            close = difflib.get_close_matches(unnorm_key or "", known, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise ConfigError(
                f"actor.model.unnorm_key: received {unnorm_key}; the statistics of '{folder}' are of "
                f"{', '.join(sorted(known)) or 'no data set'}. Name the one whose units the environment's actions have."
                f"{hint}"
            )
        assert unnorm_key is not None
        return cls(known[unnorm_key], unnorm_key)

    def normalizer(self, entry: str, scheme: Scheme, size: int | None) -> Normalizer:
        """Return what normalises actions or states.

        Args:
            entry: ``action`` or ``proprio``.
            scheme: Which statistics.
            size: Numbers that the model has; None is as many as the statistics have. Further statistics may be there
                where they are all 0, as padding is.

        Raises:
            ConfigError: There are no such statistics, or of another length.
        """
        found, fields = self._entries.get(entry, {}), FIELDS[scheme]
        missing = [name for name in fields if name not in found]
        if missing:
            raise ConfigError(
                f"actor.model.norm_scheme: received {scheme}, which needs {' and '.join(fields)} of '{entry}'; "
                f"data set '{self._name}' has {', '.join(sorted(found)) or 'none of it'}. Choose another "
                "norm_scheme or unnorm_key."
            )
        low, high = (torch.tensor(found[name], dtype=torch.float32) for name in fields)
        size, given = size or len(low), len(low)
        if given < size or low[size:].any() or high[size:].any():
            key = "action_dim" if entry == "action" else "state_dim"
            raise ConfigError(
                f"actor.model.{key}: received {size}; the statistics of data set '{self._name}' have {given} "
                f"numbers of '{entry}'. Set it to {given}, or choose another unnorm_key."
            )
        mask = torch.tensor(found.get("mask", [True] * given), dtype=torch.bool)
        return Normalizer(low[:size], high[:size], mask[:size], scheme)

    def says_unit_gripper(self, size: int) -> bool | None:
        """Return whether the last number of actions is 0 or 1, as in data sets of OpenVLA, rather than -1 or 1.

        Args:
            size: Numbers of an action; statistics may have more.

        Returns:
            None where the statistics do not tell.
        """
        found = {name: row[size - 1] for name, row in self._entries.get("action", {}).items() if len(row) >= size}
        for low, high in (("min", "max"), ("q01", "q99")):
            if low in found and high in found:
                if found[low] < -_ABOUT:
                    return False
                return True if abs(found[low]) < _ABOUT and abs(found[high] - 1.0) < _ABOUT else None
        if not {"mean", "std"} <= found.keys() or found["mean"] > 1.0 - _ABOUT:
            return None
        # The mean of squares is the mean for 0 and 1, and 1 for -1 and 1.
        squares = found["mean"] ** 2 + found["std"] ** 2
        if abs(squares - 1.0) < _ABOUT:
            return False
        return True if found["mean"] > _ABOUT and abs(squares - found["mean"]) < _ABOUT else None


def read_statistics(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the statistics of a folder by the names of data sets; those of a fine-tuning run come first."""
    known: dict[str, dict[str, Any]] = {}
    config = _read(folder / "config.json")
    known |= config.get("norm_stats") or {}
    known |= _read(folder / "dataset_statistics.json")
    # Data sets of published training stand in the folder itself, and come before those in ``assets``.
    for path in sorted(folder.rglob("norm_stats.json"), key=lambda path: not path.is_relative_to(folder / _ASSETS)):
        entries = _read(path)["norm_stats"]
        name = path.parent.relative_to(folder).as_posix().removeprefix(f"{_ASSETS}/")
        known[name] = {"action": entries["actions"], "proprio": entries["state"]}
    known |= {
        name: {entry: _joined(content["statistics"][stored]) for entry, stored in _GR00T_ENTRIES.items()}
        for name, content in _read(folder / "experiment_cfg" / "metadata.json").items()
    }
    return known | _lerobot_statistics(folder)


def _joined(parts: Mapping[str, Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """Return the statistics of all parts of a robot one behind the other, in the order of the file."""
    names = set.intersection(*(set(part) for part in parts.values())) if parts else set()
    return {name: [number for part in parts.values() for number in part[name]] for name in sorted(names)}


def _lerobot_statistics(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what LeRobot stores as tensors, which are of one data set; nothing where there are none."""
    entries: dict[str, dict[str, Any]] = {}
    for path in [folder / "model.safetensors", *sorted(folder.glob("policy_preprocessor_*.safetensors"))]:
        if not path.is_file():
            continue
        file = TensorFiles([path])
        for name, shape in file.shapes().items():
            found = _LEROBOT.fullmatch(name)
            if found and len(shape) == 1:
                entry = "action" if found["entry"] == "action" else "proprio"
                entries.setdefault(entry, {})[found["statistic"]] = file.rows(name, 0, shape[0]).tolist()
    return {_LEROBOT_NAME: entries} if entries else {}


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
