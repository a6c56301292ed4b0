"""Configurations of arms, shared by the tests of this folder."""

from typing import Any

from rlinf.config.schema.realworld import RealWorldEnvConfig


def make_config(**keys: Any) -> RealWorldEnvConfig:
    """Return a stand-in's configuration: the target 0.2 m below the start, small images."""
    defaults: dict[str, Any] = {
        "total_num_envs": 2,
        "max_episode_steps": 30,
        "max_steps_per_rollout_epoch": 30,
        "is_dummy": True,
        "target_ee_pose": [0.5, 0.0, 0.1, 3.1416, 0.0, 0.0],
        "image_size": 24,
    }
    return RealWorldEnvConfig(env_type="realworld", **{**defaults, **keys})


def robot(number: int, **keys: Any) -> dict[str, Any]:
    """Return what a worker is told of its robot."""
    return {"type": "Franka", "node_rank": 0, "robot_ip": f"10.0.0.{number}", "camera_serials": ["a"], **keys}
