"""From a recipe to a running system: data, cluster, placement, worker groups, runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from rlinf.config.registries import task_types
from rlinf.config.schema.root import RLinfConfig
from rlinf.placement import draw_plan
from rlinf.registry import import_target
from rlinf.runners.callbacks import Callback, StepFunction
from rlinf.runners.output_paths import reserve_run, run_folder
from rlinf.runners.run_logger import RunLogger
from rlinf.runners.step_runner import StepRunner
from rlinf.scheduler import Cluster, Worker, WorkerGroup
from rlinf.utils.placement import HybridComponentPlacement

W = TypeVar("W", bound=Worker)


class GroupLauncher:
    """Launches the worker groups of a recipe where its placement puts them.

    Args:
        cfg: The recipe.
        cluster: The cluster that it runs on.

    Attributes:
        sizes: World size of each group, by component.
        groups: The groups that have been started, by component.
    """

    def __init__(self, cfg: RLinfConfig, cluster: Cluster) -> None:
        self.cluster, self.names = cluster, cfg.group_names
        self.placement = HybridComponentPlacement(cfg, cluster)
        self.sizes = {component: self.placement.get_world_size(component) for component in self.names}
        self.groups: dict[str, WorkerGroup[Any]] = {}

    def start(self, component: str, group: WorkerGroup[W]) -> WorkerGroup[W]:
        """Launch a group without waiting for it: groups start at once, as most of the time is spent importing torch.

        Args:
            component: Its component in the recipe.
            group: What ``create_group`` of a worker class returned.

        Returns:
            The group; ``wait_ready`` waits for it.
        """
        strategy = self.placement.get_strategy(component)
        self.groups[component] = group
        return group.launch(self.cluster, name=self.names[component], placement_strategy=strategy, wait=False)


def launch(
    cfg: RLinfConfig,
    make_runner: Callable[..., StepRunner] | None = None,
    *,
    callbacks: Sequence[Callback | StepFunction] = (),
) -> dict[str, float]:
    """Run a recipe to its end; at any outcome, nothing that it started is left running.

    Args:
        cfg: The validated recipe; ``rlinf.runners.task_types`` has what its ``runner.task_type`` selects.
        make_runner: The class of another loop, called as ``make_runner(cfg, **groups, **data)``.
        callbacks: Called after steps and checkpoints: ``Callback`` objects, or functions of a step and its metrics.

    Returns:
        The last step's metrics.
    """
    task = task_types.get(cfg.runner.task_type)
    with ExitStack() as stack:
        cfg, data = import_target(task.data)(reserve_run(cfg, stack), stack)
        afterwards = stack.enter_context(ExitStack())
        cluster = stack.enter_context(open_cluster(cfg))
        cfg, groups = launch_groups(cfg, cluster)
        runner: StepRunner = (make_runner or import_target(task.runner))(cfg, **groups, **data)
        record_run(runner.logger, cluster, afterwards)
        if callbacks:
            runner.add_callbacks(callbacks)
        runner.init_workers()
        return runner.run()


launch_embodied = launch_offline = launch_reasoning = launch_sft = launch
"""Names of ``launch`` from when each task type had a launcher of its own."""


def launch_groups(cfg: RLinfConfig, cluster: Cluster) -> tuple[RLinfConfig, dict[str, WorkerGroup[Any]]]:
    """Launch the worker groups of a recipe and wait until they are ready.

    Args:
        cfg: The recipe.
        cluster: The cluster that it runs on.

    Returns:
        The recipe, with the sizes of models that it leaves to the environments filled in; and the groups, by component.
    """
    launcher = GroupLauncher(cfg, cluster)
    cfg = import_target(task_types.get(cfg.runner.task_type).workers)(cfg, launcher)
    return cfg, {component: group.wait_ready() for component, group in launcher.groups.items()}


def open_cluster(cfg: RLinfConfig) -> Cluster:
    """Return the cluster of a recipe; its worker logs go to the run's folder, its status names the experiment."""
    experiment_name = cfg.runner.logger.experiment_name
    return Cluster(cfg.cluster.num_nodes, cfg.cluster, str(run_folder(cfg)), experiment_name=experiment_name)


def record_run(logger: RunLogger, cluster: Cluster, afterwards: ExitStack) -> None:
    """Record which run it is and the placement, and have the report about the run written at its end.

    Args:
        logger: That of the run.
        cluster: Where it runs.
        afterwards: Is closed after the cluster, which writes the trace when it closes.
    """
    nodes = [cluster.get_node_info(rank) for rank in range(cluster.num_nodes)]
    logger.run_id = cluster.namespace
    logger.placement = draw_plan(HybridComponentPlacement(logger.cfg, cluster), nodes)
    afterwards.callback(logger.write_report)
