"""What all models that training engines take have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import torch
from torch import nn

from rlinf.models.files.tensor_files import RowSource
from rlinf.models.lora import is_adapter

WeightForm = Literal["merged", "parts", "trained", "adapters"]
"""What is exported: ``merged``, a model as if it had no adapters, which are added in; ``parts``, the adapters next to
what they are added to; ``trained``, of the parts those that training changes: parameters with a gradient, and buffers;
``adapters``, those alone. Without adapters, the first two are the same."""


class TrainableModel(nn.Module, abc.ABC):
    """A module that says how it is sharded, which optimizer its parameters belong to, and what inference needs.

    Attributes:
        weight_source: What fills parameters that are on device ``meta``; None if there are none. See ``materialize``.
    """

    weight_source: RowSource | None = None

    def is_value_parameter(self, name: str) -> bool:
        """Return whether the parameter ``name`` belongs to the value head alone."""
        return name.startswith("value_head.")

    def is_critic_parameter(self, name: str) -> bool:
        """Return whether the parameter ``name`` belongs to the Q heads, which have an optimizer of their own."""
        return False

    def is_training_only(self, name: str) -> bool:
        """Return whether the parameter or buffer ``name`` is of no use to inference, and therefore never sent there."""
        return False

    def is_adapter(self, name: str) -> bool:
        """Return whether the parameter ``name`` belongs to an adapter, while what it is added to never changes."""
        return is_adapter(name)

    def file_names(self) -> Mapping[str, list[list[str]]]:
        """Return how a Hugging Face checkpoint names the parts of tensors, where that is not the tensor's own name.

        A single name is a tensor that is called otherwise. Columns of names are experts of a layer, which models stack:
        a column for the gates, say, and one for the rows below them.
        """
        return {}

    def shard_units(self) -> list[nn.Module]:
        """Return the large submodules that are sharded as units; called as modules by ``forward``."""
        return []

    def recompute_units(self) -> list[nn.Module]:
        """Return those of them whose activations gradient checkpointing recomputes in the backward pass."""
        return self.shard_units()

    def export(
        self, whole: Callable[[torch.Tensor], torch.Tensor], form: WeightForm = "merged"
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield what inference needs, one tensor at a time: by the names it has there if ``merged``, else by its own.

        Args:
            whole: Returns a parameter or buffer unsharded; all ranks call it together, in the same order.
            form: What is yielded.
        """
        frozen = {name for name, p in self.named_parameters(remove_duplicate=False) if not p.requires_grad}
        for name, tensor in self.state_dict().items():
            is_left_out = (form == "trained" and name in frozen) or (form == "adapters" and not self.is_adapter(name))
            if not (is_left_out or self.is_training_only(name)):
                yield name, whole(tensor)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device
