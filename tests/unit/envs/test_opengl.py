"""Which OpenGL renders MuJoCo's images."""

from __future__ import annotations

import ctypes.util
import os

import pytest

from rlinf.envs.opengl import choose_opengl


@pytest.mark.parametrize(
    ("environment", "has_egl", "chosen"),
    [
        ({}, True, "egl"),
        ({}, False, "osmesa"),
        ({"MUJOCO_GL": "osmesa"}, True, "osmesa"),
        ({"DISPLAY": ":0"}, True, None),
    ],
)
def test_without_a_display_an_opengl_that_is_installed_is_named(
    environment: dict[str, str], has_egl: bool, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")  # so that what is chosen is taken back
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: "found" if has_egl and name == "EGL" else None)
    assert choose_opengl() == (chosen or "glfw")
    assert os.environ.get("MUJOCO_GL") == chosen
