"""Node groups: which resources count, what groups hold, and what is refused."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rlinf.config.schema.cluster import NodeGroupConfig
from rlinf.errors import PlacementError
from rlinf.placement import AcceleratorType, NodeInfo, build_node_groups


def nodes(*accelerators: int, slots: dict[int, int] | None = None) -> list[NodeInfo]:
    return [
        NodeInfo(
            node_rank=rank,
            num_accelerators=count,
            accelerator_type=AcceleratorType.NV_GPU if count else AcceleratorType.NO_ACCEL,
            cpu_slots=(slots or {}).get(rank, 0),
        )
        for rank, count in enumerate(accelerators)
    ]


def test_accelerators_count_where_any_node_has_one() -> None:
    group = build_node_groups(nodes(8, 0, 8), cpu_slots_per_node=4)["cluster"]
    assert (group.kind, group.resources_per_node, group.num_hardware_ranks) == ("accelerator", [8, 0, 8], 16)
    assert [group.locate(rank) for rank in (0, 7, 8, 15)] == [(0, 0), (0, 7), (2, 0), (2, 7)]


def test_cpu_slots_count_where_no_node_has_accelerators() -> None:
    group = build_node_groups(nodes(0, 0), cpu_slots_per_node=2)["cluster"]
    assert (group.kind, group.resources_per_node) == ("cpu_slot", [2, 2])


def test_a_nodes_own_slots_win_over_the_recipe() -> None:
    group = build_node_groups(nodes(0, 0, slots={1: 5}), cpu_slots_per_node=2)["cluster"]
    assert group.resources_per_node == [2, 5]


def test_nodes_without_slots_contribute_none() -> None:
    group = build_node_groups(nodes(0, 0, slots={1: 5}))["cluster"]
    assert (group.kind, group.resources_per_node) == ("cpu_slot", [0, 5])


def test_nodes_count_when_there_is_nothing_else() -> None:
    groups = build_node_groups(nodes(0, 0, 0))
    assert (groups["cluster"].kind, groups["cluster"].num_hardware_ranks) == ("node", 3)


def test_node_group_is_every_node_even_with_accelerators() -> None:
    group = build_node_groups(nodes(8, 8))["node"]
    assert (group.kind, group.node_ranks, group.num_hardware_ranks) == ("node", [0, 1], 2)


def test_declared_robots_come_before_accelerators(group_spec: Callable[..., SimpleNamespace]) -> None:
    hardware = SimpleNamespace(type="Franka", configs=[{"node_rank": 2}, {"node_rank": 1}, {"node_rank": 2}])
    group = build_node_groups(nodes(8, 8, 8), [group_spec("franka", "1-2", hardware=hardware)])["franka"]
    assert (group.kind, group.node_ranks, group.resources_per_node) == ("robot", [1, 2], [1, 2])


def test_ignore_hardware_counts_nodes(group_spec: Callable[..., SimpleNamespace]) -> None:
    group = build_node_groups(nodes(8, 8), [group_spec("hosts", "all", ignore_hardware=True)], 4)["hosts"]
    assert (group.kind, group.num_hardware_ranks) == ("node", 2)


def test_groups_may_overlap_and_hold_the_config_classes() -> None:
    specs = [NodeGroupConfig(label="a", node_ranks="0-1"), NodeGroupConfig(label="b", node_ranks=1)]
    groups = build_node_groups(nodes(4, 2), specs)
    assert (groups["a"].resources_per_node, groups["b"].resources_per_node) == ([4, 2], [2])


def env(node_ranks: str) -> SimpleNamespace:
    return SimpleNamespace(node_ranks=node_ranks)


def robots(*configs: dict[str, str | int]) -> SimpleNamespace:
    return SimpleNamespace(type="Franka", configs=list(configs))


@pytest.mark.parametrize(
    ("label", "ranks", "fields", "path", "fragment"),
    [
        ("cluster", "0", {}, "[0].label", "reserved"),
        ("node", "0", {}, "[0].label", "reserved"),
        ("", "0", {}, "[0].label", "empty"),
        ("g", "0-2", {}, "[0].node_ranks", "ranks 0-1"),
        ("g", "0", {"env_configs": [env("0-1")]}, "[0].env_configs[0].node_ranks", "not in the group's nodes 0"),
        ("g", "all", {"env_configs": [env("0"), env("all")]}, "[0].env_configs[1].node_ranks", "disjoint"),
        ("g", "0", {"hardware": robots()}, "[0].hardware.configs", "empty"),
        ("g", "0", {"hardware": robots({"robot_ip": "10.10.10.1"})}, "[0].hardware.configs[0].node_rank", "missing"),
        ("g", "0", {"hardware": robots({"node_rank": "0"})}, "[0].hardware.configs[0].node_rank", "'0'"),
        ("g", "0", {"hardware": robots({"node_rank": 1})}, "[0].hardware.configs[0].node_rank", "node 1"),
        ("g", "0", {"hardware": robots({"node_rank": 0}), "ignore_hardware": True}, "[0]", "exclude each other"),
        ("g", "all", {"accelerators_per_node": 8}, "[0].accelerators_per_node", "node 1 has 4"),
    ],
)
def test_bad_groups_name_path_and_reason(
    group_spec: Callable[..., SimpleNamespace], label: str, ranks: str, fields: dict[str, Any], path: str, fragment: str
) -> None:
    with pytest.raises(PlacementError) as caught:
        build_node_groups(nodes(8, 4), [group_spec(label, ranks, **fields)])
    assert f"cluster.node_groups{path}" in str(caught.value)
    assert fragment in str(caught.value)


def test_labels_are_unique(group_spec: Callable[..., SimpleNamespace]) -> None:
    with pytest.raises(PlacementError, match="unique"):
        build_node_groups(nodes(8), [group_spec("g", 0), group_spec("g", 0)])


def test_node_ranks_must_be_in_order() -> None:
    with pytest.raises(PlacementError, match="in order"):
        build_node_groups([NodeInfo(node_rank=1)])


def test_env_configs_all_means_the_groups_nodes(group_spec: Callable[..., SimpleNamespace]) -> None:
    groups = build_node_groups(nodes(8, 8), [group_spec("g", 1, env_configs=[env("all")])])
    assert groups["g"].node_ranks == [1]


def test_hardware_rank_outside_the_group_is_an_error() -> None:
    group = build_node_groups(nodes(2))["cluster"]
    with pytest.raises(PlacementError, match="ranks 0-1"):
        group.locate(2)
    with pytest.raises(PlacementError):
        group.locate(-1)
