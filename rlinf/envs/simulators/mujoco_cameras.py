"""Cameras of MuJoCo scenes, which simulators share: they render only when an image is requested; imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlinf.envs.raw_chunk import Frame
from rlinf.utils.optional import require


class MujocoCameras:
    """Renders what the cameras of a scene see.

    Args:
        model: The scene's ``MjModel``; light images change its quality.
        data: Its ``MjData``.
        is_light: Render without shadow maps and multisampling, which take most of the time without a GPU.
        hidden_geoms: Groups of geometry that are not rendered.
    """

    def __init__(self, model: Any, data: Any, *, is_light: bool, hidden_geoms: Sequence[int] = ()) -> None:
        self._mujoco: Any = require("mujoco", needed_by="images of MuJoCo")
        self._model, self._data, self._is_light = model, data, is_light
        self._renderers: dict[int, Any] = {}
        self._view: Any = self._mujoco.MjvOption()
        self._view.geomgroup[list(hidden_geoms)] = 0
        if is_light:
            model.vis.quality.shadowsize = model.vis.quality.offsamples = 0

    def draw(self, camera: str, size: int) -> Frame:
        """Return what a camera sees, uint8 [size, size, 3], upright."""
        if size not in self._renderers:
            self._renderers[size] = self._mujoco.Renderer(self._model, size, size)
        renderer = self._renderers[size]
        renderer.update_scene(self._data, camera, self._view)
        if self._is_light:
            renderer.scene.flags[self._mujoco.mjtRndFlag.mjRND_SHADOW] = False
            renderer.scene.flags[self._mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        frame: Frame = renderer.render().copy()
        return frame

    def close(self) -> None:
        """Free the renderers."""
        for renderer in self._renderers.values():
            # MuJoCo would free what a renderer has drawn with after its OpenGL context, and so in that of another one.
            renderer._gl_context.make_current()
            renderer._mjr_context.free()
            renderer._mjr_context = None
            renderer.close()
        self._renderers = {}
