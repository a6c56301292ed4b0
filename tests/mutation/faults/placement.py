"""Faults of the placement grammar, the strategies and the seats of processes."""

from __future__ import annotations

from tests.mutation.fault import Fault

_GRAMMAR = "tests/unit/placement/test_grammar.py"
_GROUPS = "tests/unit/placement/test_groups.py"
_STRATEGIES = "tests/unit/placement/test_strategies.py"
_COMPONENTS = "tests/unit/placement/test_component.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/placement/{file}", before, after, (f"tests/unit/placement/test_{file}", *tests), what)


_PARALLEL = "tests/unit/placement/test_parallel.py"
FAULTS: list[Fault] = [
    _fault(
        "parallel.py",
        "outer, context = divmod(outer, self.context)",
        "outer, context = divmod(outer, self.data)",
        "ranks are numbered with data before context",
        _PARALLEL,
    ),
    _fault(
        "parallel.py",
        "members[stage, replica, place % self.expert_tensor]",
        "members[stage, place % self.expert_tensor]",
        "all ranks of a stage share the experts",
        _PARALLEL,
    ),
    _fault(
        "parallel.py",
        "if self.data % self.expert:",
        "if self.world_size % self.expert:",
        "experts are spread over ranks of one replica",
        _PARALLEL,
    ),
    _fault(
        "grammar.py",
        "        next_process = max(next_process, last_process + 1)\n",
        "        next_process += 1\n",
        "omitted processes do not go on behind the last ones",
        _GRAMMAR,
    ),
    _fault(
        "grammar.py",
        "start = first + (index // sharing) * held",
        "start = first + (index % num_resources) * held",
        "processes share resources in turn rather than blockwise",
        _GRAMMAR,
    ),
    _fault(
        "grammar.py",
        "        if first < next_resource:\n",
        "        if first < next_resource - 1:\n",
        "two segments may hold one resource",
        _GRAMMAR,
    ),
    _fault(
        "grammar.py",
        "        if start + held > node_end:\n",
        "        if start + held > node_end + 1:\n",
        "a process spans nodes",
        _GRAMMAR,
    ),
    _fault(
        "grammar.py",
        "        if first > expected:\n",
        "        if first > expected + 1:\n",
        "a process rank may be missing",
        _GRAMMAR,
    ),
    _fault(
        "grammar.py",
        "        if first < expected:\n",
        "        if last < expected:\n",
        "a process rank may appear twice",
        _GRAMMAR,
    ),
    _fault(
        "grammar.py",
        "if group.is_known and last >= group.num_hardware_ranks:",
        "if group.is_known and last > group.num_hardware_ranks:",
        "a placement goes one resource beyond the cluster",
        _GRAMMAR,
    ),
    _fault(
        "ranks.py",
        "if last < first or (ranks and first <= ranks[-1]):",
        "if last < first or (ranks and first < ranks[-1]):",
        "a node may be listed twice",
        _GROUPS,
        _GRAMMAR,
    ),
    _fault(
        "ranks.py",
        "if runs and rank == runs[-1][1] + 1:",
        "if runs and rank <= runs[-1][1] + 2:",
        "ranges in messages name ranks that are not meant",
        _GRAMMAR,
        _GROUPS,
    ),
    _fault(
        "binding.py",
        "                local_rank=taken[node],\n",
        "                local_rank=rank,\n",
        "local ranks count over all nodes",
        _GRAMMAR,
        _STRATEGIES,
    ),
    _fault(
        "binding.py",
        "                local_world_size=world_sizes[node],\n",
        "                local_world_size=len(seats),\n",
        "the local world size counts all nodes",
        _GRAMMAR,
        _STRATEGIES,
    ),
    _fault(
        "binding.py",
        "                placement_node_rank=node_order[node],\n",
        "                placement_node_rank=node,\n",
        "nodes of a placement are not counted from 0",
        _GRAMMAR,
        _STRATEGIES,
    ),
    _fault(
        "binding.py",
        "local_accelerator_rank=own[0] if own else -1,",
        "local_accelerator_rank=own[0] if own else 0,",
        "a process without accelerator has the first one",
        _STRATEGIES,
        _GRAMMAR,
    ),
    _fault(
        "binding.py",
        "visible = [str(index) for index in own] if own and isolate_accelerator else list(devices)",
        "visible = list(devices)",
        "processes see the accelerators of their neighbours",
        _STRATEGIES,
        _GRAMMAR,
    ),
    _fault(
        "strategies.py",
        "list(range(first + offset, first + block, self.stride))",
        "list(range(first + offset, first + offset + self.num_hardware_per_process))",
        "the stride is ignored",
        _STRATEGIES,
    ),
    _fault(
        "strategies.py",
        "        if count % block:\n",
        "        if count % self.num_hardware_per_process:\n",
        "a range that strides do not divide is accepted",
        _STRATEGIES,
    ),
    _fault(
        "groups.py",
        "        if any(accelerators):\n",
        "        if all(accelerators):\n",
        "a group with one node without accelerators has none",
        _GROUPS,
    ),
    _fault(
        "groups.py",
        "slots = [node.cpu_slots or cpu_slots_per_node or 0 for node in members]",
        "slots = [cpu_slots_per_node or node.cpu_slots or 0 for node in members]",
        "the recipe's CPU slots win over the node's own",
        _GROUPS,
    ),
    _fault(
        "groups.py",
        "            if rank in owners:\n",
        "            if rank in owners and False:\n",
        "a node may have two environments",
        _GROUPS,
    ),
    _fault(
        "component.py",
        "        if actor_devices == rollout_devices:\n",
        "        if actor_devices & rollout_devices:\n",
        "devices that overlap in part count as collocated",
        _COMPONENTS,
    ),
    _fault(
        "component.py",
        "return {(rule.group.kind, *rule.group.locate(rank)) for rank in ranks}",
        "return {(rule.group.label, 0, rank) for rank in ranks}",
        "equal devices of overlapping groups count as different",
        _COMPONENTS,
    ),
    _fault(
        "component.py",
        "return NodePlacementStrategy([ranks[0] for ranks in processes], rule.group.label)",
        "return NodePlacementStrategy([0 for ranks in processes], rule.group.label)",
        "processes on nodes all go to the first",
        _COMPONENTS,
    ),
]
