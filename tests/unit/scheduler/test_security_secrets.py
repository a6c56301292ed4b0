"""Secrets of the environment stay where they are: no handle, log or description of a worker carries them."""

import contextlib
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
import ray
from sample_workers import Sample

from rlinf.config.schema.cluster import ClusterConfig, EnvConfigs, NodeGroupConfig
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy, PackedPlacementStrategy, WorkerGroup
from rlinf.scheduler.attach import keep_token_private

CONFIGURED = "SERVICE_PASSWORD"
NAMES = ("WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN")


@pytest.fixture(scope="module")
def run(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, WorkerGroup[Any], dict[str, str], Path]]:
    """A run that begins after the user has set secrets, and what it logs."""
    log_dir = tmp_path_factory.mktemp("secrets")
    secrets = {name: f"hidden-{uuid.uuid4().hex}" for name in NAMES}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in secrets.items():
            patch.setenv(name, value)
        secrets[CONFIGURED] = f"hidden-{uuid.uuid4().hex}"
        variables = [{CONFIGURED: secrets[CONFIGURED]}, {"PYTHONHASHSEED": 5}, {"PYTHONPATH": "/early"}]
        own = NodeGroupConfig(label="own", node_ranks=0, env_configs=[EnvConfigs(node_ranks=0, env_vars=variables)])
        with Cluster(
            cluster_cfg=ClusterConfig(cpu_slots_per_node=2, node_groups=[own]), log_dir=str(log_dir)
        ) as second:
            group = Sample.create_group().launch(second, NodePlacementStrategy([0, 0], "own"), name="secretive")
            yield second, group, secrets, log_dir


def leaks(data: bytes | str, secrets: dict[str, str]) -> list[str]:
    if isinstance(data, str):
        data = data.encode()
    return [name for name, value in secrets.items() if value.encode() in data]


def test_workers_have_what_the_user_has_set(run: tuple[Cluster, WorkerGroup[Any], dict[str, str], Path]) -> None:
    _, group, secrets, _ = run
    assert group.environ(*NAMES, CONFIGURED).wait() == [secrets, secrets]


def test_workers_start_with_what_an_interpreter_reads_at_its_start(
    run: tuple[Cluster, WorkerGroup[Any], dict[str, str], Path],
) -> None:
    _, group, _, _ = run
    for started_with in group.started_with("PYTHONHASHSEED", "PYTHONPATH", CONFIGURED).wait():
        assert started_with["PYTHONHASHSEED"] == "5"
        assert started_with["PYTHONPATH"].startswith("/early:")
        assert started_with[CONFIGURED] is None


def test_handles_carry_no_secret(run: tuple[Cluster, WorkerGroup[Any], dict[str, str], Path]) -> None:
    cluster, group, secrets, _ = run
    placements = PackedPlacementStrategy(0, 1).get_placement(cluster)
    handles = {
        "group": group,
        "workers": group.worker_info_list,
        "channel": Channel.create("secretive"),
        "placements": placements,
        "node": cluster.get_node_info(0),
        "node group": cluster.get_node_group(),
        "strategy": PackedPlacementStrategy(0, 1),
        "result": group.add(1).wait(),
    }
    for name, handle in handles.items():
        assert leaks(cloudpickle.dumps(handle), secrets) == [], name
        assert leaks(repr(handle), secrets) == [], name


def test_the_cluster_itself_does_not_travel(run: tuple[Cluster, WorkerGroup[Any], dict[str, str], Path]) -> None:
    cluster, _, _, _ = run
    with pytest.raises(TypeError, match="stays in the driver"):
        pickle.dumps(cluster)


def test_a_description_of_a_workers_environment_hides_values(
    run: tuple[Cluster, WorkerGroup[Any], dict[str, str], Path],
) -> None:
    cluster, _, secrets, _ = run
    (placement,) = NodePlacementStrategy([0], "own").get_placement(cluster)
    environment, runtime_env = cluster.process_environment(placement, {})
    assert leaks(pickle.dumps(environment), secrets) == [*NAMES, CONFIGURED], "this is what brings them to the worker"
    assert leaks(repr(environment), secrets) == []
    assert leaks(repr(runtime_env), secrets) == [], "Ray writes it to its logs"
    assert leaks(repr(cluster.run_spec), {"key": cluster.run_spec.keys[1].decode()}) == []


def test_no_log_holds_a_secret_or_the_key_of_the_run(
    run: tuple[Cluster, WorkerGroup[Any], dict[str, str], Path],
) -> None:
    cluster, group, secrets, log_dir = run
    group.say("something").wait()
    with pytest.raises(Exception, match="the reason"):
        group.fail_on_rank(0).wait()
    hidden = {**secrets, "key": cluster.run_spec.keys[1].decode()}
    session = Path(ray._private.worker.global_worker.node.get_logs_dir_path())
    files = [path for folder in (log_dir, session) for path in folder.rglob("*") if path.is_file()]
    assert any("secretive_0" in path.name for path in files)
    for path in files:
        assert leaks(path.read_bytes(), hidden) == [], path
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            assert leaks(" ".join(process.cmdline()), hidden) == [], process


def test_rays_token_authentication_is_on(cluster: Cluster) -> None:
    assert os.environ["RAY_AUTH_MODE"] == "token"
    ask = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address"]
    ask.append(ray.get_runtime_context().gcs_address)
    stranger = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    assert subprocess.run(ask, env=dict(os.environ), check=False, capture_output=True).returncode == 0
    refused = subprocess.run(ask, env=stranger, check=False, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "InvalidAuthToken" in refused.stdout + refused.stderr


def test_the_token_is_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    keep_token_private()
    (tmp_path / "token").write_text("x")
    (tmp_path / "token").chmod(0o644)
    keep_token_private()
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
