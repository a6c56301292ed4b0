"""Networks of velocities: gates, and embeddings of time."""

import torch
from flow_policies import CHUNK, DIM, ROWS, build, observations, shake

from rlinf.models.control.velocity import _embed


def test_a_gated_step_is_one_of_a_gated_recurrent_unit() -> None:
    policy = build(velocity="gated")
    states, x = observations()["states"], torch.full((ROWS, CHUNK, DIM), 3.0)
    velocity = policy.flow.velocity(states, x, torch.zeros(ROWS))
    # Candidates start near 0 and gates almost open: the velocity leads back to 0.
    torch.testing.assert_close(velocity, -torch.sigmoid(torch.tensor(5.0)) * x, atol=0.2, rtol=0.0)


def test_gate_and_candidate_of_a_recurrent_step() -> None:
    policy = shake(build(velocity="gated"))
    states, x, time = observations()["states"], torch.randn(ROWS, CHUNK, DIM), torch.rand(ROWS)
    network = policy.flow.network
    gate, candidate = network._output(states, x, time).view(ROWS, 2, CHUNK, DIM).unbind(1)
    expected = torch.sigmoid(gate) * (candidate - x)
    torch.testing.assert_close(network(states, x, time), expected)


def test_every_time_of_a_flow_is_told_from_every_other() -> None:
    times = torch.linspace(0.0, 1.0, 17)
    embedded = _embed(times)
    distances = torch.cdist(embedded, embedded) + torch.eye(17)
    assert float(distances.min()) > 0.1
    torch.testing.assert_close(embedded[0], torch.tensor([0.0] * 4 + [1.0] * 4))
