"""Datasets as HDF5 files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

h5py = pytest.importorskip("h5py", reason="needs the package h5py")


def arrays(length: int, terminated: bool = False) -> dict[str, Any]:
    ends = np.zeros(length, bool)
    ends[-1] = True
    return {
        "observations": np.arange(2.0 * (length + 1)).reshape(length + 1, 2),
        "actions": np.arange(1.0 * length).reshape(length, 1) / 10,
        "rewards": np.arange(1.0, length + 1),
        "terminations": ends & terminated,
        "truncations": ends & (not terminated),
    }


def write_hdf5(path: Path, content: dict[str, Any]) -> str:
    with h5py.File(path, "w") as file:
        for name, value in content.items():
            file[name] = value
    return str(path)
