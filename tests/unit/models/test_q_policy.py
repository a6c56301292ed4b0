"""Critics that are chosen value the next actions alone."""

import pytest
import torch
from q_transitions import ROWS, policy, transitions

from rlinf.models.base_policy import ForwardType


@pytest.mark.parametrize("q_head_type", ["default", "layer_norm", "crossq"])
def test_chosen_critics_alone_value_the_next_actions(q_head_type: str) -> None:
    model, batch = policy(q_head_type=q_head_type, num_q_heads=5), transitions()
    everyone = model(ForwardType.CRITIC, **batch)
    some = model(ForwardType.CRITIC, **batch, members=torch.tensor([4, 1]))
    torch.testing.assert_close(some.next_q, everyone.next_q[:, [4, 1]])
    assert some.q.shape == (ROWS, 5)
