"""Turns against numbers worked out by hand."""

import numpy as np
import pytest

from rlinf.envs.realworld.poses import from_rotation_vector, limited, multiply, pose_from_euler, rotation_between

QUARTER = np.pi / 2


def turned(quaternion: np.ndarray, point: list[float]) -> np.ndarray:
    """Rotate a point by a quaternion, by its matrix."""
    x, y, z, w = quaternion
    matrix = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
    return matrix @ np.array(point)


@pytest.mark.parametrize(
    ("angles", "point", "expected"),
    [
        ([0, 0, QUARTER], [1, 0, 0], [0, 1, 0]),
        ([np.pi, 0, 0], [0, 0, 1], [0, 0, -1]),
        # Roll first: y becomes z; then yaw, around the fixed vertical, leaves it.
        ([QUARTER, 0, QUARTER], [0, 1, 0], [0, 0, 1]),
        ([0, QUARTER, QUARTER], [0, 0, 1], [0, 1, 0]),
    ],
)
def test_roll_pitch_and_yaw_turn_around_fixed_axes(angles: list[float], point: list[int], expected: list[int]) -> None:
    pose = pose_from_euler([1.0, 2.0, 3.0, *angles])
    assert pose[:3].tolist() == [1, 2, 3]
    np.testing.assert_allclose(turned(pose[3:], point), expected, atol=1e-12)


def test_a_rotation_vector_comes_back_and_by_the_shorter_way() -> None:
    start = pose_from_euler([0, 0, 0, 3.1, -0.2, 0.4])[3:]
    for vector in ([0.3, -0.2, 0.1], [0.0, 0.0, 0.0], [0.0, 0.0, -3.0]):
        end = multiply(from_rotation_vector(np.array(vector)), start)
        np.testing.assert_allclose(rotation_between(start, end), vector, atol=1e-9)
        np.testing.assert_allclose(rotation_between(start, -end), vector, atol=1e-9)


def test_vectors_are_shortened_and_never_lengthened() -> None:
    np.testing.assert_allclose(limited(np.array([3.0, 4.0]), 1.0), [0.6, 0.8])
    np.testing.assert_allclose(limited(np.array([0.3, 0.4]), 1.0), [0.3, 0.4])
