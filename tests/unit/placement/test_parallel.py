"""Every rank has one seat, groups along an axis partition the ranks, and layouts that cannot be are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from rlinf.placement.parallel import Axis, ParallelLayout

AXES: tuple[Axis, ...] = ("tensor", "context", "expert", "data", "pipeline")
LAYOUTS = [
    ParallelLayout(data=1),
    ParallelLayout(data=4),
    ParallelLayout(data=1, tensor=2, pipeline=2),
    ParallelLayout(data=2, tensor=2, context=3, pipeline=2),
    ParallelLayout(data=4, tensor=2, expert=4, pipeline=2, sequence=True),
    ParallelLayout(data=2, tensor=2, expert=2, expert_tensor=2, sequence=True),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_seats_are_all_different_but_for_the_expert(layout: ParallelLayout) -> None:
    seats = [layout.seat(rank)._replace(expert=0) for rank in range(layout.world_size)]
    assert len(set(seats)) == layout.world_size
    sizes = (layout.data, layout.tensor, layout.pipeline, layout.context, 1)
    assert [max(column) + 1 for column in zip(*seats, strict=True)] == list(sizes)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", AXES)
def test_groups_along_an_axis_hold_every_rank_once_in_its_order(layout: ParallelLayout, axis: Axis) -> None:
    groups = layout.groups(axis)
    assert sorted(rank for group in groups for rank in group) == list(range(layout.world_size))
    for group in groups:
        assert [getattr(layout.seat(rank), axis) for rank in group] == list(range(getattr(layout, axis)))


def test_ranks_are_numbered_as_megatron_numbers_them() -> None:
    layout = ParallelLayout(data=2, tensor=2, context=2, pipeline=2)
    assert layout.groups("tensor")[:2] == [(0, 1), (2, 3)]
    assert layout.groups("context")[0] == (0, 2)
    assert layout.groups("data")[0] == (0, 4)
    assert layout.groups("pipeline")[0] == (0, 8)
    experts = ParallelLayout(data=2, tensor=2, expert=2, sequence=True)
    assert experts.groups("expert") == [(0, 1), (2, 3)]
    assert ParallelLayout(data=4, expert=4).groups("expert") == [(0, 1, 2, 3)]


def possible() -> Iterator[tuple[ParallelLayout, dict[str, int]]]:
    shape = {"num_layers": 12, "num_heads": 8, "num_kv_heads": 4, "num_experts": 0}
    yield ParallelLayout(data=3), shape
    yield ParallelLayout(data=1, tensor=4, pipeline=3, virtual_pipeline=2), shape
    yield ParallelLayout(data=4, tensor=2, expert=2, sequence=True), shape | {"num_experts": 6}


@pytest.mark.parametrize(("layout", "shape"), list(possible()))
def test_layouts_that_fit_have_no_problem(layout: ParallelLayout, shape: dict[str, int]) -> None:
    assert list(layout.problems(world_size=layout.world_size, **shape)) == []
    assert math.prod((layout.data, layout.tensor, layout.pipeline, layout.context)) == layout.world_size


@pytest.mark.parametrize(
    ("layout", "keys", "reason"),
    [
        (ParallelLayout(data=2, tensor=2), {"world_size": 8}, "= 4 ranks, but there are 8"),
        (ParallelLayout(data=1, pipeline=3), {"num_layers": 4}, "4 layers cannot be split evenly over 3"),
        (ParallelLayout(data=1, pipeline=2, virtual_pipeline=3), {"num_layers": 4}, "over 6 pipeline stages"),
        (ParallelLayout(data=1, virtual_pipeline=2), {}, "needs several pipeline stages"),
        (ParallelLayout(data=1, tensor=3), {"num_heads": 8}, "8 attention heads cannot be split over 3"),
        (ParallelLayout(data=1, tensor=4), {"num_kv_heads": 2}, "2 key and value heads cannot be split over 4"),
        (ParallelLayout(data=2, expert=2), {"num_experts": 0}, "0 experts cannot be spread over 2"),
        (ParallelLayout(data=2, expert=2), {"num_experts": 5}, "5 experts cannot be spread over 2"),
        (
            ParallelLayout(data=1, tensor=2, sequence=True),
            {"num_experts": 4},
            "need expert_tensor 2, or several expert ranks",
        ),
        (ParallelLayout(data=3, expert=2), {}, "data 3 is not a multiple of expert 2"),
        (ParallelLayout(data=3, tensor=2, expert=2, sequence=True), {}, "data 3 is not a multiple of expert 2"),
        (ParallelLayout(data=2, tensor=2, expert=2), {}, "need sequence=true"),
    ],
)
def test_layouts_that_do_not_fit_say_why(layout: ParallelLayout, keys: dict[str, int], reason: str) -> None:
    problems = list(layout.problems(**{"world_size": layout.world_size, **keys}))
    assert len(problems) == 1
    assert reason in problems[0]
