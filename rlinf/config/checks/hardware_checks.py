"""What node groups say of their robots, and whether environments are placed where there are any."""

from __future__ import annotations

from collections import Counter

from rlinf.config.checks.recipe_check import Check
from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.parse import Parser
from rlinf.config.registries import hardware_types
from rlinf.config.schema.cluster import ComponentPlacementConfig, NodeGroupConfig
from rlinf.config.schema.intervention import KEYBOARD_KEYS, InterventionConfig, KeyboardIntervenerConfig
from rlinf.config.schema.realworld import FrankaHardwareConfig, MarkedEnvConfig, RealWorldEnvConfig
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.config.sections import explain_unknown

_POSE, _POINT = "x, y, z in metres, roll, pitch, yaw in radians", "x, y, z in metres"


def check_hardware(check: Check[EmbodiedConfig]) -> None:
    """Entries of a known type of hardware have its keys, and no robot is listed twice."""
    addresses: Counter[str] = Counter()
    for index, group in enumerate(check.cfg.cluster.node_groups):
        if group.hardware is None or group.hardware.type not in hardware_types.configs:
            continue
        for number, entry in enumerate(group.hardware.configs):
            path = f"cluster.node_groups[{index}].hardware.configs[{number}]"
            robot = Parser(check.problems, explain_unknown=explain_unknown).section(
                hardware_types.configs.get(group.hardware.type), entry, path
            )
            if not isinstance(robot, FrankaHardwareConfig):
                continue
            addresses[robot.robot_ip] += 1
            if addresses[robot.robot_ip] == 2:
                check.problem(f"{path}.robot_ip", f"'{robot.robot_ip}' is listed twice. List each robot once.")
            for name in ("target_ee_pose", "reset_ee_pose"):
                _check_length(getattr(robot, name), 6, f"{path}.{name}", _POSE, check)


def check_robots(check: Check[EmbodiedConfig]) -> None:
    """A robot has a client, a node group that declares it, and an env worker of its own."""
    cfg = check.cfg
    group = _env_group(cfg)
    has_robots = group is not None and group.hardware is not None and group.hardware.type.lower() == "franka"
    for path, env in (("env.train", cfg.env.train), ("env.eval", cfg.env.eval)):
        if not isinstance(env, RealWorldEnvConfig):
            continue
        _check_limits(env, path, check)
        if not env.is_dummy and env.client is None:
            check.problem(
                f"{path}.client",
                "missing; is_dummy=false needs the class that speaks to the robot, as package.module:Name. Set it, or "
                f"{path}.is_dummy=true.",
            )
        if not env.is_dummy and not has_robots:
            check.problem(
                "cluster.component_placement.env",
                f"{path}.is_dummy is false, but env is placed where no robot is. Declare the robots in a node group's "
                "hardware with type: Franka, and place env there: {node_group: <label>, placement: all}.",
            )
        if has_robots:
            _check_numbers(cfg, env, path, check.world, check)


def check_marks(check: Check[EmbodiedConfig]) -> None:
    """An operator marks the episodes of one robot, by keys that mean nothing else; a kept success can come about."""
    for path, env in (("env.train", check.cfg.env.train), ("env.eval", check.cfg.env.eval)):
        if not isinstance(env, MarkedEnvConfig):
            continue
        _check_success(env, path, check)
        keys = [key for key in (env.success_key, env.failure_key) if key is not None]
        interveners = [entry.intervener for entry in env.wrappers if isinstance(entry, InterventionConfig)]
        moves = any(isinstance(intervener, KeyboardIntervenerConfig) for intervener in interveners)
        taken = [key for key in keys if keys.count(key) > 1 or (moves and key in KEYBOARD_KEYS)]
        if taken:
            check.problem(
                f"{path}.success_key",
                f"received '{env.success_key}', with failure_key '{env.failure_key}'; '{taken[0]}' has another meaning "
                "already. Choose others: space and backspace, say.",
            )
        workers = check.world.env
        if keys and workers is not None and env.total_num_envs > workers:
            check.problem(
                f"{path}.success_key",
                f"received '{env.success_key}'; a key marks the episode of one robot, and an env worker has "
                f"{env.total_num_envs // workers}. Set total_num_envs={workers}.",
            )


