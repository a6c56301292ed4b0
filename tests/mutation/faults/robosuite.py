"""Faults of robosuite's tasks: seeds, rewards, what is seen, and what the expert does."""

from __future__ import annotations

from tests.mutation.fault import Fault

_ENVS = "tests/unit/envs/simulators/robosuite"
_SINGLE = "rlinf/envs/simulators/robosuite/robosuite_single.py"
_SCENE = "rlinf/envs/simulators/robosuite/robosuite_scene.py"
_CAMERAS = "rlinf/envs/simulators/mujoco_cameras.py"
_OPENGL_TESTS = ("tests/unit/envs/test_opengl.py",)
_EXPERT = "rlinf/envs/simulators/robosuite/robosuite_expert.py"
_TESTS = {
    _SINGLE: (f"{_ENVS}/test_robosuite_single.py",),
    _SCENE: (f"{_ENVS}/test_robosuite_scene.py",),
    _CAMERAS: (f"{_ENVS}/test_robosuite_scene.py",),
    _EXPERT: (f"{_ENVS}/test_robosuite_expert.py",),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(file, before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    _fault(
        _SINGLE,
        "        with numpy_seeded(_SEED):\n",
        "        if True:\n",
        "sizes of objects depend on what was sampled before",
    ),
    _fault(
        _SINGLE,
        "        with numpy_seeded(seed):\n",
        "        with numpy_seeded(_SEED):\n",
        "every episode begins alike",
    ),
    _fault(
        _SINGLE,
        "                    robot.gripper.current_action[:] = 0.0\n",
        "                    robot.gripper.current_action[:] *= 1.0\n",
        "fingers go on from the episode before",
    ),
    _fault(
        _SINGLE,
        "                hard_reset=False,\n",
        "                hard_reset=True,\n",
        "every reset builds the scene",
    ),
    _fault(
        _SINGLE,
        "            self._env.single_object_mode = _ONE_OBJECT\n",
        "            pass\n",
        "the order of a set of strings chooses the object",
    ),
    _fault(
        _SINGLE,
        '"NutAssemblySingle": ("nut_id", 2)',
        '"NutAssemblySingle": ("nut_id", 1)',
        "one of two nuts is never there",
    ),
    _fault(
        _SINGLE,
        "float(np.clip(reward, 0.0, 1.0)), success, False, success",
        "float(reward), success, False, success",
        "rewards below 0",
    ),
    _fault(
        _SINGLE,
        "float(np.clip(reward, 0.0, 1.0)), success, False, success",
        "float(np.clip(reward, 0.0, 1.0)), False, False, success",
        "success does not end the episode",
    ),
    _fault(
        _SINGLE,
        'range(2 if cfg.task_name.startswith("TwoArm") else 1)',
        'range(2 if cfg.task_name.endswith("TwoArm") else 1)',
        "tasks of two arms have one",
    ),
    _fault(
        _SINGLE,
        '        row["states"] = self._hands(raw)\n',
        '        row["states"] = self._whole(raw)[:8]\n',
        "with images the joints take the place of the hand",
    ),
    _fault(
        _SINGLE,
        'return row | {"objects": self._whole(raw)} if self._shows_objects else row',
        'return row | {"objects": self._whole(raw)}',
        "objects are shown where they were not asked for",
    ),
    _fault(
        _SINGLE,
        'self._cameras.draw(self._views["main_images"], _VIDEO_SIZE)',
        'self._cameras.draw("agentview", _VIDEO_SIZE)',
        "videos ignore the chosen camera",
    ),
    _fault(
        _CAMERAS,
        "self._view.geomgroup[list(hidden_geoms)] = 0",
        "self._view.geomgroup[list(hidden_geoms)] = 1",
        "images show collision geometry",
    ),
    _fault(
        _CAMERAS,
        "        if self._is_light:\n",
        "        if not self._is_light:\n",
        "full images have no shadows",
    ),
    _fault(
        _CAMERAS,
        "        if is_light:\n",
        "        if not is_light:\n",
        "light images have the shadows of the full ones",
    ),
    _fault(
        _CAMERAS,
        "frame: Frame = renderer.render().copy()",
        "frame: Frame = renderer.render()[::-1].copy()",
        "images are upside down",
    ),
    _fault(
        _SCENE,
        "        np.random.set_state(state)\n",
        "        del state\n",
        "numpy's global generator stays seeded",
    ),
    _fault(
        _SCENE,
        "quaternion[:3] * 2.0 * np.arccos(w) / length",
        "quaternion[:3] * np.arccos(w) / length",
        "half the angle",
    ),
    Fault(
        "rlinf/envs/opengl.py",
        'and "MUJOCO_GL" not in os.environ:',
        "and True:",
        _OPENGL_TESTS,
        "the OpenGL that the user named is replaced",
    ),
    Fault(
        "rlinf/envs/opengl.py",
        'os.environ.setdefault("MUJOCO_EGL_DEVICE_ID", own)',
        "pass",
        _OPENGL_TESTS,
        "all workers render on the machine's first GPU",
    ),
    Fault(
        "rlinf/envs/opengl.py",
        ' and ctypes.util.find_library("EGL_nvidia") is not None:',
        ":",
        _OPENGL_TESTS,
        "a GPU's number is given to an OpenGL that has no GPU",
    ),
    _fault(
        _EXPERT,
        "way, fingers = -state[:, _WAY], state[:, _FINGERS]",
        "way, fingers = state[:, _WAY], state[:, _FINGERS]",
        "the expert flees from the cube",
    ),
    _fault(
        _EXPERT,
        "is_over = way[:, :2].norm(dim=-1) < _AIM",
        "is_over = way[:, 2].abs() < _AIM",
        "the hand goes down next to the cube",
    ),
    _fault(
        _EXPERT,
        "holds = is_at & (",
        "holds = (",
        "the hand rises without the cube",
    ),
    _fault(
        _EXPERT,
        '"objects" if "objects" in obs else "states"',
        '"states" if "states" in obs else "objects"',
        "next to images the expert reads the hand alone",
    ),
    _fault(
        _EXPERT,
        "return is_lift and (env.image_size is None or env.show_objects)",
        "return is_lift",
        "the expert acts where it cannot see the cube",
    ),
]
