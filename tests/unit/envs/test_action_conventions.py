"""What a gripper's number means, as a table."""

import pytest
import torch

from rlinf.envs.action_conventions import libero_from_rlds


@pytest.mark.parametrize(("gripper", "expected"), [(0.0, 1.0), (0.4, 1.0), (0.6, -1.0), (1.0, -1.0), (-1.0, 1.0)])
def test_rlds_grippers_become_robosuites(gripper: float, expected: float) -> None:
    actions = torch.tensor([[[0.1, -0.2, 0.3, -0.4, 0.5, -0.6, gripper]]])
    before = actions.clone()
    turned = libero_from_rlds(actions)
    assert turned[0, 0, 6] == expected
    assert torch.equal(turned[..., :6], actions[..., :6])
    assert torch.equal(actions, before)
