"""What a run tells about itself while it waits."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from sample_workers import Sample

from rlinf.cli.main import main
from rlinf.errors import ClusterError
from rlinf.scheduler import Channel, Cluster, WorkerGroup
from rlinf.scheduler.address import MANAGER_NAME, RunSpec, ray_namespace
from rlinf.scheduler.comm.transport import new_keys
from rlinf.scheduler.manager import ManagerActor
from rlinf.scheduler.run_status import clock, query_status, summarize


def eventually(
    look: Callable[[], Any]
    | Callable[[], bool]
    | Callable[[], tuple[Any, dict[Any, Any]] | None]
    | Callable[[], str | None],
    seconds: int = 30,
) -> Any:
    """Ask until the answer is one; waits begin a moment after the calls that lead to them return."""
    deadline = time.monotonic() + seconds
    while not (answer := look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return answer


@pytest.fixture
def pair(launch: Callable[..., Any]) -> WorkerGroup[Any]:
    return launch(Sample.create_group())


def ranks_of(status: dict[str, Any], group: Any) -> Any:
    return next(entry for entry in status["groups"] if entry["name"] == group.name)["ranks"]


def test_a_blocked_receive_is_told_with_its_source_tag_and_method(
    cluster: Cluster, pair: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pending = pair.execute_on(0).recv_all(1, pair.name, 1, tag="never")
    status = eventually(
        lambda: (told := query_status(cluster.namespace)) and ranks_of(told, pair)[0].get("waits") and told
    )
    blocked, idle = ranks_of(status, pair)
    assert blocked["pid"] == pair.worker_info_list[0].pid
    assert [call["method"] for call in blocked["calls"]] == ["recv_all"]
    (wait,) = blocked["waits"]
    assert wait["what"] == f"{pair.name}:0 waits for a message with tag 'never' from {pair.name}:1"
    assert 0 < wait["since"] <= time.time()
    assert idle["calls"] == idle["waits"] == []
    assert main(["status", cluster.namespace]) == 0
    printed = capsys.readouterr().out
    assert all(len(line) <= 100 for line in printed.splitlines())
    for word in (f"{pair.name}:0", str(blocked["pid"]), "recv_all()", "'never'", "idle", "driver"):
        assert word in printed
    pair.execute_on(1).send_all(["at last"], pair.name, 0, tag="never").wait()
    assert pending.wait() == [["at last"]]
    assert eventually(lambda: not ranks_of(query_status(cluster.namespace), pair)[0]["waits"])


def test_channels_and_locks_are_told_with_who_waits(
    cluster: Cluster, pair: Any, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    channel, notes = Channel.create(unique, maxsize=1), Channel.create(f"{unique}n")
    channel.put(1, key="full")
    holding = pair.execute_on(0).hold_lock(notes, 0)
    holding.wait()
    ports = pair.execute_on(0).ports(1).wait()[0]
    blocked = [
        pair.execute_on(0).get_items(channel, 1, key="empty"),
        pair.execute_on(1).put_items(channel, [2], key="full"),
    ]

    def look() -> tuple[Any, dict[Any, Any]] | None:
        main(["status", cluster.namespace, "--json"])
        status = json.loads(capsys.readouterr().out)
        (told,) = [entry for entry in status["channels"] if entry["name"] == unique]
        keys = {key["key"]: key for key in told["keys"]}
        return (status, keys) if keys.get("'empty'") and keys["'full'"]["putters"] else None

    status, keys = eventually(look)
    assert [getter["who"] for getter in keys["'empty'"]["getters"]] == [f"{pair.name}:0"]
    assert [putter["who"] for putter in keys["'full'"]["putters"]] == [f"{pair.name}:1"]
    assert keys["'full'"]["items"] == 1
    assert {"node": cluster.runtime.node_id, "port": ports[0], "holder": f"{pair.name}:0"} in status["leases"]["ports"]
    assert any("put into channel" in wait["what"] for wait in ranks_of(status, pair)[1]["waits"])
    assert channel.get(key="full") == 1
    channel.put("end", key="empty")
    for call in blocked:
        call.wait()


def test_an_unknown_run_names_those_alive(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=cluster.namespace):
        query_status("nothing")


@pytest.fixture
def second_run(cluster: Cluster) -> Iterator[str]:
    """Let another run stand on the same Ray, as far as its manager tells of it."""
    spec = RunSpec("second00", new_keys(), spans_nodes=False, log_dir=None, experiment_name="walker")
    options = {"name": MANAGER_NAME, "namespace": ray_namespace(spec.namespace)}
    manager = ray.remote(ManagerActor).options(num_cpus=0, max_concurrency=10, **options).remote(spec)
    ray.get(manager.start.remote())
    yield spec.namespace
    ray.kill(manager)


def test_of_two_runs_the_experiments_are_named(
    cluster: Cluster, second_run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status"]) == 1
    told = capsys.readouterr().err
    assert f"{second_run} (walker)" in told
    assert cluster.namespace in told
    assert main(["status", "walkr"]) == 1
    assert "Did you mean 'walker'?" in capsys.readouterr().err


def test_a_run_is_found_by_its_experiment(
    cluster: Cluster, second_run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "walker"]) == 0
    assert f"Run {second_run} (walker)" in capsys.readouterr().out
    assert query_status(cluster.namespace)["experiment_name"] is None


def test_stacks_show_where_a_worker_stands(cluster: Cluster, pair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    busy = pair.execute_on(1).sleep(4)

    def look() -> str | None:
        assert main(["status", cluster.namespace, "--stacks"]) == 0
        printed = capsys.readouterr().out
        return printed if "sleep (sample_workers.py" in printed else None

    assert eventually(look, seconds=3)
    busy.wait()


def test_equal_waits_are_counted() -> None:
    waits = [{"what": "a waits", "since": 90.0}, {"what": "b waits", "since": 60.0}, {"what": "a waits", "since": 30.0}]
    said = summarize({"calls": [], "waits": waits})
    assert said == f"a waits (2 times, since {clock(30.0)}); b waits (since {clock(60.0)})"
    assert summarize({"calls": [], "waits": []}) == "idle"
    assert summarize(None) == "does not answer"
