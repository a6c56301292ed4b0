"""Poses as float64 [7]: position in metres, then a unit quaternion x, y, z, w; imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def pose_from_euler(numbers: Sequence[float]) -> Vector:
    """Return the pose of x, y, z in metres and roll, pitch, yaw in radians (turns around fixed axes, in this order)."""
    position, angles = np.array(numbers[:3], np.float64), np.array(numbers[3:], np.float64)
    turns = [from_rotation_vector(axis * angle) for axis, angle in zip(np.eye(3), angles, strict=True)]
    return np.concatenate([position, multiply(turns[2], multiply(turns[1], turns[0]))])


def multiply(left: Vector, right: Vector) -> Vector:
    """Return the quaternion of turning by ``right`` first and by ``left`` then."""
    x1, y1, z1, w1 = left
    x2, y2, z2, w2 = right
    product = np.array(
        [
            w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
            w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
            w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2,
            w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
        ]
    )
    quaternion: Vector = product / np.linalg.norm(product)
    return quaternion


def rotation_between(start: Vector, end: Vector) -> Vector:
    """Return the turn from one quaternion to another as a rotation vector, radians [3], in the fixed frame."""
    x, y, z, w = multiply(end, start * np.array([-1.0, -1.0, -1.0, 1.0]))
    axis = np.array([x, y, z]) * (1.0 if w >= 0 else -1.0)  # the shorter way round
    length = float(np.linalg.norm(axis))
    if length < 1e-12:
        return np.zeros(3)
    vector: Vector = axis * (2.0 * np.arctan2(length, abs(w)) / length)
    return vector


def from_rotation_vector(vector: Vector) -> Vector:
    """Return the quaternion of a rotation vector, radians [3]."""
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.array([0.0, 0.0, 0.0, 1.0])
    return np.concatenate([vector * (np.sin(angle / 2) / angle), [np.cos(angle / 2)]])


def limited(vector: Vector, limit: float) -> Vector:
    """Return the vector, shortened to ``limit`` where it is longer."""
    length = float(np.linalg.norm(vector))
    return vector * (limit / length) if length > limit else vector
