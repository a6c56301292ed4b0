"""Megatron-Core's modules take the CPU for CUDA, and torch stays as it is for everybody else."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("megatron.core")
SCRIPT = """
import warnings; warnings.simplefilter("ignore")
import torch
from megatron.core.pipeline_parallel import p2p_communication, schedules
from megatron.core.tensor_parallel import random
from rlinf.hybrid_engines.train.megatron.device import forbid_random_draws, use_host

assert {superfluous}, "CUDA is not assumed any more: this stand-in can go"
use_host(); use_host(); forbid_random_draws()
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
assert random.get_cuda_rng_tracker().get_states() == {{}}
assert torch.cuda.current_device.__module__ == "torch.cuda"
assert torch.zeros.__class__.__name__ == "builtin_function_or_method"
"""


@pytest.mark.parametrize(
    "assumption",
    [
        'device="cuda"' + "' in open(schedules.__file__).read() and '",
        "torch.cuda.current_device()" + "' in open(p2p_communication.__file__).read() and '",
    ],
    ids=["literal", "current device"],
)
def test_megatron_core_computes_on_the_host(assumption: str) -> None:
    condition = "'" + assumption + "torch"
    script = SCRIPT.format(superfluous=condition + "'")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
