"""What the program for ``libero_object`` does, situation by situation."""

import pytest
import torch
from libero_configs import libero_config

from rlinf.config.registries import scripted_policies
from rlinf.errors import ConfigError

SOUP, BASKET = [-0.12, -0.24, 0.05], [0.0, 0.26, 0.02]


def act(hand: list[float], *, held: bool = False, soup: list[float] = SOUP) -> tuple[list[float], float]:
    """Return the signs of the motion, and the gripper."""
    expert = scripted_policies.get("libero_object")(libero_config(show_objects=True))
    obs = {
        "states": torch.tensor([[*hand, 3.1, 0.0, 0.0, 0.04, -0.04]]),
        "objects": torch.tensor([[*soup, *BASKET, float(held)]]),
    }
    action = expert(obs)
    assert action.shape == (1, 1, 7)
    assert action.abs().max() <= 1
    assert not action[0, 0, 3:6].any()
    return action[0, 0, :3].sign().tolist(), float(action[0, 0, 6])


def test_a_high_hand_goes_over_the_object_with_an_open_gripper() -> None:
    assert act([0.0, 0.0, 0.3]) == ([-1.0, -1.0, -1.0], -1.0)


def test_a_low_hand_rises_before_it_goes_sidewise() -> None:
    assert act([0.1, 0.1, 0.05]) == ([0.0, 0.0, 1.0], -1.0)


def test_over_the_object_it_goes_down_and_at_it_closes() -> None:
    assert act([SOUP[0], SOUP[1], 0.2]) == ([0.0, 0.0, -1.0], -1.0)
    assert act([SOUP[0], SOUP[1], 0.06]) == ([0.0, 0.0, 0.0], 1.0)


def test_what_is_held_is_lifted_and_carried() -> None:
    assert act([SOUP[0], SOUP[1], 0.07], held=True) == ([0.0, 0.0, 1.0], 1.0)
    lifted = [SOUP[0], SOUP[1], 0.27]
    assert act(lifted, held=True, soup=[SOUP[0], SOUP[1], 0.25]) == ([1.0, 1.0, 0.0], 1.0)


def test_over_the_basket_the_gripper_opens() -> None:
    assert act([0.0, 0.25, 0.27], held=True, soup=[0.0, 0.25, 0.25])[1] == -1.0


def test_it_needs_to_see_the_objects() -> None:
    with pytest.raises(ConfigError, match="show_objects: true"):
        scripted_policies.get("libero_object")(libero_config())
