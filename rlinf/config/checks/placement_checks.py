"""Whether every component is placed, where it can be, and whether the groups' sizes fit each other."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.config.checks.recipe_check import Check
from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.parse import field_types
from rlinf.config.problems import Problems
from rlinf.config.schema.generation import ServingConfig
from rlinf.config.schema.root import EmbodiedConfig, LanguageConfig, ReasoningConfig, RLinfConfig
from rlinf.errors import PlacementError
from rlinf.placement import ClusterPlan, HybridComponentPlacement
from rlinf.registry import did_you_mean

_PATH = "cluster.component_placement"


def plan_cluster(cfg: RLinfConfig, accelerators_per_node: int | Sequence[int] | None = None) -> ClusterPlan:
    """Return the cluster that the recipe describes, on paper.

    Args:
        cfg: The typed tree.
        accelerators_per_node: Accelerators of nodes that no node group declares; None when not known.

    Raises:
        PlacementError: The node groups contradict each other or the number of nodes.
    """
    cluster = cfg.cluster
    return ClusterPlan(
        cluster.num_nodes,
        accelerators_per_node,
        cluster.node_groups,
        cluster.cpu_slots_per_node,
    )


def check_placement(
    cfg: RLinfConfig, problems: Problems, accelerators_per_node: int | Sequence[int] | None = None
) -> tuple[HybridComponentPlacement | None, WorldSizes]:
    """Place the components offline and note what is wrong.

    Args:
        cfg: The typed tree.
        problems: Where problems go.
        accelerators_per_node: Accelerators of nodes that no node group declares; None when not known.

    Returns:
        The placement, None when it is impossible; and the sizes of the worker groups as far as they are known.
    """
    try:
        placement = HybridComponentPlacement(cfg, plan_cluster(cfg, accelerators_per_node))
    except PlacementError as error:
        problems.add_placement(error)
        return None, WorldSizes()
    components = tuple(cfg.group_names)
    for component in placement.components:
        if component not in components:
            problems.add(
                f"{_PATH}.{component}",
                f"unknown component.{did_you_mean(component, list(components))} Allowed for task_type="
                f"{cfg.runner.task_type}{_without_section(cfg, component)}: {', '.join(components)}. Remove it.",
            )
    _check_engines(cfg, placement, problems)
    missing = [component for component in components if component not in placement]
    for component in missing:
        problems.add(
            f"{_PATH}.{component}",
            f"missing; task_type={cfg.runner.task_type} places {', '.join(components)}. Add '{component}: 0', say.",
        )
    sizes = WorldSizes(**{name: placement.find_world_size(name) for name in components if name in placement})
    return placement, sizes


def _check_engines(cfg: RLinfConfig, placement: HybridComponentPlacement, problems: Problems) -> None:
    """A serving engine is spread over exactly the devices of its process."""
    if not isinstance(cfg, LanguageConfig) or not isinstance(cfg.rollout, ServingConfig) or "rollout" not in placement:
        return
    group, sizes = placement.get_node_group("rollout"), set(placement.find_process_sizes("rollout") or ())
    rollout = cfg.rollout
    wanted, stages = rollout.num_devices, rollout.pipeline_parallel_size
    if group.kind == "node" or sizes <= {wanted}:
        return
    given = " or ".join(map(str, sorted(sizes)))
    received = f"{wanted}"
    if stages > 1:
        received = f"{rollout.tensor_parallel_size}, times pipeline_parallel_size={stages} is {wanted} devices"
    remedy = _engine_remedy(sizes, stages)
    problems.add(
        "rollout.tensor_parallel_size",
        f"received {received}; {_PATH}.rollout '{placement.get_spec('rollout')}' gives each process {given} "
        f"{group.kind_name}(s), and an engine is spread over those of its process. {remedy}, or give each process "
        f"{wanted}, as rollout: '0-{2 * wanted - 1}:0-1' does.",
    )


def _engine_remedy(sizes: set[int], stages: int) -> str:
    if len(sizes) > 1:
        return "Give all processes as many"
    (size,) = sizes
    return "Set pipeline_parallel_size to a divisor of it" if size % stages else f"Set it to {size // stages}"


def _without_section(cfg: RLinfConfig, component: str) -> str:
    if component not in field_types(type(cfg)):
        return ""
    if isinstance(cfg, ReasoningConfig) and component == "agent" and cfg.agent is not None:
        return f" and agent.workflow={cfg.agent.workflow}"
    return f" without a section {component}"


def check_replicas(check: Check[RLinfConfig]) -> None:
    """Replicas of a sharded model have equally many ranks."""
    fsdp, path, ranks = check.cfg.actor.fsdp_config, "actor.fsdp_config", check.world.actor or 1
    size = fsdp.hybrid_shard_size
    if fsdp.sharding_strategy != "hybrid_shard":
        check.unused(fsdp, ("hybrid_shard_size",), path, f"by sharding_strategy={fsdp.sharding_strategy}")
    elif size is None or ranks % size:
        check.problem(
            f"{path}.hybrid_shard_size",
            f"received {size}; must divide the {ranks} actor rank(s). Set it to the number of actor ranks on a node, "
            "or set sharding_strategy=full_shard.",
        )


def check_ratios(check: Check[EmbodiedConfig]) -> None:
    """Groups that exchange batches cut them into equal parts by rank."""
    world = check.world
    decoupled = check.cfg.runner.enable_decoupled_mode
    collecting = ("env", world.env) if decoupled else ("rollout", world.rollout)
    bound = () if decoupled else (("env", world.env, "rollout", world.rollout),)
    for name, size, other, other_size in (
        *bound,
        ("actor", world.actor, *collecting),
        ("reward", world.reward, *collecting),
    ):
        if size and other_size and size % other_size and other_size % size:
            unbound = ", or set runner.enable_decoupled_mode=true" if name == "env" else ""
            check.problem(
                f"{_PATH}.{name}",
                f"{size} {name} ranks and {other_size} {other} ranks; one number must be a multiple of the other, so "
                f"that batches can be cut evenly. Give {name} or {other} another number of processes{unbound}.",
            )
