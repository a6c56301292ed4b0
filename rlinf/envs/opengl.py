"""Which OpenGL renders the images of MuJoCo; imports nothing else."""

from __future__ import annotations

import ctypes.util
import os


def choose_opengl() -> str:
    """Name the OpenGL that renders without a display, unless one is named; return which it is.

    robosuite loads it as soon as it is imported, whether images are rendered or not, and MuJoCo would try GLFW first,
    which needs a display.
    """
    if "DISPLAY" not in os.environ and "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = "osmesa" if ctypes.util.find_library("EGL") is None else "egl"
    return os.environ.get("MUJOCO_GL", "glfw")
