"""Cameras of MuJoCo scenes, several in one process."""

import numpy as np
import pytest

from rlinf.envs.opengl import choose_opengl
from rlinf.envs.simulators.mujoco_cameras import MujocoCameras

SCENE = """
<mujoco>
  <asset>
    <texture name="squares" type="2d" builtin="checker" rgb1="{colour}" rgb2="0 0 0" width="64" height="64"/>
    <material name="squares" texture="squares" texrepeat="4 4"/>
  </asset>
  <worldbody>
    <light pos="0 0 2"/>
    <camera name="above" pos="0 0 1"/>
    <geom type="plane" size="1 1 .1" material="squares"/>
  </worldbody>
</mujoco>
"""


def cameras(colour: str) -> MujocoCameras:
    mujoco = pytest.importorskip("mujoco")
    choose_opengl()
    model = mujoco.MjModel.from_xml_string(SCENE.format(colour=colour))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return MujocoCameras(model, data, is_light=True)


def test_closing_a_scenes_cameras_leaves_those_of_others_as_they_are() -> None:
    red, green = cameras("1 0 0"), cameras("0 1 0")
    expected = red.draw("above", 32)
    assert expected[..., 0].max() > 40 > expected[..., 1].max()
    green.draw("above", 32)
    red.draw("above", 32)
    green.close()
    np.testing.assert_array_equal(red.draw("above", 32), expected)
    green.close()
    np.testing.assert_array_equal(green.draw("above", 32)[..., 1] > 40, expected[..., 0] > 40)
    for each in (red, green):
        each.close()
