"""Configuration of ManiSkill tasks."""

from typing import Any

from rlinf.config.schema.env import ManiSkillEnvConfig

PUSH_CUBE = {"id": "PushCube-v1", "control_mode": "pd_ee_delta_pos"}
PUT_ON_PLATE = {"id": "PutOnPlate25-v1", "control_mode": "pd_ee_delta_pose"}


def maniskill_config(**kwargs: Any) -> ManiSkillEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "maniskill",
        "total_num_envs": 2,
        "group_size": 2,
        "max_episode_steps": 5,
        "max_steps_per_rollout_epoch": 10,
        "init_params": PUSH_CUBE,
    }
    return ManiSkillEnvConfig(**{**defaults, **kwargs})
