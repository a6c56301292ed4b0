"""The embodied entry script, writing each phase that the runner enters to the file ``$RLINF_TEST_PHASES``.

With ``$RLINF_TEST_PATIENCE``, it waits so many seconds for the head of Ray to come back.
"""

import functools
import os
import sys

from rlinf.cli.entry import run_entry
from rlinf.runners.run_logger import RunLogger
from rlinf.scheduler import cluster

_enter = RunLogger.phase


def phase(self: object, name: str) -> None:
    with open(os.environ["RLINF_TEST_PHASES"], "a") as file:
        file.write(f"{name}\n")
    _enter(self, name)


if __name__ == "__main__":
    RunLogger.phase = phase
    if patience := os.environ.get("RLINF_TEST_PATIENCE"):
        cluster.GcsWatch = functools.partial(cluster.GcsWatch, patience_seconds=float(patience))
    asynchronous = "RLINF_TEST_ASYNC" in os.environ
    sys.exit(run_entry("embodied", "rlinf.runners.launch:launch_embodied", asynchronous=asynchronous))
