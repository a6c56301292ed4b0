"""Which OpenGL renders MuJoCo's images, and on which GPU."""

import ctypes.util
import os

import pytest

from rlinf.envs.opengl import choose_opengl


def choose(environment: dict[str, str], libraries: set[str], monkeypatch: pytest.MonkeyPatch) -> tuple[str | None, ...]:
    """Return MUJOCO_GL and MUJOCO_EGL_DEVICE_ID of a process with these variables on a machine with these libraries."""
    names = ("DISPLAY", "MUJOCO_GL", "MUJOCO_EGL_DEVICE_ID", "CUDA_VISIBLE_DEVICES")
    for name in names:
        monkeypatch.setenv(name, "")  # so that what is chosen is taken back
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: "found" if name in libraries else None)
    assert choose_opengl() == os.environ.get("MUJOCO_GL", "glfw")
    return os.environ.get("MUJOCO_GL"), os.environ.get("MUJOCO_EGL_DEVICE_ID")


@pytest.mark.parametrize(
    ("environment", "libraries", "chosen"),
    [
        ({}, {"EGL"}, "egl"),
        ({}, set(), "osmesa"),
        ({"MUJOCO_GL": "osmesa"}, {"EGL"}, "osmesa"),
        ({"DISPLAY": ":0"}, {"EGL"}, None),
    ],
)
def test_without_a_display_an_opengl_that_is_installed_is_named(
    environment: dict[str, str], libraries: set[str], chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose(environment, libraries, monkeypatch) == (chosen, None)


@pytest.mark.parametrize(
    ("environment", "libraries", "device"),
    [
        ({"CUDA_VISIBLE_DEVICES": "3"}, {"EGL", "EGL_nvidia"}, "3"),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, {"EGL", "EGL_nvidia"}, "2"),
        ({"CUDA_VISIBLE_DEVICES": "3", "MUJOCO_EGL_DEVICE_ID": "1"}, {"EGL", "EGL_nvidia"}, "1"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, {"EGL"}, None),
        ({"CUDA_VISIBLE_DEVICES": "3", "MUJOCO_GL": "osmesa"}, {"EGL", "EGL_nvidia"}, None),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8f6c"}, {"EGL", "EGL_nvidia"}, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, {"EGL", "EGL_nvidia"}, None),
        ({}, {"EGL", "EGL_nvidia"}, None),
    ],
)
def test_images_are_rendered_by_the_workers_own_gpu(
    environment: dict[str, str], libraries: set[str], device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose(environment, libraries, monkeypatch)[1] == device
