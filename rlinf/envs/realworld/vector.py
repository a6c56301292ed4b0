"""``env_type: realworld``: the arm of an env worker, or a stand-in of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rlinf.config.hardware import parse_hardware
from rlinf.config.schema.realworld import FrankaHardwareConfig, RealWorldEnvConfig
from rlinf.envs.realworld.franka import FrankaSingleEnv
from rlinf.envs.single_env_vector import SingleEnvVectorEnv
from rlinf.errors import ConfigError

# Shown by a stand-in that no node group declares.
_UNDECLARED = FrankaHardwareConfig(node_rank=0, robot_ip="dummy", camera_serials=["main"])


class RealWorldEnv(SingleEnvVectorEnv):
    """A Franka arm whose gripper moves to a target; ``states`` float32 [B, 19] and the cameras' images.

    An env worker drives the one robot that it was placed on. Stand-ins that no node group declares can be many.

    Args:
        cfg: Its configuration.
        num_envs: ``B``; 1 for a declared robot.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.
        hardware: The robots of this worker, as the cluster's node group describes them.

    Raises:
        ConfigError: There is no robot, or no client to it; or there are several; or the client cannot be imported.
    """

    hardware_type: ClassVar[str | None] = "Franka"
    restored_by = "nothing"  # actions are never executed again on a robot, nor on its stand-in

    def __init__(
        self,
        cfg: RealWorldEnvConfig,
        *,
        num_envs: int,
        first_env: int = 0,
        hardware: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        robots = [parse_hardware(info, FrankaHardwareConfig) for info in hardware]
        if not cfg.is_dummy and cfg.client is None:
            raise ConfigError(
                "env.*.client is null; with is_dummy=false it names who speaks to the robot, as package.module:Name of "
                "a FrankaClient. Set it, or env.*.is_dummy=true."
            )
        if not cfg.is_dummy and not robots:
            raise ConfigError(
                "env.*.is_dummy is false, but this env worker was placed on no robot. Declare it in a node group's "
                "hardware with type: Franka, and place env there."
            )
        if robots and (len(robots) > 1 or num_envs > 1):
            raise ConfigError(
                f"env_type={cfg.env_type}: an env worker drives one robot; it has {len(robots)} robots and {num_envs} "
                "environments. Give each robot a process in cluster.component_placement, and set total_num_envs to "
                "their number."
            )
        super().__init__(
            cfg,
            num_envs=num_envs,
            first_env=first_env,
            factory=FrankaSingleEnv,
            kwargs={"cfg": cfg, "robot": robots[0] if robots else _UNDECLARED, "is_declared": bool(robots)},
        )
