"""The stand-in for scipy's rotation gives scipy's bits."""

import numpy as np
import pytest

from rlinf.envs.simulators.metaworld.metaworld_rotation import PlainRotation


def test_quaternions_equal_scipys_in_every_branch() -> None:
    rotation = pytest.importorskip("scipy.spatial.transform").Rotation
    quaternions = np.random.default_rng(0).normal(size=(500, 4))
    half_turns = np.eye(4)
    for quaternion in np.concatenate([quaternions, half_turns]):
        matrix = rotation.from_quat(quaternion).as_matrix()
        expected = rotation.from_matrix(matrix).as_quat()
        np.testing.assert_array_equal(PlainRotation.from_matrix(matrix).as_quat(), expected)
