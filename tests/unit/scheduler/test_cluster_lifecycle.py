"""How runs begin and end: exit codes, what is left behind, Ctrl-C, several nodes."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from sample_workers import Sample

from rlinf.errors import ClusterError, PlacementError, WorkerDiedError
from rlinf.placement import NodeInfo
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy

HERE = Path(__file__).parent

HEADER = """
import faulthandler, os, signal, sys, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
from sample_workers import Sample
from rlinf.config.schema.cluster import ClusterConfig
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy
"""

_drivers = []


def start_driver(body: str, tmp_path: Path, **environment: str) -> subprocess.Popen[str]:
    script = tmp_path / "driver.py"
    script.write_text(HEADER + textwrap.dedent(body))
    root = HERE.parents[2]
    variables = {
        # The folder is that of this test process: in the common one, the Ray of another would be found.
        **{name: value for name, value in os.environ.items() if name == "RAY_TMPDIR" or not name.startswith("RAY_")},
        "PYTHONPATH": f"{root}:{HERE}",
        "RLINF_TEST_MARK": str(tmp_path),
        **environment,
    }
    driver = subprocess.Popen(
        [sys.executable, str(script)],
        env=variables,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    _drivers.append(driver)
    return driver


def output_at_end(driver: subprocess.Popen[str], seconds: int = 60) -> str:
    """What a driver has written once it has ended; one that does not end tells where its threads are."""
    try:
        return driver.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        driver.send_signal(signal.SIGUSR1)
        time.sleep(2)
        driver.kill()
        pytest.fail(f"The driver has not ended within {seconds} s:\n{driver.communicate()[0]}")


@pytest.fixture(autouse=True)
def no_driver_outlives_its_test() -> Iterator[None]:
    yield
    while _drivers:
        _drivers.pop().kill()


def left_behind(tmp_path: Path) -> list[str]:
    """Processes of the run: each inherits its mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("RLINF_TEST_MARK") == str(tmp_path) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:200])
        except psutil.Error:
            continue
    return found


