"""What the program that lifts robosuite's cube does, situation by situation."""

from typing import Any

import pytest
import torch
from robosuite_configs import robosuite_config

from rlinf.config.registries import scripted_policies
from rlinf.errors import ConfigError

OPEN, ROUND_THE_CUBE = 0.08, 0.06


def act(way: list[float], opening: float = OPEN, *, key: str = "states", **kwargs: Any) -> tuple[list[float], float]:
    """Return the signs of the motion, and the gripper, where ``way`` leads to the cube."""
    expert = scripted_policies.get("robosuite_lift")(robosuite_config(**kwargs))
    state = torch.zeros(1, 42)
    state[0, 28:30] = torch.tensor([opening / 2, -opening / 2])
    state[0, 39:42] = -torch.tensor(way)
    action = expert({"states": torch.full((1, 8), 9.0), key: state})
    assert action.abs().max() <= 1
    assert not action[0, 0, 3:-1].any()
    return action[0, 0, :3].sign().tolist(), float(action[0, 0, -1])


def test_the_hand_goes_over_the_cube_with_an_open_gripper() -> None:
    assert act([0.1, -0.1, -0.2]) == ([1.0, -1.0, -1.0], -1.0)
    assert act([0.1, -0.1, 0.0]) == ([1.0, -1.0, 1.0], -1.0)


def test_over_the_cube_it_goes_down_and_at_it_closes() -> None:
    assert act([0.0, 0.005, -0.06]) == ([0.0, 1.0, -1.0], -1.0)
    assert act([0.0, 0.0, -0.005]) == ([0.0, 0.0, -1.0], 1.0)


def test_what_is_held_is_lifted() -> None:
    assert act([0.0, 0.005, -0.005], ROUND_THE_CUBE) == ([0.0, 0.0, 1.0], 1.0)
    assert act([0.0, 0.0, -0.06], ROUND_THE_CUBE) == ([0.0, 0.0, -1.0], -1.0)


def test_next_to_images_it_reads_the_whole_state() -> None:
    held = act([0.0, 0.0, 0.0], ROUND_THE_CUBE, key="objects", image_size=8, show_objects=True)
    assert held == ([0.0, 0.0, 1.0], 1.0)


@pytest.mark.parametrize(("controller", "num_actions"), [("OSC_POSE", 7), ("OSC_POSITION", 4)])
def test_actions_are_those_of_the_controller(controller: str, num_actions: int) -> None:
    expert = scripted_policies.get("robosuite_lift")(robosuite_config(controller=controller))
    assert expert({"states": torch.zeros(3, 42)}).shape == (3, 1, num_actions)


@pytest.mark.parametrize(
    "wrong",
    [{"task_name": "Stack"}, {"robots": "IIWA"}, {"controller": "JOINT_POSITION"}, {"image_size": 8}],
)
def test_where_it_cannot_act_it_says_where_it_can(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"robosuite_lift.*task_name: Lift, robots: Panda.*show_objects: true"):
        scripted_policies.get("robosuite_lift")(robosuite_config(**wrong))
