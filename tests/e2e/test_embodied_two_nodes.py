"""The embodied loop over two simulated nodes: two raylets on this machine."""

from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster

from rlinf.config import load_recipe, validate_cfg
from rlinf.runners.launch import launch_embodied
from tests.e2e.conftest import TINY, read_metrics

pytestmark = pytest.mark.timeout(300)


def test_two_nodes(tmp_path: Path) -> None:
    ray.shutdown()  # that of other files' runs
    cluster = RayCluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=2)
        ray.init(address=cluster.address)
        keys = (
            "cluster.num_nodes=2",
            "cluster.cpu_slots_per_node=1",
            "cluster.component_placement={actor: 0, rollout: 1, env: 0-1}",
        )
        folders = []
        for name in ("first", "second"):
            log_path = f"runner.logger.log_path={tmp_path / name}"
            launch_embodied(validate_cfg(load_recipe("gym_cartpole_ppo_mlp", [*TINY, *keys, log_path])))
            folders.append(tmp_path / name / "gym_cartpole_ppo_mlp")
        assert read_metrics(folders[0]) == read_metrics(folders[1])
    finally:
        ray.shutdown()
        cluster.shutdown()