def _check_success(env: MarkedEnvConfig, path: str, check: Check[EmbodiedConfig]) -> None:
    """Episodes can be successful where those alone are kept."""
    if not isinstance(env, RealWorldEnvConfig) or env.target_ee_pose is not None or env.success_key is not None:
        return
    group = _env_group(check.cfg)
    robots = [] if group is None or group.hardware is None else group.hardware.configs
    if any(robot.get("target_ee_pose") is not None for robot in robots):
        return
    if env.data_collection.enabled and env.data_collection.only_success:
        check.problem(
            f"{path}.data_collection.only_success",
            f"received True; without {path}.target_ee_pose no episode is ever successful. Set {path}.success_key=space "
            "for the operator to say so, or the target.",
        )


def _check_numbers(
    cfg: EmbodiedConfig, env: RealWorldEnvConfig, path: str, world: WorldSizes, check: Check[RLinfConfig]
) -> None:
    if world.env is not None and env.total_num_envs != world.env:
        check.problem(
            f"{path}.total_num_envs",
            f"received {env.total_num_envs}; there are {world.env} env workers, and each drives one robot. Set it to "
            f"{world.env}.",
        )
    if cfg.rollout.pipeline_stage_num != 1:
        check.problem(
            "rollout.pipeline_stage_num",
            f"received {cfg.rollout.pipeline_stage_num}; an env worker's one robot cannot be cut. Set it to 1.",
        )
    if env.num_env_processes:
        check.problem(
            f"{path}.num_env_processes",
            f"received {env.num_env_processes}; a robot is driven by its env worker. Remove it.",
        )


def _check_limits(env: RealWorldEnvConfig, path: str, check: Check[RLinfConfig]) -> None:
    """Poses and limits have their numbers, and every pose lies within the limits."""
    low, high = env.workspace_low, env.workspace_high
    lengths = [
        _check_length(low, 3, f"{path}.workspace_low", _POINT, check),
        _check_length(high, 3, f"{path}.workspace_high", _POINT, check),
    ]
    poses = {name: getattr(env, name) for name in ("reset_ee_pose", "target_ee_pose")}
    known = [name for name, pose in poses.items() if _check_length(pose, 6, f"{path}.{name}", _POSE, check) and pose]
    if not all(lengths):
        return
    if any(least >= largest for least, largest in zip(low, high, strict=True)):
        check.problem(f"{path}.workspace_low", f"received {low}; must be below workspace_high {high}. Lower it.")
        return
    for name in known:
        if any(not a <= x <= b for x, a, b in zip(poses[name][:3], low, high, strict=True)):
            check.problem(
                f"{path}.{name}",
                f"received {poses[name][:3]}, which is outside workspace_low {low} to workspace_high {high}, where the "
                "arm never goes. Move it, or widen the workspace.",
            )


def _check_length(numbers: list[float] | None, length: int, path: str, meaning: str, check: Check[RLinfConfig]) -> bool:
    if numbers is None or len(numbers) == length:
        return True
    check.problem(path, f"received {len(numbers)} numbers; allowed: {length}: {meaning}. Give all of them.")
    return False


def _env_group(cfg: EmbodiedConfig) -> NodeGroupConfig | None:
    """Return the node group that ``env`` is placed on, if it is a declared one."""
    for components, spec in cfg.cluster.component_placement.items():
        if "env" in {name.strip() for name in components.split(",")} and isinstance(spec, ComponentPlacementConfig):
            labels = {group.label: group for group in cfg.cluster.node_groups}
            return labels.get(spec.node_group or "")
    return None


RULES = (check_hardware, check_robots, check_marks)
