"""Draws for a part of a batch are rows of the draws for the whole, which are those of an ordinary generator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlinf.models.draws import SlotGenerator, categorical, normal, uniform

CPU = torch.device("cpu")
PROBABILITIES = torch.rand(6, 2, 5, generator=torch.Generator().manual_seed(9)).softmax(-1)
Draw = Callable[[torch.Generator, torch.Tensor], torch.Tensor]
DRAWS: dict[str, Draw] = {
    "normal": lambda generator, rows: normal((len(rows), 3), generator=generator, device=CPU),
    "uniform": lambda generator, rows: uniform(len(rows), generator=generator),
    "categorical": lambda generator, rows: categorical(PROBABILITIES[rows], generator=generator),
}
every = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)


def part(rows: torch.Tensor, *, seed: int = 1) -> SlotGenerator:
    return SlotGenerator("cpu", seed=seed, shared_seed=7, slots=rows, num_slots=6)


@every
def test_parts_are_rows_of_the_whole(draw: Draw) -> None:
    rows = torch.arange(6)
    ordinary = torch.Generator().manual_seed(7)
    whole = [draw(ordinary, rows) for _ in range(3)]
    assert not torch.equal(whole[0], whole[1])
    for mine in (rows, rows[:3], rows[2:4], rows[5:]):
        generator = part(mine)
        for expected in whole:
            assert torch.equal(draw(generator, mine), expected[mine])


def test_ordinary_draws_are_torchs() -> None:
    first, second = (torch.Generator().manual_seed(3) for _ in range(2))
    assert torch.equal(normal((4, 2), generator=first, device=CPU), torch.randn(4, 2, generator=second))
    assert torch.equal(uniform(4, generator=first), torch.rand(4, generator=second))
    chosen = torch.multinomial(PROBABILITIES.flatten(0, 1), 1, generator=second).view(6, 2)
    assert torch.equal(categorical(PROBABILITIES, generator=first), chosen)


def test_as_an_ordinary_generator_it_has_the_stream_of_its_rank() -> None:
    found = torch.randn(3, generator=part(torch.arange(3, 6), seed=5))
    assert torch.equal(found, torch.randn(3, generator=torch.Generator().manual_seed(5)))
    of_all = torch.randn(3, generator=part(torch.arange(6), seed=5))
    assert torch.equal(of_all, torch.randn(3, generator=torch.Generator().manual_seed(7)))
