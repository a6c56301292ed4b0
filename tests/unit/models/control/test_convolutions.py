"""Every network of convolutions learns, and treats rows alone."""

import pytest
import torch
from image_policies import DIM, ROWS, observations, policy

from rlinf.config.registries import encoders


@pytest.mark.parametrize("encoder", encoders.names())
def test_every_encoder_learns_and_treats_rows_alone(encoder: str) -> None:
    model, obs = policy(encoder=encoder, add_value_head=True, image_keys=["main_images"]), observations()
    values = model(
        forward_inputs={**model.encoder.observe(obs, model.device), "action": torch.zeros(ROWS, 1, DIM)}
    ).values
    values.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.encoder.parameters())
    alone = model.predict_values({key: value[1:2] for key, value in obs.items()})
    torch.testing.assert_close(alone, values[1:2].detach(), atol=1e-5, rtol=1e-4)
