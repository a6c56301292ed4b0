"""Minari's HDF5 layout: reads a dataset folder or its ``main_data.hdf5``, and writes one.

https://minari.farama.org/content/dataset_standards: a group ``episode_<n>`` holds ``observations`` (one row more than
there are steps; a group of its own for Dict spaces), ``actions``, ``rewards``, ``terminations`` and ``truncations``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from rlinf.config.schema.data import MinariDataConfig
from rlinf.data.datasets.episodes import Episode
from rlinf.data.messages.embodied import Observation
from rlinf.errors import DatasetError
from rlinf.utils.optional import require

_FILE = Path("data") / "main_data.hdf5"


def require_h5py(needed_by: str) -> ModuleType:
    """Import h5py.

    Raises:
        MissingPackageError: It is not installed.
    """
    return require("h5py", needed_by=needed_by)


def read_minari(cfg: MinariDataConfig) -> Iterator[Episode]:
    """Yield the episodes of a Minari dataset by number.

    Args:
        cfg: The ``data`` section.

    Raises:
        DatasetError: No such dataset, or one in another layout.
        MissingPackageError: h5py is not installed.
    """
    h5py = require_h5py("data.format=minari")
    path = find_file(cfg.path, _FILE)
    with open_hdf5(h5py, path) as file:
        names = [name for name in file if name.startswith("episode_")]
        for name in sorted(names, key=lambda name: int(name.removeprefix("episode_"))):
            group = file[name]
            missing = {"observations", "actions", "rewards", "terminations", "truncations"} - set(group)
            if missing:
                raise DatasetError(
                    f"data.path: group '{name}' of '{path}' has no {', '.join(sorted(missing))}: this is not Minari's "
                    "layout. Choose another data.format."
                )
            yield Episode(
                obs=_observations(group["observations"], cfg, path),
                actions=as_actions(group["actions"][()]),
                rewards=torch.as_tensor(group["rewards"][()], dtype=torch.float32),
                terminated=bool(np.any(group["terminations"][()])),
            )


def write_minari(
    folder: Path, episodes: Iterable[tuple[dict[str, Any], dict[str, Any]]], metadata: dict[str, Any]
) -> None:
    """Write a dataset folder.

    Args:
        folder: Must not exist.
        episodes: For each the arrays of its group and the attributes of the group.
        metadata: Further entries of ``metadata.json``.

    Raises:
        FileExistsError: The folder exists.
        MissingPackageError: h5py is not installed.
    """
    h5py = require_h5py("writing a Minari dataset")
    (folder / "data").mkdir(parents=True, exist_ok=False)
    count = steps = 0
    with h5py.File(folder / _FILE, "w") as file:
        for arrays, attributes in episodes:
            group = file.create_group(f"episode_{count}")
            for name, array in arrays.items():
                group.create_dataset(name, data=array)
            group.attrs.update({"id": count, "total_steps": len(arrays["rewards"]), **attributes})
            count += 1
            steps += len(arrays["rewards"])
        file.attrs.update({"total_episodes": count, "total_steps": steps})
    content = {"total_episodes": count, "total_steps": steps, "data_format": "hdf5", **metadata}
    (folder / "data" / "metadata.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def find_file(path: str, inside: Path) -> Path:
    """Return the file that ``data.path`` names, or the one ``inside`` the folder that it names.

    Raises:
        DatasetError: There is none.
    """
    given = Path(path).expanduser()
    file = given / inside if given.is_dir() else given
    if not file.is_file():
        raise DatasetError(
            f"data.path: there is no '{file}'. Give the folder or the HDF5 file of a dataset; "
            "examples/embodiment/make_offline_data.py makes one."
        )
    return file


def open_hdf5(h5py: ModuleType, path: Path) -> Any:
    """Open an HDF5 file for reading.

    Raises:
        DatasetError: It is none, or damaged.
    """
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DatasetError(f"data.path: '{path}' cannot be read as HDF5: {error}. Write the dataset anew.") from error


def as_actions(array: Any) -> torch.Tensor:
    """Return actions as float32 [L, A], or int64 [L] for those of a Discrete space."""
    values = torch.as_tensor(np.asarray(array))
    if values.is_floating_point():
        return values.to(torch.float32).reshape(len(values), -1)
    return values.to(torch.int64).reshape(len(values))


def _observations(node: Any, cfg: MinariDataConfig, path: Path) -> Observation:
    if hasattr(node, "keys"):
        known = sorted(_datasets(node))
        missing = [key for key in cfg.state_keys if key not in known]
        if not cfg.state_keys or missing:
            raise DatasetError(
                f"data.state_keys: received {cfg.state_keys}; the observations of '{path}' are a mapping of "
                f"{', '.join(known)}. Name those that the policy sees."
            )
        parts = [np.asarray(node[key][()]) for key in cfg.state_keys]
    else:
        if cfg.state_keys:
            raise DatasetError(
                f"data.state_keys: received {cfg.state_keys}; the observations of '{path}' are one array. Remove it."
            )
        parts = [np.asarray(node[()])]
    flat = [part.reshape(len(part), -1) for part in parts]
    return {"states": torch.as_tensor(np.concatenate(flat, 1), dtype=torch.float32)}


def _datasets(group: Any, prefix: str = "") -> Iterator[str]:
    for name, node in group.items():
        if hasattr(node, "keys"):
            yield from _datasets(node, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}"
