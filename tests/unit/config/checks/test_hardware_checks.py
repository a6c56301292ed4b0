"""What recipes say of robots that cannot be driven so, each with its remedy."""

from collections.abc import Callable
from typing import Any

import pytest

from rlinf.config import validate_cfg
from rlinf.errors import ConfigError

ROBOTS = [{"node_rank": 0, "robot_ip": f"10.0.0.{n}", "camera_serials": ["1"]} for n in (1, 2)]
CLUSTER = {
    "num_nodes": 1,
    "component_placement": {"actor,rollout": 0, "env": {"node_group": "franka", "placement": "all"}},
    "node_groups": [{"label": "franka", "node_ranks": 0, "hardware": {"type": "Franka", "configs": ROBOTS}}],
}
ENV = {
    "env_type": "realworld",
    "is_dummy": True,
    "target_ee_pose": [0.5, 0.0, 0.1, 3.1416, 0.0, 0.0],
    "total_num_envs": 2,
    "max_episode_steps": 100,
    "max_steps_per_rollout_epoch": 200,
}
TRAIN = {
    "cluster": CLUSTER,
    "env.train": ENV,
    "env.eval": "DELETE",
    "actor.model.obs_dim": 19,
    "actor.model.action_dim": 7,
}
CLIENT = {"env.train.is_dummy": False, "env.train.client": "lab.franka:Client"}
KEYBOARD = {"name": "intervention", "intervener": {"intervener_type": "keyboard"}}
WRAPPED = {"env.train.wrappers": [KEYBOARD]}
PLACED = {"cluster": {"num_nodes": 1, "component_placement": {"actor,rollout,env": 0}}}
PATH = "cluster.node_groups[0].hardware.configs[1]"


def with_robot(**keys: str | list[str | float]) -> dict[str, list[dict[Any, Any]]]:
    groups = [{**CLUSTER["node_groups"][0], "hardware": {"type": "Franka", "configs": [ROBOTS[0], ROBOTS[1] | keys]}}]
    return {"cluster.node_groups": groups}


@pytest.mark.parametrize("changes", [{}, CLIENT, {"cluster.node_groups": CLUSTER["node_groups"]}])
def test_robots_that_can_be_driven_are_accepted(recipe: Callable[..., dict[str, Any]], changes: dict[str, Any]) -> None:
    validate_cfg(recipe(TRAIN | changes))


def test_a_stand_in_needs_no_robot(recipe: Callable[..., dict[str, Any]]) -> None:
    placed = {"cluster": {"num_nodes": 1, "component_placement": {"actor,rollout,env": 0}}}
    validate_cfg(recipe(TRAIN | placed | {"env.train.total_num_envs": 8}))


@pytest.mark.parametrize(
    ("changes", "path", "remedy"),
    [
        ({"env.train.is_dummy": False}, "env.train.client", "missing; is_dummy=false needs the class"),
        (
            CLIENT | {"cluster.component_placement": {"actor,rollout,env": 0}},
            "cluster.component_placement.env",
            "but env is placed where no robot is",
        ),
        ({"env.train.total_num_envs": 4}, "env.train.total_num_envs", "Set it to 2."),
        ({"rollout.pipeline_stage_num": 2}, "rollout.pipeline_stage_num", "one robot cannot be cut"),
        ({"env.train.num_env_processes": 1}, "env.train.num_env_processes", "Remove it."),
        (with_robot(robot_ip="10.0.0.1"), f"{PATH}.robot_ip", "listed twice"),
        (with_robot(camera_serial=["1"]), f"{PATH}.camera_serial", "configs[1].camera_serials'?"),
        (with_robot(target_ee_pose=[0.5, 0.0]), f"{PATH}.target_ee_pose", "received 2 numbers; allowed: 6"),
        ({"env.train.target_ee_pose": [0.5, 0.0, 0.1]}, "env.train.target_ee_pose", "received 3 numbers; allowed: 6"),
        ({"env.train.workspace_low": [0.1]}, "env.train.workspace_low", "received 1 numbers; allowed: 3"),
        ({"env.train.workspace_low": [0.3, 0.3, 0.0]}, "env.train.workspace_low", "must be below workspace_high"),
        (
            {"env.train.target_ee_pose": [0.9, 0.0, 0.1, 0.0, 0.0, 0.0]},
            "env.train.target_ee_pose",
            "outside workspace_low",
        ),
        (
            {"env.train.success_key": "x", "env.train.failure_key": "x"},
            "env.train.success_key",
            "'x' has another meaning already",
        ),
        (
            WRAPPED | {"env.train.success_key": "y", "env.train.failure_key": "c"},
            "env.train.success_key",
            "with failure_key 'c'; 'c' has another meaning",
        ),
        (
            PLACED | {"env.train.success_key": "y", "env.train.total_num_envs": 4},
            "env.train.success_key",
            "an env worker has 4. Set total_num_envs=1",
        ),
        ({"env.train.use_spacemouse": True}, "env.train.use_spacemouse", "wrapper intervention"),
        ({"env.train.main_image_key": "wrist_1"}, "env.train.main_image_key", "camera_serials"),
    ],
)
def test_others_are_told_with_their_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe(TRAIN | changes))
    lines = [line for line in str(caught.value).splitlines() if f"- {path}: " in line]
    assert len(lines) == 1, str(caught.value)
    assert remedy in lines[0]


def test_hardware_of_types_that_are_not_known_may_have_any_keys(recipe: Callable[..., dict[str, Any]]) -> None:
    group = {"label": "legs", "node_ranks": 0, "hardware": {"type": "Spot", "configs": [{"node_rank": 0, "legs": 4}]}}
    validate_cfg(recipe({"cluster.node_groups": [group]}))
