"""Where each part of what a robot feels stands."""

PROPRIOCEPTION_INDICES = {"R1Pro": {"joint_qpos": (0, 2), "eef_left_pos": (2, 5)}}
