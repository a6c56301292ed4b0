"""Random draws of acting policies that depend on the environment slot, and not on which rank acts for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class SlotGenerator(torch.Generator):
    """A generator for a part of a batch: the functions of this module draw for the whole batch and return the part.

    All ranks that share a batch therefore see one stream. A policy that uses it as an ordinary generator has the stream
    of ``seed``, which should be the rank's own: ranks would otherwise explore alike.

    Attributes:
        shared: The stream of the whole batch; this generator itself where the part is all of it.

    Args:
        device: Where numbers are drawn.
        seed: Of this rank's own stream.
        shared_seed: Of the whole batch's stream, equal on all ranks.
        slots: int64 [B]; which rows of the whole batch the part is.
        num_slots: Rows of the whole batch.
    """

    def __new__(cls, device: str | torch.device, **keywords: Any) -> SlotGenerator:
        """Return a generator on a device."""
        del keywords
        return super().__new__(cls, device)  # type: ignore[call-arg]

    def __init__(
        self, device: str | torch.device, *, seed: int, shared_seed: int, slots: torch.Tensor, num_slots: int
    ) -> None:
        del device
        self.slots, self.num_slots = slots.to(self.device), num_slots
        is_whole = torch.equal(slots, torch.arange(num_slots))
        self.manual_seed(shared_seed if is_whole else seed)
        self.shared = self if is_whole else torch.Generator(self.device).manual_seed(shared_seed)

    def part(self, whole: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Return the rows of the part, on a device, of a tensor [num_slots, ...]."""
        return (whole if self.shared is self else whole[self.slots]).to(device)


def normal(shape: Sequence[int], *, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
    """Return standard normal numbers, float32.

    Args:
        shape: [B, ...].
        generator: Source of randomness.
        device: Where to.
    """
    if not isinstance(generator, SlotGenerator):
        return torch.randn(*shape, generator=generator, device=device)
    whole = torch.randn(generator.num_slots, *shape[1:], generator=generator.shared, device=generator.device)
    return generator.part(whole, device)


def uniform(count: int, *, generator: torch.Generator | None) -> torch.Tensor:
    """Return numbers in [0, 1), float32 [count], on the generator's device."""
    device = torch.device("cpu") if generator is None else generator.device
    if not isinstance(generator, SlotGenerator):
        return torch.rand(count, generator=generator, device=device)
    return generator.part(torch.rand(generator.num_slots, generator=generator.shared, device=device), device)


def categorical(probabilities: torch.Tensor, *, generator: torch.Generator | None) -> torch.Tensor:
    """Return classes, int64 [B, ...], as ``torch.multinomial`` chooses them from the same stream.

    Args:
        probabilities: float32 [B, ..., n].
        generator: Source of randomness.
    """
    shape, device = probabilities.shape, probabilities.device
    if not isinstance(generator, SlotGenerator):
        return torch.multinomial(probabilities.reshape(-1, shape[-1]), 1, generator=generator).view(shape[:-1])
    whole = torch.empty(generator.num_slots, *shape[1:], device=generator.device, dtype=probabilities.dtype)
    races = generator.part(whole.exponential_(generator=generator.shared), device)
    return (probabilities / races).argmax(-1)
