"""Loses two of three simulated nodes while workers of the third wait for them; run as ``node_driver.py SEED``."""

import contextlib
import os
import random
import signal
import sys
import time
from typing import Any

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


def main(seed: str) -> None:
    chance = random.Random(seed)
    nodes, handles = Nodes(), []
    for rank in range(3):
        os.environ["RLINF_NODE_RANK"] = str(rank)
        handles.append(nodes.add_node(num_cpus=1))
    os.environ["RAY_ADDRESS"] = nodes.address
    stopped = []
    try:
        with Cluster(num_nodes=3, cluster_cfg=ClusterConfig(cpu_slots_per_node=4)) as cluster:
            lose(cluster, chance, [raylet_of(handle) for handle in handles[1:]], stopped)
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
                process.kill()
        ray.shutdown()
        nodes.shutdown()


def raylet_of(node: Any) -> psutil.Process:
    return psutil.Process(node.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid)


def lose(cluster: Cluster, chance: random.Random, raylets: list[psutil.Process], stopped: list[Any]) -> None:
    """Kill one node's raylet and stop everything of the other's, which does not close a single connection."""
    lose_a_parent(cluster)
    here = Chaotic.create_group().launch(cluster, NodePlacementStrategy([0] * 4), name="here", wait=False)
    names = ("killed", "stopped")
    there = [
        Chaotic.create_group().launch(cluster, NodePlacementStrategy([rank]), name=name, wait=False)
        for rank, name in enumerate(names, start=1)
    ]
    for group in (here, *there):
        group.wait_ready()
    waits = {}
    for index, (group, name) in enumerate(zip(there, names, strict=True)):
        channel = Channel.create(name, maxsize=1)
        receiving = here.execute_on(2 * index).attempt("receive", name, 0)
        getting = here.execute_on(2 * index + 1).attempt("take", channel, 1_000)
        waits[name] = (receiving, getting, group.then_sleep("put_all", channel, 3))
    time.sleep(chance.uniform(0.3, 0.8))
    losses = [raylets[0].kill, lambda: stop(raylets[1], stopped)]
    chance.shuffle(losses)
    for loss in losses:
        loss()
        time.sleep(chance.uniform(0, 0.5))
    for name, (receiving, getting, feeding) in waits.items():
        for wait in (receiving, getting):
            outcome, text = wait.wait(timeout=SECONDS)[0]
            assert outcome == "WorkerDiedError", (outcome, text)
            assert f"{name}:0" in text, text
        with pytest.raises(WorkerDiedError) as caught:
            feeding.wait(timeout=SECONDS)
        assert caught.value.group == name
    # Who was stopped goes on one day: nobody needs it any more.
    for process in stopped:
        process.send_signal(signal.SIGCONT)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(there[1].worker_info_list[0].pid).wait(SECONDS)
    # The run can go on where it still has nodes.
    again = Chaotic.create_group().launch(cluster, NodePlacementStrategy([0]), name="killed")
    assert [rank for rank, _ in again.identify().wait(timeout=60)] == [0]


def lose_a_parent(cluster: Any) -> None:
    """Kill a worker of another node than the manager's whose forked child lives on."""
    group = Chaotic.create_group().launch(cluster, NodePlacementStrategy([1]), name="parent")
    child = psutil.Process(group.fork(300).wait()[0])
    running = group.sleep(300)
    psutil.Process(group.worker_info_list[0].pid).kill()
    with pytest.raises(WorkerDiedError, match="parent:0"):
        running.wait(timeout=SECONDS)
    assert child.is_running()
    child.kill()


def stop(raylet: Any, stopped: Any) -> None:
    stopped += [raylet, *raylet.children(recursive=True)]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)


if __name__ == "__main__":
    main(sys.argv[1])
