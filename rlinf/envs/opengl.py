"""Which OpenGL renders the images of MuJoCo, and on which GPU; imports nothing else."""

from __future__ import annotations

import ctypes.util
import os


def choose_opengl() -> str:
    """Name the OpenGL that renders without a display, and its GPU, unless they are named; return which it is.

    It has to be called before MuJoCo is imported: that would try GLFW first, which needs a display, and render all
    workers' images on the machine's first GPU. robosuite loads OpenGL even where no image is rendered.
    """
    if "DISPLAY" not in os.environ and "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = "osmesa" if ctypes.util.find_library("EGL") is None else "egl"
    own = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    # Without NVIDIA's own EGL there is Mesa's, which knows no GPU of that number.
    if os.environ.get("MUJOCO_GL") == "egl" and own.isdigit() and ctypes.util.find_library("EGL_nvidia") is not None:
        os.environ.setdefault("MUJOCO_EGL_DEVICE_ID", own)
    return os.environ.get("MUJOCO_GL", "glfw")
