"""Runs over two hosts with a network between them, started as a user starts them."""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import ENTRY, TINY, read_metrics
from tests.e2e.hosts import PORT, Hosts

pytestmark = [pytest.mark.multinode, pytest.mark.timeout(600)]

HEADER = """
import os, sys, time
from sample_workers import Sample
from rlinf.config.schema.cluster import ClusterConfig, EnvConfigs, NodeGroupConfig
from rlinf.errors import WorkerDiedError
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Two hosts with Ray on both; tests run in order, and the last one cuts them apart."""
    with Hosts() as pair:
        head, other = pair.both
        code, said = head.script("start_ray.sh", "head", "--port", str(PORT), "--rank", "0", "--", "--num-cpus", "2")
        assert code == 0, said
        worker = ("start_ray.sh", "worker", f"{head.ip}:{PORT}", "--", "--num-cpus", "2")
        pair.said = {"head": said, "without token": other.script(*worker, RLINF_NODE_RANK="1")}
        (other.home / ".ray").mkdir(mode=0o700)
        shutil.copy(head.home / ".ray/auth_token", other.home / ".ray/auth_token")
        code, said = other.script(*worker, RLINF_NODE_RANK="1")
        assert code == 0, said
        pair.said["worker"] = said
        yield pair


# Counts what passes the network interface, and how often the secret below is seen in it, until it is told to stop.
SNIFFER = """
import select, socket, sys
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
ear.setsockopt(socket.SOL_SOCKET, 33, 1 << 27)  # SO_RCVBUFFORCE
ear.bind(("fast0", 0))
print("listening", flush=True)
heard = secret = spoken = 0
while True:
    ready, _, _ = select.select([ear, sys.stdin], [], [])
    if ear in ready:
        packet = ear.recv(1 << 17)
        heard += len(packet)
        secret += b"a secret of ours" in packet
        spoken += b"said in the open" in packet
    elif ready:
        break
print(heard, secret, spoken)
"""


def drive(host: Any, body: str, **environment: str) -> Any:
    script = host.home / "driver.py"
    script.write_text(HEADER + textwrap.dedent(body))
    return host.run(sys.executable, str(script), RAY_ADDRESS=f"{host.ip}:{PORT}", **environment)


def test_the_scripts_bring_two_hosts_together(hosts: Hosts) -> None:
    head, other = hosts.both
    token = (head.home / ".ray/auth_token").read_text().strip()
    code, said = hosts.said["without token"]
    assert code == 1
    assert f"scp {head.ip}:.ray/auth_token" in said
    assert f"RLINF_NODE_RANK=N bash ray_utils/start_ray.sh worker {head.ip}:{PORT}" in hosts.said["head"]
    assert f"Node 1 (worker) is in the cluster at {head.ip}:{PORT}" in hosts.said["worker"]
    assert token
    assert not any(token in str(said) for said in hosts.said.values())
    assert (head.home / ".ray/auth_token").stat().st_mode & 0o077 == 0
    for host in (head, other):
        code, nodes = host.script("check_ray.sh", "2", "--address", f"{head.ip}:{PORT}")
        assert code == 0, nodes
        assert [line.split()[:2] for line in nodes.splitlines()[1:]] == [["0", head.ip], ["1", other.ip]]
    code, nodes = head.script("check_ray.sh", "3", "--timeout", "1")
    assert code == 1
    assert "Only 2 of 3 nodes" in nodes


def test_messages_travel_encrypted_over_the_chosen_network(hosts: Hosts) -> None:
    head, other = hosts.both
    sniffer = other.start(sys.executable, "-c", SNIFFER)
    assert sniffer.stdout.readline() == "listening\n"
    code, said = drive(
        head,
        """
        with Cluster(num_nodes=2) as cluster:
            both = Sample.create_group().launch(cluster, NodePlacementStrategy([0, 1]), name="both")
            print([member.endpoint.tcp.rpartition(":")[0] for member in both.worker_info_list])
            print([entry["MASTER_ADDR"] for entry in both.environ("MASTER_ADDR").wait()])
            items = ["small", b"a secret of ours" * 500_000, {"nested": [b"x" * 200_000, None]}]
            for src, dst in ((0, 1), (1, 0)):
                receiving = both.execute_on(dst).recv_all(3, "both", src)
                both.execute_on(src).send_all(items, "both", dst).wait()
                print("equal", receiving.wait()[0] == items)
            channel = Channel.create("c")
            both.put_items(channel, items).wait()
            print("channel", sorted(map(len, both.execute_on(1).get_items(channel, 6).wait()[0])))
        """,
    )
    assert code == 0, said
    assert f"['tcp://{head.ip}', 'tcp://{other.ip}']" in said
    assert f"['{head.ip}', '{head.ip}']" in said
    assert said.count("equal True") == 2
    assert "channel [1, 1, 5, 5, 8000000, 8000000]" in said
    say = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'said in the open', ('{}', 9))"
    head.run(sys.executable, "-c", say.format(other.ip))
    heard, secret, spoken = map(int, sniffer.communicate("stop\n", timeout=60)[0].split())
    assert heard > 8_000_000, "the payloads have passed here"
    assert spoken > 0, "it does understand"
    assert secret == 0


def test_environments_on_one_host_train_a_policy_on_the_other(hosts: Hosts) -> None:
    head, _ = hosts.both
    code, said = head.run(
        sys.executable,
        str(ENTRY),
        "--config-name",
        "gym_cartpole_ppo_mlp",
        *TINY,
        "cluster.num_nodes=2",
        "cluster.cpu_slots_per_node=1",
        "cluster.component_placement={actor: 0, rollout: 0, env: 1}",
        f"runner.logger.log_path={head.home}/logs",
        RAY_ADDRESS=f"{head.ip}:{PORT}",
    )
    assert code == 0, said
    metrics = read_metrics(head.home / "logs/gym_cartpole_ppo_mlp")
    assert metrics[-1]["step"] == 2


def test_a_host_that_vanishes_is_named_by_every_wait(hosts: Hosts) -> None:
    head, other = hosts.both
    script = head.home / "driver.py"
    script.write_text(
        HEADER
        + textwrap.dedent(
            """
            with Cluster(num_nodes=2) as cluster:
                far = Sample.create_group().launch(cluster, NodePlacementStrategy([1]), name="far")
                near = Sample.create_group().launch(cluster, NodePlacementStrategy([0]), name="near")
                waits = {"the driver": far.sleep(1000), "a peer": near.recv_all(1, "far", 0)}
                print("waiting", flush=True)
                input()
                cut = time.monotonic()
                for who, work in waits.items():
                    try:
                        work.wait(timeout=100)
                    except WorkerDiedError as error:
                        in_time = time.monotonic() - cut < 25  # 15 s of silence, and a slow machine
                        print(f"{who}: {error.group}:{error.rank} on {error.node}, in time: {in_time}")
                        print(error)
                print(near.add(1).wait())
            """
        )
    )
    driver = head.start(sys.executable, str(script), RAY_ADDRESS=f"{head.ip}:{PORT}")
    before = []
    for line in driver.stdout:
        before.append(line)
        if "waiting" in line:
            break
    assert "waiting" in before[-1], before
    other.set_cable("down")
    driver.stdin.write("go\n")
    driver.stdin.close()
    said = driver.stdout.read()
    assert driver.wait(timeout=60) == 0, said
    for who in ("the driver", "a peer"):
        assert f"{who}: far:0 on 1, in time: True" in said, said
    assert f"node 1 ({other.ip}) has not answered" in said
    assert "[1]" in said
