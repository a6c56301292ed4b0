"""The variables that a launch sets for each worker."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.placement import AcceleratorType, Placement

# The variable that limits what a process sees, by vendor.
_VISIBLE_VARIABLES = {
    AcceleratorType.NV_GPU: ("CUDA_VISIBLE_DEVICES",),
    AcceleratorType.AMD_GPU: ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    AcceleratorType.INTEL_GPU: ("ZE_AFFINITY_MASK",),
    AcceleratorType.MUSA_GPU: ("MUSA_VISIBLE_DEVICES",),
    AcceleratorType.NPU: ("ASCEND_RT_VISIBLE_DEVICES",),
}


def launch_environment(
    group: str,
    placement: Placement,
    placements: list[Placement],
    namespace: str,
    accelerators: Sequence[str],
) -> dict[str, str]:
    """Return a worker's identity and devices as variables; MASTER_ADDR and MASTER_PORT follow when rank 0 is up.

    Args:
        group: Name of the group.
        placement: Of this rank.
        placements: Of all ranks.
        namespace: Name of the run.
        accelerators: Ids of the accelerators it sees, as visible-devices variables want them.
    """
    visible = ",".join(accelerators)
    variables = {
        "GROUP_NAME": group,
        "WORKER_NAME": f"{group}:{placement.rank}",
        "RANK": str(placement.rank),
        "WORLD_SIZE": str(len(placements)),
        "LOCAL_RANK": str(placement.local_rank),
        "LOCAL_WORLD_SIZE": str(placement.local_world_size),
        "NODE_RANK": str(placement.placement_node_rank),
        "CLUSTER_NODE_RANK": str(placement.cluster_node_rank),
        "NODE_LOCAL_RANK": str(placement.local_rank),
        "NODE_LOCAL_WORLD_SIZE": str(placement.local_world_size),
        "LOCAL_ACCELERATOR_RANK": str(placement.local_accelerator_rank),
        "VISIBLE_DEVICES": ",".join(placement.visible_accelerators),
        "CUDA_VISIBLE_DEVICES": visible,
        "ACCELERATOR_TYPE": str(placement.accelerator_type),
        "LOCAL_HARDWARE_RANKS": ",".join(map(str, placement.local_hardware_ranks)),
        "NODE_GROUP_LABEL": placement.node_group_label,
        "CLUSTER_NAMESPACE": namespace,
    }
    for name in _VISIBLE_VARIABLES.get(placement.accelerator_type, ()):
        variables[name] = visible
    return variables
