"""Waits for what Ray does while a run starts: they say what they wait for, end in time, and can be interrupted.

``ray.get`` does none of that: a process that Ray cannot start is waited for without a word and without end, and an
exception that a signal's handler raises meanwhile is lost, unless it is Ctrl-C's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import ray
from ray._private import worker as ray_worker

from rlinf.errors import ClusterError, CommTimeoutError
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.work import AsyncWork

# How long nodes may take to join, and Ray to start the processes of a run.
LIMIT_VARIABLE = "RLINF_CLUSTER_TIMEOUT_SECONDS"


def start_limit_seconds() -> float:
    """Return how long a run waits for its nodes, and for the processes that Ray starts on them."""
    return float(os.environ.get(LIMIT_VARIABLE, "600"))


def results_of(calls: Sequence[ray.ObjectRef], what: str) -> list[Any]:
    """Return the results of Ray's calls, in their order.

    Args:
        calls: References that ``remote`` has returned.
        what: The process that answers, such as "the run's manager".

    Raises:
        ClusterError: They did not all come within ``RLINF_CLUSTER_TIMEOUT_SECONDS``, counted once for all.
        Exception: What a call has raised, as ``ray.get`` raises it.
    """
    limit = start_limit_seconds()
    deadline = time.monotonic() + limit
    works = [AsyncWork[Any](_promise_of(call), describe=f"Ray's start of {what}") for call in calls]
    try:
        return [work.wait(max(deadline - time.monotonic(), 0.0)) for work in works]
    except CommTimeoutError as error:
        node = ray_worker._global_node
        folder = "Ray's folder of logs" if node is None else node.get_logs_dir_path()
        raise ClusterError(
            f"Ray has not started {what} within {limit:g} s. So it is with a node that is overloaded, or that cannot "
            f"start Python: raylet.out and python-core-worker-*.log in {folder} say which. {LIMIT_VARIABLE} sets the "
            "limit."
        ) from error


def _promise_of(call: ray.ObjectRef) -> Promise[Any]:
    """Return the call's future as one whose wait signals may interrupt."""
    promise: Promise[Any] = Promise()

    def pass_on(done: Future[Any]) -> None:
        error = done.exception()
        if error is None:
            promise.set_result(done.result())
        else:
            promise.set_exception(error)

    call.future().add_done_callback(pass_on)
    return promise
