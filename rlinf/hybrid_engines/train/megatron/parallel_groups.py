"""Process groups of a layout: Megatron-Core's global state, entered once and left once."""

from __future__ import annotations

import torch
from megatron.core import parallel_state
from megatron.core.process_groups_config import ProcessGroupCollection

from rlinf.errors import ConfigError
from rlinf.hybrid_engines.train.megatron.device import complete_moe, forbid_random_draws, use_host
from rlinf.hybrid_engines.train.process_group import join_process_group, leave_process_group
from rlinf.placement.parallel import ParallelLayout


def enter_layout(layout: ParallelLayout, *, device: torch.device, rank: int) -> ProcessGroupCollection:
    """Make this process a rank of a layout.

    Args:
        layout: Of all ranks.
        device: Where it computes.
        rank: Number of this process.

    Returns:
        The process groups along each axis.

    Raises:
        ConfigError: The process is a rank of another layout already.
    """
    if parallel_state.model_parallel_is_initialized():
        raise ConfigError("actor.training_backend: a process holds one model under Megatron-Core; it has one already.")
    if device.type == "cpu":
        use_host()
    else:
        torch.cuda.set_device(device)
    forbid_random_draws()
    complete_moe()
    join_process_group(device, rank, layout.world_size)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=layout.virtual_pipeline if layout.virtual_pipeline > 1 else None,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor,
        create_gloo_process_groups=False,
    )
    return ProcessGroupCollection.use_mpu_process_groups()


def leave_layout() -> None:
    """Give up the groups of ``enter_layout``."""
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    leave_process_group()
