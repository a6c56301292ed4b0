"""What the program for ``PutOnPlate25-v1`` does, situation by situation."""

from typing import Any

import pytest
import torch
from maniskill_configs import PUSH_CUBE, PUT_ON_PLATE, maniskill_config

from rlinf.config.registries import scripted_policies
from rlinf.errors import ConfigError

CUBE, PLATE = [0.0, -0.1, 0.02], [0.05, 0.1, 0.006]
DOWN = [0.0, 1.0, 0.0, 0.0]
"""A hand whose fingers point down and close along y."""


def rotated(degrees: float) -> list[float]:
    """Return a hand that points down, turned about the vertical."""
    half = torch.tensor(degrees / 2).deg2rad()
    return [0.0, float(half.cos()), float(half.sin()), 0.0]


def act(
    hand: list[float], *, cube: list[float] = CUBE, turn: float = 0.0, pose: list[float] = DOWN, held: bool = False
) -> torch.Tensor:
    """Return the action [7] for a cube of half height 0.02."""
    expert = scripted_policies.get("maniskill_plates")(maniskill_config(init_params=PUT_ON_PLATE, show_objects=True))
    obs = {
        "states": torch.tensor([[0.0] * 18 + hand + pose]),
        "objects": torch.tensor([[*cube, turn, 0.02, *PLATE, float(held)]]),
    }
    action = expert(obs)
    assert action.shape == (1, 1, 7)
    assert action.abs().max() <= 1
    return action[0, 0]


def signs(action: torch.Tensor) -> list[float]:
    return [*action[:3].sign().tolist(), float(action[6])]


def test_a_high_hand_goes_over_the_object_with_an_open_gripper() -> None:
    assert signs(act([0.1, 0.1, 0.2])) == [-1, -1, -1, 1]


def test_a_low_hand_rises_before_it_goes_sidewise() -> None:
    assert signs(act([0.1, 0.1, 0.05])) == [0, 0, 1, 1]


def test_over_the_object_it_goes_down_and_at_it_closes() -> None:
    assert signs(act([0.0, -0.1, 0.1])) == [0, 0, -1, 1]
    assert signs(act([0.0, -0.1, 0.025])) == [0, 0, 0, -1]


@pytest.mark.parametrize(
    ("turn", "pose", "expected"),
    [
        (0.0, DOWN, 0),
        (torch.pi / 4, DOWN, 1),
        (3 * torch.pi / 4, DOWN, -1),
        (-torch.pi / 8, DOWN, -1),
        (torch.pi / 4, rotated(45), 0),
        (torch.pi / 4, rotated(90), -1),
        (torch.pi, DOWN, 0),
    ],
)
def test_it_turns_the_shorter_way(turn: float, pose: list[float], expected: int) -> None:
    rotation = act([0.0, -0.1, 0.12], turn=turn, pose=pose)[3:6]
    assert rotation[:2].tolist() == pytest.approx([0, 0], abs=1e-5)
    # ManiSkill turns against the sign of its action.
    assert (-rotation[2]).round().item() == expected


def test_it_does_not_go_down_before_it_is_turned() -> None:
    assert signs(act([0.0, -0.1, 0.1], turn=0.3))[2] > 0


def test_a_hand_that_leans_is_put_upright() -> None:
    lean = torch.tensor(0.1)
    about_x = [float(-(lean / 2).sin()), float((lean / 2).cos()), 0.0, 0.0]  # leans by 0.1 rad more than half a turn
    rotation = -act([0.0, -0.1, 0.12], pose=about_x)[3:6] / 8
    # Turning by the opposite brings it back.
    assert rotation.tolist() == pytest.approx([-0.1, 0.0, 0.0], abs=1e-3)


def test_what_is_held_is_lifted_and_carried_over_the_plate() -> None:
    assert signs(act(CUBE, held=True)) == [0, 0, 1, -1]
    lifted = [0.0, -0.1, 0.09]
    assert signs(act(lifted, cube=lifted, held=True)) == [1, 1, 1, -1]


def test_over_the_plate_it_goes_down_and_lets_go() -> None:
    above = [0.05, 0.1, 0.09]
    assert signs(act(above, cube=above, held=True)) == [0, 0, -1, -1]
    low = [0.05, 0.1, 0.035]
    assert signs(act(low, cube=low, held=True)) == [0, 0, 0, 1]


def test_when_the_object_lies_on_the_plate_the_hand_rises() -> None:
    rest = [0.05, 0.1, 0.032]
    assert signs(act(rest, cube=rest)) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"init_params": PUT_ON_PLATE}, "show_objects: true"),
        ({"init_params": PUSH_CUBE, "show_objects": True}, "control_mode: received pd_ee_delta_pos; .*Set it"),
    ],
)
def test_it_needs_to_see_the_objects_and_to_move_the_hand(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scripted_policies.get("maniskill_plates")(maniskill_config(**keys))
