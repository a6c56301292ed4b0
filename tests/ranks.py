"""Ranks of distributed tests, which are processes, without the seconds that each would take to import torch."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from typing import Any

import torch.multiprocessing as mp

from tests.forked_workers import LANGUAGE_MODULES

# What ranks import; once, in the server that they are forked off, which ends with the test process.
MODULES = [
    "pytest",
    "torch.distributed.checkpoint",
    "rlinf.hybrid_engines.train.fsdp",
    "rlinf.workers.actor.actor_worker",
]


def run_ranks(function: Callable[..., None], *arguments: Any, num_ranks: int = 2) -> None:
    """Call a function in processes of its own, as ``function(rank, *arguments)``, and wait until all have ended.

    Args:
        function: Of a module that can be imported.
        *arguments: What can be pickled.
        num_ranks: Number of processes.

    Raises:
        Exception: A rank has raised, or died.
    """
    languages = LANGUAGE_MODULES if "transformers" in sys.modules else ()
    multiprocessing.set_forkserver_preload([*MODULES, *languages])
    mp.start_processes(function, arguments, nprocs=num_ranks, start_method="forkserver")
