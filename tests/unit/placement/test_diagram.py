import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from rlinf.placement import ClusterPlan, HybridComponentPlacement, draw_plan


def draw(rules: dict[str, Any], plan: ClusterPlan, width: int = 100) -> str:
    cfg = SimpleNamespace(cluster=SimpleNamespace(component_placement=rules))
    return draw_plan(HybridComponentPlacement(cfg, plan), plan.nodes, width=width)


def test_one_node_shows_each_component_over_the_devices() -> None:
    diagram = draw(
        {"actor": "0-3", "env": "0-3:0-1", "agent": {"node_group": "node", "placement": 0}}, ClusterPlan(1, 4)
    )
    assert diagram.splitlines() == [
        "component  processes  placement  resources",
        "actor              4  0-3        accelerators of 'cluster'",
        "env                2  0-3:0-1    accelerators of 'cluster'",
        "agent              1  0          nodes of 'node'",
        "",
        "node 0: 4 accelerators",
        "  accelerator  0  1  2  3",
        "  actor        0  1  2  3",
        "  env          0  0  1  1",
        "  node   all",
        "  agent    0",
    ]


def test_a_thousand_devices_fold_into_few_lines() -> None:
    diagram = draw({"actor": "0-511", "rollout": "512-1023:0-127"}, ClusterPlan(128, 8))
    lines = diagram.splitlines()
    assert len(lines) < 15
    assert "nodes 0-63 (64): 8 accelerators each" in lines
    assert "nodes 64-127 (64): 8 accelerators each" in lines
    assert any(line.startswith("  actor") and line.endswith("+8 per node") for line in lines)
    assert any(line.startswith("  rollout") and line.endswith("+2 per node") for line in lines)
    assert max(map(len, lines)) <= 100


def test_equal_nodes_fold_even_when_not_neighbours() -> None:
    diagram = draw({"env": "0-3,6-7"}, ClusterPlan(5, [2, 0, 2, 2, 2]))
    assert "nodes 0,2,4 (3): 2 accelerators each\n" in diagram
    assert "node 1, idle" in diagram
    assert "node 3: 2 accelerators, idle" in diagram


def test_idle_nodes_are_shown_as_idle() -> None:
    assert "nodes 1-3 (3): 8 accelerators each, idle" in draw({"actor": "0-7"}, ClusterPlan(4, 8))


def test_wide_nodes_continue_on_further_lines() -> None:
    diagram = draw({"env": "0-63:0-127"}, ClusterPlan(1, 0, cpu_slots_per_node=64), width=80)
    assert max(map(len, diagram.splitlines())) <= 80
    cells = [cell for line in diagram.splitlines() if line.startswith("  env ") for cell in line.split()[1:]]
    assert cells == [f"{2 * slot}-{2 * slot + 1}" for slot in range(64)]


def test_unknown_nodes_are_said_not_guessed() -> None:
    diagram = draw({"actor": "0-7", "rollout": "all"}, ClusterPlan(2))
    assert "accelerators_per_node" in diagram
    assert "rollout            ?  all" in diagram
    assert "idle" not in diagram


def test_robots_are_drawn_under_their_group(group_spec: Callable[..., SimpleNamespace]) -> None:
    hardware = SimpleNamespace(type="Franka", configs=[{"node_rank": 1}, {"node_rank": 1}])
    plan = ClusterPlan(2, 0, [group_spec("arms", 1, hardware=hardware)])
    diagram = draw({"env": {"node_group": "arms", "placement": "all"}}, plan)
    assert "  robot (arms)  0  1\n  env           0  1" in diagram
    assert "node 0, idle" in diagram


def test_a_very_long_placement_string_stays_inside_the_diagram() -> None:
    spec = ",".join(str(rank) for rank in range(0, 128, 2))
    assert max(map(len, draw({"env": spec}, ClusterPlan(16, 8)).splitlines())) <= 100


def test_planning_loads_neither_ray_nor_torch() -> None:
    code = (
        "import sys, rlinf.placement, rlinf.utils.placement; sys.exit(any(m in sys.modules for m in ('ray', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
