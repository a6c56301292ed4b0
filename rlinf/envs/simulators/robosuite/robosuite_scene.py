"""What environments on robosuite share: cameras, numpy's global generator, rotations; imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from rlinf.envs.simulators.mujoco_cameras import MujocoCameras

_COLLISION_GEOMS = (0,)
"""MuJoCo's group of the geometry that robosuite does not render."""


def scene_cameras(sim: Any, *, is_light: bool) -> MujocoCameras:
    """Return the cameras of a scene, given its ``MjSim`` of robosuite; see ``MujocoCameras``."""
    return MujocoCameras(sim.model._model, sim.data._data, is_light=is_light, hidden_geoms=_COLLISION_GEOMS)


@contextmanager
def numpy_seeded(seed: int) -> Iterator[None]:
    """Seed numpy's global generator, from which robosuite samples, and restore it behind."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


def axis_angle(quaternion: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return a rotation's axis times its angle [3], from (x, y, z, w), as published states have it.

    The angle is between 0 and 2 pi: ``w`` and ``-w`` differ, though they are the same rotation.
    """
    w = float(np.clip(quaternion[3], -1.0, 1.0))
    length = np.sqrt(1.0 - w * w)
    if length < 1e-12:
        return np.zeros(3)
    scaled: npt.NDArray[np.float64] = quaternion[:3] * 2.0 * np.arccos(w) / length
    return scaled
