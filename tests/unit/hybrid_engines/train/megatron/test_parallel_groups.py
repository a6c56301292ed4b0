"""A process is a rank of one layout; without Megatron-Core one error names the command that installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

pytest.importorskip("megatron.core")
WITHOUT = """
import sys
sys.modules["megatron.core"] = None
from rlinf.config.registries import train_engines
from rlinf.errors import MissingPackageError
try:
    train_engines.get("megatron")
except MissingPackageError as error:
    print(error)
"""


def enter_twice(rank: int) -> tuple[list[list[int]], str]:
    import torch.distributed as dist

    from rlinf.errors import ConfigError
    from rlinf.hybrid_engines.train.megatron.parallel_groups import enter_layout, leave_layout
    from rlinf.placement.parallel import ParallelLayout

    layout = ParallelLayout(data=1, tensor=2, context=1, pipeline=2, sequence=True)
    groups = enter_layout(layout, device=torch.device("cpu"), rank=rank)
    found = [dist.get_process_group_ranks(group) for group in (groups.tp, groups.pp, groups.dp, groups.cp)]
    try:
        enter_layout(layout, device=torch.device("cpu"), rank=rank)
    except ConfigError as error:
        message = str(error)
    leave_layout()
    return found, message


def test_groups_are_those_of_the_layout() -> None:
    from rlinf.placement.parallel import ParallelLayout
    from tests.unit.hybrid_engines.train.rank_processes import run_ranks

    layout = ParallelLayout(data=1, tensor=2, context=1, pipeline=2, sequence=True)
    for rank, (found, message) in enumerate(run_ranks(4, enter_twice)):
        axes = ("tensor", "pipeline", "data", "context")
        assert found == [list(next(g for g in layout.groups(axis) if rank in g)) for axis in axes]
        assert "one already" in message


def test_a_missing_package_is_named_with_its_command() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "actor.training_backend=megatron needs the package" in run.stdout
    assert "bash requirements/install.sh reason --backend megatron" in run.stdout
