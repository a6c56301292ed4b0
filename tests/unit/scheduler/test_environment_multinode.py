"""What may differ from node to node: ranks, network interfaces, variables, interpreters. Nodes are raylets here."""

import os
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from rlinf.config.schema.cluster import EnvConfigs, HardwareConfig, NodeGroupConfig
from rlinf.errors import ClusterError
from rlinf.placement import NodeInfo, build_node_groups
from rlinf.scheduler.environment import NodeSettings, query_interpreter
from rlinf.scheduler.probe import listen_ip

HERE = Path(__file__).parent
HEADER = """
import os, sys
import ray
from ray.cluster_utils import Cluster as Nodes
from sample_workers import Sample
from rlinf.config.schema.cluster import ClusterConfig, EnvConfigs, NodeGroupConfig
from rlinf.errors import ClusterError
from rlinf.scheduler import Cluster, NodePlacementStrategy, Worker

nodes = Nodes()

def add_node(**variables):
    os.environ.update(variables)
    try:
        return nodes.add_node(num_cpus=1)
    finally:
        for name in variables:
            del os.environ[name]

def refusal():
    try:
        Cluster(num_nodes=2).close()
    except ClusterError as error:
        return str(error)

"""


@pytest.fixture
def drive(tmp_path: Path) -> Callable[..., str]:
    """Run a driver in a process of its own; its Ray ends with it."""

    def run(body: str) -> str:
        script = tmp_path / "driver.py"
        script.write_text(
            f"{HEADER}\ntry:\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
            "finally:\n    ray.shutdown()\n    nodes.shutdown()\n"
        )
        environment = {
            name: value
            for name, value in os.environ.items()
            if name == "RAY_TMPDIR" or not name.startswith(("RAY_", "RLINF_"))
        }
        environment["PYTHONPATH"] = f"{HERE.parents[2]}:{HERE}"
        finished = subprocess.run(
            [sys.executable, str(script)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        said = finished.stdout + finished.stderr
        assert finished.returncode == 0, said
        return said

    return run


def test_ranks_and_interfaces_of_nodes_are_checked(drive: Callable[..., str]) -> None:
    said = drive(
        """
        add_node(RLINF_NODE_RANK="1", RLINF_COMM_NET_DEVICES="eth77,lo")
        os.environ["RAY_ADDRESS"] = nodes.address
        second = add_node()
        print("none:", refusal())
        nodes.remove_node(second)
        second = add_node(RLINF_NODE_RANK="1")
        print("twice:", refusal())
        nodes.remove_node(second)
        second = add_node(RLINF_NODE_RANK="0", RLINF_COMM_NET_DEVICES="eth77,wlan77")
        print("interface:", refusal())
        nodes.remove_node(second)
        add_node(RLINF_NODE_RANK="0", RLINF_CPU_SLOTS="3")
        with Cluster(num_nodes=2) as cluster:
            both = Sample.create_group().launch(cluster, NodePlacementStrategy([0, 1]), name="both")
            ranks = both.environ("RLINF_NODE_RANK").wait()
            hosts = [member.endpoint.tcp.split("/")[2].split(":")[0] for member in both.worker_info_list]
            print("ranks", [entry["RLINF_NODE_RANK"] for entry in ranks], cluster.get_node_info(0).cpu_slots)
            print("listens on lo:", [host == "127.0.0.1" for host in hosts], cluster.get_node_ip(1))
        """
    )
    assert "none: RLINF_NODE_RANK is set on 1 nodes but not on" in said
    assert "twice: RLINF_NODE_RANK must be 0-1, each once; found" in said
    assert "interface: RLINF_COMM_NET_DEVICES=eth77,wlan77:" in said
    assert "lo (127.0.0.1)" in said
    assert "ranks ['0', '1'] 3" in said
    assert "listens on lo: [False, True] 127.0.0.1" in said


def test_each_node_has_its_own_variables_and_interpreter(drive: Callable[..., str], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = tmp_path / "venv/lib" / version / "site-packages"
    (packages / "shared.pth").write_text(sysconfig.get_paths()["purelib"])
    said = drive(
        f"""
        for rank in "01":
            add_node(RLINF_NODE_RANK=rank)
        os.environ["RAY_ADDRESS"] = nodes.address

        class Where(Sample):
            def prefix(self):
                import sys
                return sys.prefix

        def groups(interpreter):
            return [NodeGroupConfig(label="both", node_ranks="0-1", env_configs=[
                EnvConfigs(node_ranks=0, env_vars=[{{"WHERE": "zero"}}, {{"ONLY": 1}}]),
                EnvConfigs(node_ranks=1, env_vars=[{{"WHERE": "one"}}], python_interpreter_path=interpreter),
            ])]

        good = ClusterConfig(node_groups=groups("{tmp_path}/venv/bin/python"))
        bad = ClusterConfig(node_groups=groups("/opt/nowhere/python"))
        with Cluster(num_nodes=2, cluster_cfg=good) as cluster:
            both = Where.create_group().launch(cluster, NodePlacementStrategy([0, 1, 1], "both"), name="both")
            print("prefixes", both.prefix().wait())
            print("variables", [list(entry.values()) for entry in both.environ("WHERE", "ONLY").wait()])
            both.execute_on(2).send_all(["over"], "both", 0).wait()
            print(both.execute_on(0).recv_all(1, "both", 2).wait())
        try:
            Cluster(num_nodes=2, cluster_cfg=bad)
        except ClusterError as error:
            print("refused:", error)
        """
    )
    other = str(tmp_path / "venv")
    assert f"prefixes {[sys.prefix, other, other]}" in said
    assert "variables [['zero', '1'], ['one', None], ['one', None]]" in said
    assert "[['over']]" in said
    path = "cluster.node_groups[0].env_configs[1].python_interpreter_path"
    assert f"refused: {path}: '/opt/nowhere/python' on node 1" in said


def test_each_node_keeps_to_its_visible_gpus(
    drive: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\nfor i in 0 1 2 3 4 5 6 7; do echo "GPU $i: Fake GPU (UUID: GPU-$i)"; done\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    said = drive(
        """
        from rlinf.scheduler import PackedPlacementStrategy

        add_node(RLINF_NODE_RANK="0", CUDA_VISIBLE_DEVICES="0,1,2,3,4")
        os.environ["RAY_ADDRESS"] = nodes.address
        add_node(RLINF_NODE_RANK="1", CUDA_VISIBLE_DEVICES="GPU-3,5,1")
        variables = ("CUDA_VISIBLE_DEVICES", "VISIBLE_DEVICES", "LOCAL_ACCELERATOR_RANK")

        def seen(cluster, name, **options):
            last = cluster.num_accelerators - 1
            group = Sample.create_group().launch(cluster, PackedPlacementStrategy(0, last), name=name, **options)
            infos = [list(member.accelerators) for member in group.worker_info_list]
            rows = [list(entry.values()) for entry in group.environ(*variables).wait()]
            assert [",".join(info) for info in infos] == [row[0] for row in rows]
            return rows

        os.environ["CUDA_VISIBLE_DEVICES"] = "6,7"  # of the driver, on its node
        with Cluster(num_nodes=2) as cluster:
            print("isolated", seen(cluster, "isolated"))
            print("shared", seen(cluster, "shared", isolate_gpu=False)[3])
            node = NodePlacementStrategy([1])
            whole = Sample.create_group().launch(cluster, node, name="whole")
            print("whole", whole.environ(*variables).wait())
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        with Cluster(num_nodes=2) as cluster:
            print("hidden", [cluster.get_node_info(rank).num_accelerators for rank in (0, 1)])
        os.environ["CUDA_VISIBLE_DEVICES"] = "8"
        print("refused:", refusal())
        """
    )
    rows = [["6", "0", "0"], ["7", "1", "1"], ["GPU-3", "0", "0"], ["5", "1", "1"], ["1", "2", "2"]]
    assert f"isolated {rows}" in said
    assert f"shared {['GPU-3,5,1', '0,1,2', '1']}" in said
    assert "whole [{'CUDA_VISIBLE_DEVICES': 'GPU-3,5,1', 'VISIBLE_DEVICES': '0,1,2'" in said
    assert "hidden [0, 3]" in said
    assert "refused: CUDA_VISIBLE_DEVICES=8: must name GPUs of this node" in said


def test_an_interface_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLINF_COMM_NET_DEVICES", raising=False)
    assert listen_ip("10.0.0.1") == "10.0.0.1"
    for names in ("lo", "eth77, lo", ",lo,"):
        monkeypatch.setenv("RLINF_COMM_NET_DEVICES", names)
        assert listen_ip("10.0.0.1") == "127.0.0.1"
    monkeypatch.setenv("RLINF_COMM_NET_DEVICES", "eth77")
    with pytest.raises(ClusterError, match=r"RLINF_COMM_NET_DEVICES=eth77: .* it has .*lo \(127\.0\.0\.1\)"):
        listen_ip("10.0.0.1")


def test_settings_are_found_by_group_and_node() -> None:
    entries = [EnvConfigs(node_ranks="all", env_vars=[{"A": 1}], python_interpreter_path="/opt/python")]
    arms = [{"node_rank": 2, "ip": "a"}, {"node_rank": 1, "ip": "b"}, {"node_rank": 2, "ip": "c"}]
    configs = [
        NodeGroupConfig(label="some", node_ranks="1-2", env_configs=entries),
        NodeGroupConfig(label="arms", node_ranks="0-2", hardware=HardwareConfig(type="Franka", configs=arms)),
    ]
    settings = NodeSettings(configs, build_node_groups([NodeInfo(node_rank=rank) for rank in range(3)], configs))
    assert settings.environment("some", 2) is entries[0]
    assert settings.environment("some", 0) is None, "'all' means the group's nodes"
    assert settings.environment("arms", 1) is None
    assert [rank for _, rank, _ in settings.interpreters] == [1, 2]
    assert settings.devices("some", 1) is None
    assert settings.devices("arms", 0) == []
    assert [device["ip"] for device in settings.devices("arms", 2) or ()] == ["a", "c"]
    assert settings.devices("arms", 1) == [{"type": "Franka", "node_rank": 1, "ip": "b"}]


def test_an_interpreter_tells_what_it_has_or_why_it_cannot(tmp_path: Path) -> None:
    assert query_interpreter(sys.executable)[0] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert "No such file" in str(query_interpreter(str(tmp_path / "python")))
    without_ray = tmp_path / "python"
    without_ray.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without_ray.chmod(0o755)
    assert "No module named 'ray'" in str(query_interpreter(str(without_ray)))
