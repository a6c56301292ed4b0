"""Critics by ``q_head_type``, and the policies on top of them that ``test_squashed_mlp_policy`` does not cover."""

from typing import Any

import torch
from q_transitions import ROWS, policy, transitions
from torch.nn import functional

from rlinf.models.base_policy import ForwardType


def batch_normalized_values(critic: torch.Tensor | torch.nn.Module, head: int, rows: torch.Tensor) -> Any:
    """Value rows [N, F + C * A] by one critic, layer by layer, with the moments of these rows."""
    layers = list(critic.layers)
    x = rows
    for norm, linear in zip(layers[0::3], layers[1::3], strict=True):
        x = functional.batch_norm(x, None, None, norm.weight[head, 0], norm.bias[head, 0], True, eps=1e-3)
        x = x @ linear.weight[head] + linear.bias[head, 0]
        x = torch.tanh(x) if linear is not layers[-1] else x
    return x[:, 0]


def test_crossq_values_both_states_in_one_batch_and_has_no_targets() -> None:
    model, batch = policy(q_head_type="crossq"), transitions()
    next_action, _ = model.sample(batch["next_inputs"]["states"], batch["noise"])
    now = torch.cat([batch["inputs"]["states"], batch["action"].flatten(1)], 1)
    then = torch.cat([batch["next_inputs"]["states"], next_action.flatten(1)], 1)
    expected = [batch_normalized_values(model.critic, head, torch.cat([now, then])) for head in (0, 1)]
    evaluation = model(ForwardType.CRITIC, **batch)
    for head in (0, 1):
        torch.testing.assert_close(evaluation.q[:, head], expected[head][:ROWS], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(evaluation.next_q[:, head], expected[head][ROWS:], atol=1e-5, rtol=1e-4)
    assert evaluation.q.requires_grad
    assert not evaluation.next_q.requires_grad
    assert model.targets() == []
    assert not [name for name in model.state_dict() if name.startswith("target")]


def test_crossq_moments_follow_the_critics_updates_alone() -> None:
    model, batch = policy(q_head_type="crossq"), transitions()
    updates = model.critic.layers[0].updates
    model(ForwardType.CRITIC, **batch)
    assert int(updates) == 1
    seen = model.critic.layers[0].mean[0, 0, :5]
    both = torch.cat([batch["inputs"]["states"], batch["next_inputs"]["states"]])
    torch.testing.assert_close(seen, 0.01 * both.mean(0), atol=1e-6, rtol=1e-4)
    first = model(ForwardType.ACTOR, inputs=batch["inputs"], noise=batch["noise"]).q
    fewer = model(ForwardType.ACTOR, inputs={"states": batch["inputs"]["states"][:2]}, noise=batch["noise"][:2]).q
    torch.testing.assert_close(first[:2], fewer)  # a row's value does not depend on the others
    model.predict_values({"states": batch["inputs"]["states"]})
    assert int(updates) == 1


def test_layer_norm_stands_before_each_activation() -> None:
    layers = [type(layer).__name__ for layer in policy(q_head_type="layer_norm").critic.layers]
    assert layers == [*["EnsembleLinear", "EnsembleLayerNorm", "Tanh"] * 2, "EnsembleLinear"]
