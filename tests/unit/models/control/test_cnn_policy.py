"""``cnn_policy``: encoders, augmentation, and the heads it shares with ``mlp_policy``."""

import pytest
import torch
from image_policies import DIM, ROWS, observations, policy

from rlinf.errors import EnvironmentFailure
from rlinf.models.base_policy import ForwardType


@pytest.mark.parametrize("keys", [{"discrete": True}, {"num_action_chunks": 3}, {"add_q_head": True}])
@pytest.mark.parametrize("obs_dim", [0, 3])
def test_default_forward_recomputes_what_was_reported(keys: dict[str, bool | int], obs_dim: int) -> None:
    model, obs = policy(obs_dim=obs_dim, **keys), observations()
    _, report = model.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(2))
    again = model(forward_inputs=report.forward_inputs)
    torch.testing.assert_close(again.logprobs, report.logprobs, atol=1e-4, rtol=1e-4)
    assert ("states" in report.forward_inputs) == (obs_dim > 0)
    assert report.forward_inputs["wrist_images"].dtype == torch.uint8


def test_the_critics_alone_train_the_encoder() -> None:
    model, obs = policy(add_q_head=True), observations()
    inputs, noise = model.observe(obs), torch.randn(ROWS, 1, DIM)
    model(ForwardType.ACTOR, inputs=inputs, noise=noise).q.sum().backward()
    assert all(p.grad is None for p in model.encoder.parameters())
    model(ForwardType.CRITIC, inputs=inputs, action=noise.tanh(), next_inputs=inputs, noise=noise).q.sum().backward()
    assert all(p.grad is not None for p in model.encoder.parameters())
    critic = {name.split(".")[0] for name, _ in model.named_parameters() if model.is_critic_parameter(name)}
    assert critic == {"critic", "encoder"}
    assert {name.split(".")[0] for name in model.state_dict() if not model.is_training_only(name)} == {
        "policy_head",
        "encoder",
    }


@pytest.mark.parametrize(
    ("obs", "words"),
    [
        ({"states": torch.zeros(1, 3)}, "no such key"),
        ({"states": torch.zeros(1, 3), "main_images": torch.zeros(1, 3, 20, 24)}, "float32"),
    ],
)
def test_an_environment_without_such_images_is_an_error(obs: dict[str, torch.Tensor], words: str) -> None:
    with pytest.raises(EnvironmentFailure, match=words) as failure:
        policy().predict_action_batch(obs, mode="eval")
    assert "image_keys" in str(failure.value)
