"""A micro-batch of samples is on the device, and all others are on the host."""

import pytest
import torch

from rlinf.workers.actor.policy_passes import inputs_on_device

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = {
    "images": torch.randint(256, (6, 2, 2, 3), dtype=torch.uint8, generator=GENERATOR),
    "chain": torch.randn(6, 3, 2, generator=GENERATOR),
}
ROWS = torch.tensor([5, 0, 0])


def test_a_micro_batch_has_the_rows_that_it_names() -> None:
    found = inputs_on_device(INPUTS, ROWS, torch.device("cpu"))
    assert found.keys() == INPUTS.keys()
    assert all(torch.equal(found[name], tensor[ROWS]) for name, tensor in INPUTS.items())


def test_only_a_micro_batch_is_on_the_device() -> None:
    found = inputs_on_device(INPUTS, ROWS, torch.device("meta"))
    assert [(tensor.device.type, len(tensor)) for tensor in found.values()] == [("meta", 3), ("meta", 3)]


@pytest.mark.gpu
def test_a_micro_batch_on_a_gpu_has_the_rows_that_it_names() -> None:
    found = inputs_on_device(INPUTS, ROWS, torch.device("cuda"))
    assert all(tensor.is_cuda and torch.equal(tensor.cpu(), INPUTS[name][ROWS]) for name, tensor in found.items())
