"""Loses one of two simulated nodes while workers of the other wait for it; run as ``node_driver.py kill|stop SEED``."""

import os
import random
import signal
import sys
import time

import psutil
import pytest
import ray
from chaos_workers import Chaotic
from ray._private import ray_constants
from ray.cluster_utils import Cluster as Nodes

from rlinf.config.schema.cluster import ClusterConfig
from rlinf.errors import WorkerDiedError
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy

# A node that vanishes is to be known within 20 s; other tests may run beside this one.
SECONDS = 35


def main(kind, seed):
    chance = random.Random(f"{kind}/{seed}")
    nodes = Nodes()
    handles = {}
    for rank in (0, 1):
        os.environ["RLINF_NODE_RANK"] = str(rank)
        handles[rank] = nodes.add_node(num_cpus=1)
    os.environ["RAY_ADDRESS"] = nodes.address
    stopped = []
    try:
        lose(kind, chance, handles[1], stopped)
    finally:
        for process in stopped:
            process.send_signal(signal.SIGCONT)
            process.kill()
        ray.shutdown()
        nodes.shutdown()


def lose(kind, chance, node, stopped):
    with Cluster(num_nodes=2, cluster_cfg=ClusterConfig(cpu_slots_per_node=2)) as cluster:
        here = Chaotic.create_group().launch(cluster, NodePlacementStrategy([0, 0]), name="here", wait=False)
        there = Chaotic.create_group().launch(cluster, NodePlacementStrategy([1]), name="there", wait=False)
        here.wait_ready()
        there.wait_ready()
        full = Channel.create("full", maxsize=1)
        waits = [here.execute_on(0).attempt("receive", "there", 0), here.execute_on(1).attempt("take", full, 1_000)]
        feeding = there.then_sleep("put_all", full, 3)
        time.sleep(chance.uniform(0.5, 1.0))
        raylet = psutil.Process(node.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid)
        if kind == "kill":
            raylet.kill()
        else:
            stopped += [raylet, *raylet.children(recursive=True)]
            for process in stopped:
                process.send_signal(signal.SIGSTOP)
        for wait in waits:
            outcome, text = wait.wait(timeout=SECONDS)[0]
            assert outcome == "WorkerDiedError", (outcome, text)
            assert "there:0" in text, text
        with pytest.raises(WorkerDiedError) as caught:
            feeding.wait(timeout=SECONDS)
        assert caught.value.group == "there"
        # The run can go on where it still has nodes.
        again = Chaotic.create_group().launch(cluster, NodePlacementStrategy([0]), name="there")
        assert [rank for rank, _ in again.identify().wait(timeout=60)] == [0]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
