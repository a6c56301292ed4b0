"""Placement strings: what each means, and what is refused."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.errors import ConfigError, PlacementError
from rlinf.placement import plan_component

PATH = "cluster.component_placement.actor"


def held(spec: str | int, resources: list[int], kind: str = "accelerator") -> list[tuple[int, list[int]]]:
    """What each process holds, as (node, local indices)."""
    return [(seat.cluster_node_rank, seat.local_hardware_ranks) for seat in plan_component(spec, resources, kind)]


def test_example_of_the_grammar_puts_processes_where_it_says() -> None:
    seats = held("0-1:0-3,3-5,7-10:7-14", [16])
    assert [ranks for _, ranks in seats] == [
        *([0], [0], [1], [1]),
        *([3], [4], [5]),
        *([7], [7], [8], [8], [9], [9], [10], [10]),
    ]


def test_one_process_on_several_resources_takes_consecutive_blocks() -> None:
    assert held("0-7:0-1", [4, 4]) == [(0, [0, 1, 2, 3]), (1, [0, 1, 2, 3])]


def test_all_is_every_resource_and_skips_nodes_without_any() -> None:
    assert held("all", [2, 0, 2]) == [(0, [0]), (0, [1]), (2, [0]), (2, [1])]


def test_all_takes_processes() -> None:
    assert held("all:0-1", [2, 2]) == [(0, [0, 1]), (1, [0, 1])]


def test_an_int_is_one_hardware_rank() -> None:
    assert held(3, [8]) == held("3", [8]) == [(0, [3])]


def test_blanks_are_ignored() -> None:
    assert held(" 0 - 1 : 0 - 3 , 3 ", [8]) == held("0-1:0-3,3", [8])


def test_process_ranks_may_be_written_in_any_order() -> None:
    assert held("0-1:2-3,2-3:0-1", [4]) == [(0, [2]), (0, [3]), (0, [0]), (0, [1])]


def test_omitted_processes_continue_after_the_highest_so_far() -> None:
    assert held("0:1,1:0,2", [3]) == [(0, [1]), (0, [0]), (0, [2])]


def test_without_any_accelerator_ranks_are_nodes() -> None:
    seats = plan_component("0-1:0-3", [0, 0])
    assert [seat.cluster_node_rank for seat in seats] == [0, 0, 1, 1]
    assert {seat.local_accelerator_rank for seat in seats} == {-1}
    assert {str(seat.accelerator_type) for seat in seats} == {"NO_ACCEL"}


def test_node_kind_counts_each_node_once() -> None:
    seats = plan_component("all", [8, 8], kind="node")
    assert [(seat.cluster_node_rank, seat.local_hardware_ranks) for seat in seats] == [(0, []), (1, [])]


@pytest.mark.parametrize("kind", ["robot", "cpu_slot"])
def test_other_kinds_own_no_accelerator(kind: str) -> None:
    seats = plan_component("all", [1, 2], kind=kind)
    assert [seat.local_hardware_ranks for seat in seats] == [[0], [0], [1]]
    assert {seat.local_accelerator_rank for seat in seats} == {-1}


def test_processes_are_counted_node_by_node() -> None:
    seats = plan_component("1-3:0-5", [2, 2, 2])
    assert [seat.rank for seat in seats] == [0, 1, 2, 3, 4, 5]
    assert [seat.cluster_node_rank for seat in seats] == [0, 0, 1, 1, 1, 1]
    assert [seat.placement_node_rank for seat in seats] == [0, 0, 1, 1, 1, 1]
    assert [seat.local_rank for seat in seats] == [0, 1, 0, 1, 2, 3]
    assert [seat.local_world_size for seat in seats] == [2, 2, 4, 4, 4, 4]


@pytest.mark.parametrize(
    ("spec", "fragments"),
    [
        ("", ["names no resources"]),
        ("0,,1", ["segment ''", "names no resources"]),
        (":0-1", ["segment ':0-1'", "names no resources"]),
        ("0-", ["'0-'", "a range a-b"]),
        ("-1", ["'-1'", "ranks from 0"]),
        ("a", ["'a'", "or all"]),
        ("ALL", ["'ALL'", "or all"]),
        ("0-3:", ["segment '0-3:'", "processes"]),
        ("0:0:0", ["more than one ':'"]),
        ("3-1", ["backwards", "write 1-3"]),
        ("0-3:3-0", ["backwards", "write 0-3"]),
        ("0-3:all", ["'all' for processes", "resources only"]),
        ("0-1,1-2", ["segment '1-2'", "ascending and unique"]),
        ("2-3,0-1", ["segment '0-1'", "ascending and unique"]),
        ("0,all", ["segment 'all'", "ascending and unique"]),
        ("all,7", ["segment '7'", "ascending and unique"]),
        ("0-2:0-1", ["3 % 2 = 1", "divide"]),
        ("0-1:0-2", ["3 % 2 = 1", "divide"]),
        ("0-3:1-4", ["process 0", "contiguous from 0", "valid with 0-3"]),
        ("0-1,2-3:4-5", ["process 2-3", "contiguous from 0", "valid with 2-3"]),
        ("0-1:0-1,2-3:1-2", ["holds process 1", "once"]),
        ("0-8", ["accelerator 8", "8 accelerators, ranks 0-7"]),
        ("7-999999999", ["accelerator 999999999"]),
        ("0:0-999999998", ["at most 1000000"]),
        ("9999999999", ["'9999999999'"]),
        ("0-7:0", ["process 0", "nodes 0-1", "never spans nodes"]),
        ("1-4:0-1", ["process 1", "accelerators 3-4", "nodes 0-1"]),
    ],
)
def test_every_violation_names_path_segment_and_remedy(spec: str, fragments: list[str]) -> None:
    with pytest.raises(PlacementError) as caught:
        plan_component(spec, [4, 4], path=PATH)
    message = str(caught.value)
    assert message.startswith(PATH)
    for fragment in [*fragments, "segment "]:
        assert fragment in message


@pytest.mark.parametrize("spec", [True, None, 1.5, ["0-3"]])
def test_other_types_are_not_placements(spec: bool | float | list[str] | None) -> None:
    with pytest.raises(PlacementError, match="is not a placement"):
        plan_component(spec, [4], path=PATH)


def test_empty_group_says_that_there_is_nothing() -> None:
    with pytest.raises(PlacementError, match="finds nothing to run on"):
        plan_component("all", [0, 0], kind="cpu_slot")


def test_unknown_kind_and_negative_counts_are_refused() -> None:
    with pytest.raises(PlacementError, match="choose one of accelerator, robot, cpu_slot, node"):
        plan_component("0", [1], kind="gpu")
    with pytest.raises(PlacementError, match=">= 0"):
        plan_component("0", [1, -1])


def test_placement_errors_are_config_errors() -> None:
    assert issubclass(PlacementError, ConfigError)


@st.composite
def valid_specs(draw: Callable[..., Any]) -> tuple[str, Any, list[Any]]:
    """A valid string over one node, with what each process must hold."""
    parts, expected, resource = [], [], 0
    for _ in range(draw(st.integers(1, 5))):
        resource += draw(st.integers(0, 3))
        unit, many = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        shares = draw(st.booleans())
        num_resources = unit if shares else unit * many
        num_processes = unit * many if shares else unit
        first, last = resource, resource + num_resources - 1
        text = str(first) if first == last else f"{first}-{last}"
        if num_resources != num_processes or draw(st.booleans()):
            text += f":{len(expected)}-{len(expected) + num_processes - 1}"
        for process in range(num_processes):
            if shares:
                expected.append([first + process // many])
            else:
                expected.append(list(range(first + process * many, first + (process + 1) * many)))
        parts.append(text)
        resource = last + 1
    return ",".join(parts), resource, expected


@given(valid_specs())
@settings(max_examples=150, deadline=None)
def test_valid_strings_mean_exactly_what_they_say(case: tuple[str, int, list[int]]) -> None:
    spec, total, expected = case
    seats = plan_component(spec, [total])
    assert [seat.local_hardware_ranks for seat in seats] == expected
    assert [seat.rank for seat in seats] == list(range(len(expected)))
    assert all(seat.visible_accelerators == [str(rank) for rank in seat.local_hardware_ranks] for seat in seats)


@given(st.text(alphabet="0123456789-,:al ", max_size=14), st.lists(st.integers(0, 5), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_any_text_is_planned_or_refused_but_never_crashes(spec: str, resources: int) -> None:
    try:
        seats = plan_component(spec, resources, path=PATH)
    except PlacementError:
        with pytest.raises(PlacementError, match=f"^{re.escape(PATH)}: "):
            plan_component(spec, resources, path=PATH)
        return
    assert [seat.rank for seat in seats] == list(range(len(seats)))
    for seat in seats:
        assert 0 <= seat.local_rank < seat.local_world_size
        assert all(index < resources[seat.cluster_node_rank] for index in seat.local_hardware_ranks)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
@settings(max_examples=100, deadline=None)
def test_all_reaches_each_resource_once_whatever_the_nodes(resources: int) -> None:
    seats = plan_component("all", resources)
    if any(resources):
        expected = [(node, [index]) for node, count in enumerate(resources) for index in range(count)]
    else:
        expected = [(node, []) for node in range(len(resources))]
    assert [(seat.cluster_node_rank, seat.local_hardware_ranks) for seat in seats] == expected
