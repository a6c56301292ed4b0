"""Every expected number is computed by hand."""

import pytest
import torch

from rlinf.algorithms.registry import make_off_policy_algorithm
from rlinf.config.schema.algorithm import RLTLossConfig


def test_the_policy_climbs_its_value_and_pays_for_its_distance() -> None:
    cfg = RLTLossConfig(q_weight=0.5, bc_weight=3.0, actor_agg_q="q1")
    algorithm = make_off_policy_algorithm("rlt_td3", cfg, action_size=4, device=torch.device("cpu"))
    q = torch.tensor([[1.0, 9.0], [2.0, 9.0]], requires_grad=True)
    distance = torch.tensor([0.25, 0.75], requires_grad=True)
    loss, metrics = algorithm.actor_loss(q=q, logprobs=None, distance=distance)
    assert loss.item() == pytest.approx(-0.5 * 3.0 + 3.0 * 1.0)
    assert metrics["proposal_distance"].tolist() == pytest.approx([1.0, 2.0])
    assert metrics["actor_loss"].tolist() == pytest.approx([-3.0, 2.0])
    loss.backward()
    assert q.grad.tolist() == [[-0.5, 0.0], [-0.5, 0.0]]
    assert distance.grad.tolist() == [3.0, 3.0]