def wait_until_gone(tmp_path: Path, seconds: int = 90) -> list[Any]:
    deadline = time.monotonic() + seconds
    while (left := left_behind(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.3)
    return left


def test_a_driver_that_raises_exits_with_1_and_leaves_nothing(tmp_path: Path) -> None:
    driver = start_driver(
        """
        cluster = Cluster(cluster_cfg=ClusterConfig(cpu_slots_per_node=1))
        group = Sample.create_group().launch(cluster)
        group.sleep(100)
        print("namespace", cluster.namespace)
        assert group.world_size == 1
        raise ValueError("an ordinary exception")
        """,
        tmp_path,
    )
    output, _ = driver.communicate(timeout=120)
    assert driver.returncode == 1, output
    assert "ValueError: an ordinary exception" in output
    assert wait_until_gone(tmp_path) == []
    (namespace,) = re.findall(r"namespace (\w+)", output)
    assert not Path(tempfile.gettempdir(), f"rlinf_{os.getuid()}_{namespace}").exists()


def test_ctrl_c_interrupts_a_wait_and_leaves_nothing(tmp_path: Path) -> None:
    driver = start_driver(
        """
        with Cluster(cluster_cfg=ClusterConfig(cpu_slots_per_node=1)) as cluster:
            group = Sample.create_group().launch(cluster)
            print("waiting", flush=True)
            group.sleep(100).wait()
        """,
        tmp_path,
    )
    for line in driver.stdout:
        if "waiting" in line:
            break
    driver.send_signal(signal.SIGINT)
    output = output_at_end(driver)
    assert driver.returncode not in {0, None}
    assert "KeyboardInterrupt" in output
    assert wait_until_gone(tmp_path) == []


# A process of Ray that was starting when its node died asks for the node again and again before it ends: 25 s on an
# idle machine, a multiple of that on a busy one.
@pytest.mark.timeout(400)
def test_a_killed_driver_leaves_nothing(tmp_path: Path) -> None:
    driver = start_driver(
        """
        cluster = Cluster(cluster_cfg=ClusterConfig(cpu_slots_per_node=1))
        group = Sample.create_group().launch(cluster)
        print("waiting", flush=True)
        group.sleep(1000).wait()
        """,
        tmp_path,
    )
    assert any("waiting" in line for line in driver.stdout)
    driver.kill()
    driver.wait()
    assert wait_until_gone(tmp_path, 240) == []


def test_a_finished_run_exits_by_itself(tmp_path: Path) -> None:
    driver = start_driver(
        """
        os.environ["SET_AFTER_START"] = "no"
        cluster = Cluster(cluster_cfg=ClusterConfig(cpu_slots_per_node=1))
        os.environ["SET_AFTER_START"] = "yes"
        group = Sample.create_group().launch(cluster)
        print(group.environ("SET_AFTER_START", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES").wait())
        group.later(1, 1000)
        channel = Channel.create("c")
        channel.get(async_op=True)
        """,
        tmp_path,
    )
    output, _ = driver.communicate(timeout=120)
    assert driver.returncode == 0, output
    assert "{'SET_AFTER_START': 'yes', 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': ''}" in output
    assert wait_until_gone(tmp_path) == []


def test_two_nodes_with_their_own_environments(tmp_path: Path) -> None:
    driver = start_driver(
        """
        from ray.cluster_utils import Cluster as Nodes
        nodes = Nodes()
        for rank in (1, 0):
            os.environ["RLINF_NODE_RANK"] = str(rank)
            os.environ["RLINF_CPU_SLOTS"] = str(rank + 1)
            nodes.add_node(num_cpus=1)
        os.environ["RAY_ADDRESS"] = nodes.address
        from rlinf.config.schema.cluster import EnvConfigs, NodeGroupConfig
        group = NodeGroupConfig(label="both", node_ranks="0-1", env_configs=[
            EnvConfigs(node_ranks=0, env_vars=[{"WHERE": "zero"}, {"PATH": "/zero"}]),
            EnvConfigs(node_ranks=1, env_vars=[{"WHERE": "one"}]),
        ])
        with Cluster(num_nodes=2, cluster_cfg=ClusterConfig(node_groups=[group])) as cluster:
            assert cluster.get_node_group().resources_per_node == [1, 2], cluster.get_node_group()
            both = Sample.create_group().launch(cluster, NodePlacementStrategy([0, 1], "both"), name="both")
            print([entry["WHERE"] for entry in both.environ("WHERE").wait()])
            paths = [entry["PATH"] for entry in both.environ("PATH").wait()]
            # One string: what workers print may come between the arguments of a call.
            print(f"path {paths[0].startswith('/zero:')} {'/zero' in paths[1]} {':/usr/bin' in paths[0]}")
            assert all(member.endpoint.tcp for member in both.worker_info_list)
            receiving = both.execute_on(0).recv_all(2, "both", 1)
            both.execute_on(1).send_all(["over", b"tcp" * 100_000], "both", 0).wait()
            print(f"{receiving.wait()[0][0]} {len(receiving.wait()[0][1])}")
            channel = Channel.create("c")
            both.put_items(channel, [1]).wait()
            print(sorted([channel.get(), channel.get()]))
        import ray
        print("ray stays", ray.is_initialized())
        ray.shutdown()
        nodes.shutdown()
        """,
        tmp_path,
    )
    output, _ = driver.communicate(timeout=180)
    assert driver.returncode == 0, output
    for line in ("['zero', 'one']", "path True False True", "over 300000", "[1, 1]", "ray stays True"):
        assert line in output, output


def test_missing_nodes_are_an_error_in_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_CLUSTER_TIMEOUT_SECONDS", "0.5")
    with pytest.raises(ClusterError, match="Only 1 of 3 nodes"):
        Cluster(num_nodes=3)


def test_a_second_cluster_ends_only_what_it_made(cluster: Cluster, launch: Callable[..., Any]) -> None:
    survivor = launch(Sample.create_group(), ranks=1)
    with Cluster() as second:
        group = Sample.create_group().launch(second, NodePlacementStrategy([0]), name="visitor")
        assert group.add(1).wait() == [1]
    assert survivor.add(2).wait() == [2]


def test_plain_actors_end_with_the_cluster(cluster: Cluster) -> None:
    class Counter:
        def count(self) -> int:
            return 1

    import ray

    with Cluster() as second:
        actor = second.allocate(Counter)
        assert ray.get(actor.count.remote()) == 1

    def call_for_long() -> None:
        # Ray's kill is a message: a call that is quicker than it may still be answered.
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ray.get(actor.count.remote(), timeout=30)

    with pytest.raises(ray.exceptions.RayActorError):
        call_for_long()


def test_equal_lines_of_several_workers_are_all_shown() -> None:
    code = """
    import time
    import ray
    from rlinf.scheduler import Cluster

    @ray.remote(num_cpus=0)
    class Talker:
        def talk(self):
            print("the same line of all")

    with Cluster():
        ray.get([Talker.remote().talk.remote() for _ in range(3)])
        time.sleep(3)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=250)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert output.count("the same line of all") == 3, output
    assert "Token authentication" not in output


def test_a_slow_start_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from rlinf.scheduler import attach

    monkeypatch.setattr(attach, "_SLOW_START_SECONDS", 0.01)
    with attach._telling_of_a_slow_start():
        deadline = time.monotonic() + 30
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "Ray has not started" in caplog.text
    assert "ray/session_latest/logs" in caplog.text


def test_members(cluster: Cluster) -> None:
    assert cluster.num_nodes == 1
    assert cluster.get_node_group().num_hardware_ranks == 4
    assert cluster.get_node_ip(0)
    with pytest.raises(PlacementError, match="no node 7"):
        cluster.get_node_info(7)
    with pytest.raises(PlacementError):
        cluster.get_node_group("nowhere")


def test_published_members(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [NodeInfo(node_rank=rank, num_accelerators=count) for rank, count in enumerate((2, 0, 3))]
    monkeypatch.setattr(cluster, "_nodes", nodes)
    assert cluster.accelerator_ranks == [[0, 1], [], [2, 3, 4]]
    assert [node["Alive"] for node in Cluster.get_alive_nodes()] == [True]
    with socket.socket() as listener:
        listener.bind(("", Cluster.find_free_port()))
    assert Cluster.has_initialized()
    monkeypatch.setattr("rlinf.scheduler.runtime._stack", [])
    assert not Cluster.has_initialized()


def _child(title: str) -> Any:
    """The newest process of this test's Ray with a title."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that has just ended
            if any(title in part for part in child.cmdline()):
                found.append((child.create_time(), child.pid, child))
    return max(found)[2]


def test_the_death_of_a_channel_host_ends_all_waits_on_it(cluster: Cluster) -> None:
    with Cluster() as second:
        channel = Channel.create("fragile", maxsize=1)
        getting = channel.get(key="a", async_op=True)
        channel.put(1)
        putting = channel.put(2, async_op=True)
        _child("ChannelHostActor").kill()
        for pending in (getting, putting):
            with pytest.raises(WorkerDiedError, match="channel host"):
                pending.wait(timeout=30)
        with pytest.raises(WorkerDiedError):
            channel.put_nowait(3)
        channel.close()
        again = Channel.create("fragile")
        again.put("on a new host")
        assert again.get(timeout=30) == "on a new host"
        assert second.num_nodes == 1


def test_the_death_of_the_manager_ends_all_waits_of_the_driver(cluster: Cluster) -> None:
    with Cluster() as second:
        group = Sample.create_group().launch(second, NodePlacementStrategy([0]), name="orphan")
        pending = group.sleep(60)
        _child("ManagerActor").kill()
        with pytest.raises(WorkerDiedError, match="manager"):
            pending.wait(timeout=30)


def test_an_endpoint_of_another_users_ray_is_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlinf.scheduler import attach

    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert attach.find_own_ray() is None
    record = tmp_path / "ray" / "ray_current_cluster"
    record.parent.mkdir()
    record.write_text("127.0.0.1:1")
    assert attach.find_own_ray() is None, "nothing of this user serves that port"
    monkeypatch.setattr(attach, "_runs_here_as_me", lambda port: True)
    monkeypatch.setattr(attach.os, "getuid", lambda: os.geteuid() + 1)
    assert attach.find_own_ray() is None, "the record is another user's"
