"""What training engines read off a model: parameters by their use, and what is exported."""

from __future__ import annotations

import torch
from torch import nn

from rlinf.models.trainable import TrainableModel


class Layers(TrainableModel):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2, bias=False)
        self.adapter = nn.Linear(2, 2, bias=False)
        self.value_head = nn.Linear(2, 1, bias=False)
        self.register_buffer("mean", torch.zeros(2))

    def is_adapter(self, name: str) -> bool:
        return name.startswith("adapter.")

    def is_training_only(self, name: str) -> bool:
        return self.is_value_parameter(name)

    def shard_units(self) -> list[nn.Module]:
        return [self.body]


def test_parameters_of_the_value_head_are_told_by_name() -> None:
    model = Layers()
    assert [name for name, _ in model.named_parameters() if model.is_value_parameter(name)] == ["value_head.weight"]
    assert not any(model.is_critic_parameter(name) for name, _ in model.named_parameters())


def test_an_export_leaves_out_what_inference_does_not_need() -> None:
    model = Layers()
    exported = dict(model.export(lambda tensor: tensor + 1))
    assert list(exported) == ["mean", "body.weight", "adapter.weight"]
    assert torch.equal(exported["body.weight"], model.body.weight + 1)
    assert [name for name, _ in model.export(lambda tensor: tensor, "parts")] == list(exported)
    assert [name for name, _ in model.export(lambda tensor: tensor, "adapters")] == ["adapter.weight"]


def test_what_is_trained_has_a_gradient_or_is_a_buffer() -> None:
    model = Layers()
    model.body.requires_grad_(False)
    model.tied = model.body
    assert [name for name, _ in model.export(lambda tensor: tensor, "trained")] == ["mean", "adapter.weight"]
    model.body.requires_grad_(True)
    names = [name for name, _ in model.export(lambda tensor: tensor, "trained")]
    assert names == ["mean", "body.weight", "adapter.weight", "tied.weight"]


def test_units_that_are_sharded_are_recomputed() -> None:
    model = Layers()
    assert model.recompute_units() == model.shard_units() == [model.body]
    assert model.device == torch.device("cpu")
