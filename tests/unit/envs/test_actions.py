"""From a policy's actions to a simulator's, for boxes with bounds of their own and for discrete spaces."""

import gymnasium
import numpy as np
import pytest
import torch

from rlinf.envs.actions import ActionFormat
from rlinf.errors import ConfigError, EnvironmentFailure, NumericalError

BOX = gymnasium.spaces.Box(np.array([-1.0, -5.0]), np.array([2.0, 0.5]), dtype=np.float64)


def make_format(space: gymnasium.Space[object], num_envs: int = 1) -> ActionFormat:
    return ActionFormat(space, num_envs=num_envs, env_type="toy")


def test_every_dimension_is_clipped_to_its_own_bounds() -> None:
    actions = torch.tensor([[[9.0, 9.0], [-9.0, -9.0], [1.5, -4.0]]])
    prepared = make_format(BOX)(actions)
    assert prepared.dtype == np.float64
    assert prepared.tolist() == [[[2.0, 0.5], [-1.0, -5.0], [1.5, -4.0]]]
    assert actions[0, 0].tolist() == [9.0, 9.0]


def test_actions_get_the_shape_of_the_space() -> None:
    space = gymnasium.spaces.Box(-10, 10, (2, 3), np.float32)
    prepared = make_format(space, 2)(torch.arange(12.0).clamp(max=10).view(2, 1, 6))
    assert prepared.shape == (2, 1, 2, 3)
    assert prepared[0, 0].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_discrete_actions_count_from_the_start_of_the_space() -> None:
    space = gymnasium.spaces.Discrete(3, start=5)
    assert make_format(space)(torch.tensor([[0, 1, 2]])).tolist() == [[5, 6, 7]]
    assert make_format(space)(torch.tensor([[[2], [0]]])).tolist() == [[7, 5]]


@pytest.mark.parametrize("action", [-1, 3])
def test_discrete_actions_outside_the_space_are_refused(action: int) -> None:
    with pytest.raises(EnvironmentFailure, match=f"from {min(action, 0)} to {max(action, 0)}; allowed are 0 to 2"):
        make_format(gymnasium.spaces.Discrete(3, start=5))(torch.tensor([[0, action]]))


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (BOX, torch.zeros(2, 1, 2)),
        (BOX, torch.zeros(1, 1, 3)),
        (BOX, torch.zeros(1, 2)),
        (gymnasium.spaces.Discrete(3), torch.zeros(1, 1)),
        (gymnasium.spaces.Discrete(3), torch.zeros(2, 1, dtype=torch.long)),
        (gymnasium.spaces.Discrete(3), torch.zeros(1, 1, 2, dtype=torch.long)),
    ],
)
def test_actions_of_another_shape_or_type_are_refused(space: gymnasium.Space[object], actions: torch.Tensor) -> None:
    with pytest.raises(EnvironmentFailure, match="env_type=toy: received actions"):
        make_format(space)(actions)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_the_rows_of_actions_that_are_not_finite_are_named(value: float) -> None:
    actions = torch.zeros(3, 2, 2)
    actions[1, 1, 0] = value
    with pytest.raises(NumericalError, match=r"row \[1\] are not finite"):
        make_format(BOX, 3)(actions)


def test_other_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match="allowed are Box and Discrete"):
        make_format(gymnasium.spaces.MultiBinary(3))
