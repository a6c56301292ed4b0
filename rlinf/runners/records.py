"""What a launch adds to a run's folder around the loop: where everything runs, and the page about the run."""

from __future__ import annotations

from contextlib import ExitStack

from rlinf.config.schema.root import RLinfConfig
from rlinf.placement import draw_plan
from rlinf.runners.output_paths import run_folder
from rlinf.runners.run_logger import RunLogger
from rlinf.scheduler import Cluster
from rlinf.utils.placement import HybridComponentPlacement


def open_cluster(cfg: RLinfConfig) -> Cluster:
    """Return the cluster of a recipe; its worker logs go to the run's folder, its status names the experiment."""
    experiment_name = cfg.runner.logger.experiment_name
    return Cluster(cfg.cluster.num_nodes, cfg.cluster, str(run_folder(cfg)), experiment_name=experiment_name)


def record_run(logger: RunLogger, cluster: Cluster, afterwards: ExitStack) -> None:
    """Record which run it is and the placement, and let the page about the run be written at its end.

    Args:
        logger: That of the run.
        cluster: Where it runs.
        afterwards: Is closed after the cluster, which writes the trace when it closes.
    """
    nodes = [cluster.get_node_info(rank) for rank in range(cluster.num_nodes)]
    logger.run_id = cluster.namespace
    logger.placement = draw_plan(HybridComponentPlacement(logger.cfg, cluster), nodes)
    afterwards.callback(logger.write_report)
