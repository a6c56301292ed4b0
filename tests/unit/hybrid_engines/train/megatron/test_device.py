"""Megatron-Core's modules take the CPU for CUDA, and torch stays as it is for everybody else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("megatron.core")

from tests.unit.hybrid_engines.train.rank_processes import run_ranks


def stand_in(rank: int) -> None:
    """Check the stand-in where nothing else runs: what it replaces stays replaced."""
    from megatron.core.pipeline_parallel import p2p_communication, schedules
    from megatron.core.tensor_parallel import random

    from rlinf.hybrid_engines.train.megatron.device import forbid_random_draws, use_host

    superfluous = "CUDA is not assumed any more: this stand-in can go"
    assert 'device="cuda"' in Path(str(schedules.__file__)).read_text(), superfluous
    assert "torch.cuda.current_device()" in Path(str(p2p_communication.__file__)).read_text(), superfluous
    assert schedules.torch is p2p_communication.torch is torch, "nothing is replaced yet"
    use_host()
    use_host()
    forbid_random_draws()
    assert schedules.torch.zeros([], dtype=torch.int, device="cuda").device.type == "cpu"
    assert p2p_communication.torch.cuda.current_device() == "cpu"
    p2p_communication.torch.cuda.synchronize()
    with p2p_communication.torch.cuda.stream(p2p_communication.torch.cuda.Stream()):
        p2p_communication.torch.cuda.current_stream().wait_stream(None)
    assert schedules.torch.Tensor is torch.Tensor
    assert isinstance(schedules.torch.cuda.is_available(), bool)
    with random.get_cuda_rng_tracker().fork():
        pass
    random._set_all_rng_states(*random._get_all_rng_states())
    assert random.get_cuda_rng_tracker().get_states() == {}
    assert torch.cuda.current_device.__module__ == "torch.cuda"
    assert torch.zeros.__class__.__name__ == "builtin_function_or_method"


def test_megatron_core_computes_on_the_host() -> None:
    run_ranks(1, stand_in)
