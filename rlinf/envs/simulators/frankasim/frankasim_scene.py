"""The scene of ``env_type: frankasim``, in MuJoCo's XML: a table, a cube and an arm with the Franka Panda's kinematics.

Joint frames and limits are those of Franka Robotics' published description; shapes are primitives, so that nothing has
to be downloaded and contacts stay cheap.
"""

from __future__ import annotations

from collections.abc import Mapping

# Joint 1 to 7 (rad), then both fingers (m): the hand 0.5 m before the base, 0.2 m above the table, pointing down, open.
HOME = (0.0, 0.0459, 0.0, -2.3763, 0.0, 2.4222, 0.7854, 0.04, 0.04)
CUBE_HALF_SIZE = 0.02
FINGER_OPEN = 0.04

_TABLE = """
<mujoco model="frankasim">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="0.002" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <visual><global offwidth="640" offheight="480"/><headlight ambient="0.4 0.4 0.4" diffuse="0.5 0.5 0.5"/></visual>
  <default>
    <default class="arm">
      <joint armature="0.1" damping="1"/>
      <geom type="capsule" rgba="0.93 0.93 0.93 1" contype="0" conaffinity="0" mass="2"/>
      <position kp="2000" kv="200"/>
    </default>
    <default class="finger">
      <joint type="slide" axis="0 1 0" range="0 0.04" armature="0.1" damping="10"/>
      <geom type="box" size="0.01 0.006 0.022" pos="0 0.006 0.03" rgba="0.2 0.2 0.2 1" mass="0.02"
            friction="2 0.05 0.0001"/>
      <position kp="400" kv="40" ctrlrange="0 0.04" forcerange="-40 40"/>
    </default>
  </default>
  <worldbody>
    <light pos="0.3 0 2" dir="0 0 -1" diffuse="0.6 0.6 0.6"/>
    <geom name="table" type="plane" size="1.5 1.5 0.1" rgba="0.45 0.5 0.55 1"/>
    <camera name="front" pos="1.15 0 0.55" xyaxes="0 1 0 -0.55 0 0.83" fovy="50"/>
    <body name="link0" childclass="arm">
      <geom fromto="0 0 0.02 0 0 0.25" size="0.07"/>
      <body name="link1" pos="0 0 0.333" gravcomp="1">
        <joint name="joint1" axis="0 0 1" range="-2.8973 2.8973"/>
        <geom fromto="0 0 -0.1 0 0 0" size="0.06"/>
        <body name="link2" quat="1 -1 0 0" gravcomp="1">
          <joint name="joint2" axis="0 0 1" range="-1.7628 1.7628"/>
          <geom fromto="0 0 0 0 -0.2 0" size="0.06"/>
          <body name="link3" pos="0 -0.316 0" quat="1 1 0 0" gravcomp="1">
            <joint name="joint3" axis="0 0 1" range="-2.8973 2.8973"/>
            <geom fromto="0 0 -0.1 0.0825 0 0" size="0.055"/>
            <body name="link4" pos="0.0825 0 0" quat="1 1 0 0" gravcomp="1">
              <joint name="joint4" axis="0 0 1" range="-3.0718 -0.0698"/>
              <geom fromto="0 0 0 -0.0825 0.1 0" size="0.055"/>
              <body name="link5" pos="-0.0825 0.384 0" quat="1 -1 0 0" gravcomp="1">
                <joint name="joint5" axis="0 0 1" range="-2.8973 2.8973"/>
                <geom fromto="0 0 -0.25 0 0 0" size="0.05"/>
                <body name="link6" quat="1 1 0 0" gravcomp="1">
                  <joint name="joint6" axis="0 0 1" range="-0.0175 3.7525"/>
                  <geom fromto="0 0 0 0.088 0 0" size="0.045"/>
                  <body name="link7" pos="0.088 0 0" quat="1 1 0 0" gravcomp="1">
                    <joint name="joint7" axis="0 0 1" range="-2.8973 2.8973"/>
                    <geom fromto="0 0 0 0 0 0.08" size="0.04" mass="0.7"/>
                    <body name="hand" pos="0 0 0.107" quat="0.9238795 0 0 -0.3826834" gravcomp="1">
                      <geom type="box" size="0.02 0.1 0.02" pos="0 0 0.03" mass="0.7" rgba="0.3 0.3 0.3 1"/>
                      <site name="tcp" pos="0 0 0.1034" size="0.003" rgba="0 0 0 0"/>
                      <camera name="wrist" pos="0.07 0 0.02" quat="0 0.7071 0.7071 0" fovy="75"/>
                      <body name="finger1" pos="0 0 0.0584" childclass="finger" gravcomp="1">
                        <joint name="finger1"/>
                        <geom name="finger1" contype="1" conaffinity="1"/>
                      </body>
                      <body name="finger2" pos="0 0 0.0584" quat="0 0 0 1" childclass="finger" gravcomp="1">
                        <joint name="finger2"/>
                        <geom name="finger2" contype="1" conaffinity="1"/>
                      </body>
                    </body>
                  </body>
                </body>
              </body>
            </body>
          </body>
        </body>
      </body>
    </body>
{objects}  </worldbody>
  <actuator>
    <position class="arm" joint="joint1"/>
    <position class="arm" joint="joint2"/>
    <position class="arm" joint="joint3"/>
    <position class="arm" joint="joint4"/>
    <position class="arm" joint="joint5"/>
    <position class="arm" joint="joint6"/>
    <position class="arm" joint="joint7"/>
    <position class="finger" joint="finger1"/>
    <position class="finger" joint="finger2"/>
  </actuator>
</mujoco>
"""


def scene_with(cubes: Mapping[str, str], cameras: str = "") -> str:
    """Return the scene with cubes of 4 cm.

    Args:
        cubes: Their colours, as ``rgba``, by their names.
        cameras: Further cameras, as XML.
    """
    bodies = "".join(
        f'''    <body name="{name}" pos="0.5 0 0.02">
      <freejoint name="{name}"/>
      <geom name="{name}" type="box" size="0.02 0.02 0.02" mass="0.05" rgba="{colour}" friction="1 0.05 0.0001"/>
    </body>
'''
        for name, colour in cubes.items()
    )
    return _TABLE.replace("{objects}", cameras + bodies)


SCENE = scene_with({"cube": "0.85 0.15 0.1 1"})
