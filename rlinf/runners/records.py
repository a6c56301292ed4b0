"""What a launch adds to a run's folder around the loop: where everything runs, and the page about the run."""

from __future__ import annotations

from contextlib import ExitStack

from rlinf.placement import draw_plan
from rlinf.runners.session import RunSession
from rlinf.scheduler import Cluster
from rlinf.utils.placement import HybridComponentPlacement


def record_run(session: RunSession, cluster: Cluster, afterwards: ExitStack) -> None:
    """Record the placement, and let the page about the run be written at its end.

    Args:
        session: The run's.
        cluster: Where it runs.
        afterwards: Is closed after the cluster, which writes the trace when it closes.
    """
    nodes = [cluster.get_node_info(rank) for rank in range(cluster.num_nodes)]
    session.placement = draw_plan(HybridComponentPlacement(session.cfg, cluster), nodes)
    afterwards.callback(session.write_report)
