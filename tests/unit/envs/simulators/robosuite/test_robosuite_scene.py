"""What environments on robosuite share; needs MuJoCo, and OpenGL without a screen where images are rendered."""

import contextlib
import ctypes.util

import numpy as np
import pytest
from robosuite_simulator import make_sim

from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.robosuite.robosuite_scene import axis_angle, numpy_seeded, scene_cameras


@pytest.fixture
def opengl(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    if ctypes.util.find_library("OSMesa") is None:
        pytest.skip("rendering without a screen or GPU needs libosmesa6")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")


@pytest.mark.parametrize(
    ("quaternion", "expected"),
    [
        ([0.0, 0.0, 0.0, 1.0], [0, 0, 0]),
        ([1.0, 0.0, 0.0, 0.0], [np.pi, 0, 0]),
        ([0.0, 0.0, np.sin(0.2), np.cos(0.2)], [0, 0, 0.4]),
        ([0.0, 0.0, -np.sin(0.2), -np.cos(0.2)], [0, 0, -(2 * np.pi - 0.4)]),
    ],
)
def test_rotations_are_axis_times_angle(quaternion: list[float], expected: list[float]) -> None:
    assert axis_angle(np.array(quaternion)) == pytest.approx(np.array(expected), abs=1e-7)


def test_numpys_global_generator_is_seeded_and_restored() -> None:
    before = np.random.get_state()[1].copy()
    with numpy_seeded(7):
        first = np.random.uniform()
    with contextlib.suppress(RuntimeError), numpy_seeded(7):
        assert np.random.uniform() == first
        raise RuntimeError
    assert np.array_equal(np.random.get_state()[1], before)
    assert first == np.random.RandomState(7).uniform()


def colours(image: Frame) -> set[str]:
    """Return which of the channels is the strongest somewhere, by far."""
    values = image.reshape(-1, 3).astype(int)
    strongest = values.argmax(axis=1)[values.max(axis=1) - np.median(values, axis=1) > 30]
    return {["red", "green", "blue"][number] for number in strongest}


@pytest.mark.usefixtures("opengl")
def test_images_are_upright_and_without_collision_geometry() -> None:
    cameras = scene_cameras(make_sim(), is_light=True)
    image = cameras.draw("agentview", 32)
    assert image.shape == (32, 32, 3)
    assert colours(image) == {"red", "green"}
    assert colours(image[24:]) == {"green"}
    assert colours(cameras.draw("robot0_eye_in_hand", 16)) == {"red", "green"}
    assert not np.array_equal(image, cameras.draw("frontview", 32))
    assert np.array_equal(image, cameras.draw("agentview", 32))
    cameras.close()


@pytest.mark.usefixtures("opengl")
def test_light_images_have_no_shadows() -> None:
    images = {}
    for is_light in (True, False):
        cameras = scene_cameras(make_sim(), is_light=is_light)
        images[is_light] = cameras.draw("robot0_eye_in_hand", 64).astype(int)
        cameras.close()
    # The floor behind the box is darker in its shadow, which is more than smoothed edges.
    is_darker = (images[True] - images[False]).max(axis=-1) > 20
    assert 0.03 < is_darker.mean() < 0.5


@pytest.mark.usefixtures("opengl")
def test_an_image_belongs_to_who_asked_for_it() -> None:
    sim = make_sim()
    cameras = scene_cameras(sim, is_light=True)
    first = cameras.draw("agentview", 16)
    kept = first.copy()
    sim.model._model.geom_rgba[1] = [0.1, 0.1, 0.9, 1.0]
    assert not np.array_equal(cameras.draw("agentview", 16), kept)
    assert np.array_equal(first, kept)
    cameras.close()
