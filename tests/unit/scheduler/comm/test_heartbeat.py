"""A node whose processes fall silent without closing their connections is noticed; one that is only busy is not."""

import contextlib
import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from rlinf.scheduler.comm import heartbeat as heartbeat_module
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.heartbeat import Heartbeat
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder

KEYS = new_keys()
CHILD = """
import ctypes, pickle, sys
from rlinf.scheduler.comm.endpoint import Endpoint
options = pickle.load(sys.stdin.buffer)
endpoint = Endpoint(listen_ip="127.0.0.1", **options)
# Computes for long without releasing Python's lock.
endpoint.serve("compute", lambda call: ctypes.PyDLL(None).sleep(call.args[0]))
sys.stdout.buffer.write(pickle.dumps(endpoint.info)); sys.stdout.buffer.close()
sys.stdin.read()
"""


@pytest.fixture
def run() -> Iterator[tuple[Endpoint, Heartbeat, Callable[..., tuple[subprocess.Popen[bytes], Any]], Future[Any]]]:
    """A manager's endpoint, a way to start processes of other nodes, and the heartbeat between them."""
    namespace = uuid.uuid4().hex[:8]
    endpoint = Endpoint(namespace=namespace, node_id="here", keys=KEYS, listen_ip="127.0.0.1")
    children, silent = [], Future()

    def start(node_id: str) -> tuple[subprocess.Popen[bytes], Any]:
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        children.append(child)
        pickle.dump({"namespace": namespace, "node_id": node_id, "keys": KEYS}, child.stdin)
        child.stdin.flush()
        return child, pickle.load(child.stdout)

    heartbeat = Heartbeat(endpoint.loop, node_id="here", keys=KEYS, on_silence=silent.set_result)
    yield endpoint, heartbeat, start, silent
    endpoint.loop.call_soon_threadsafe(heartbeat.close)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGCONT)
        child.kill()
        child.communicate()
    endpoint.close()
    remove_socket_folder(namespace)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_INTERVAL_SECONDS", "_TIMEOUT_SECONDS", "_GRACE_SECONDS"):
        monkeypatch.setattr(heartbeat_module, name, 0.3)


def watch(endpoint: Endpoint, heartbeat: Heartbeat, *processes: Any) -> None:
    """Watch processes and wait until each is connected."""
    for process in processes:
        endpoint.loop.call_soon_threadsafe(heartbeat.watch, process)

    def is_connected() -> bool:
        links = [link for links in heartbeat._links.values() for link in links.values()]
        return len(links) == len(processes) and all(link.is_up for link in links)

    wait_until(endpoint, is_connected)


def wait_until(endpoint: Endpoint, condition: Callable[[], bool]) -> None:
    done = Future()

    def look() -> None:
        if condition():
            done.set_result(None)
        else:
            endpoint.loop.call_later(0.02, look)

    endpoint.loop.call_soon_threadsafe(look)
    done.result(timeout=20)


def test_a_node_that_falls_silent_is_noticed_once_nothing_on_it_answers(
    run: tuple[Endpoint, Heartbeat, Callable[..., tuple[subprocess.Popen[bytes], Any]], Future[Any]],
) -> None:
    endpoint, heartbeat, start, silent = run
    (first, first_info), (second, second_info), (_, other_info) = start("there"), start("there"), start("elsewhere")
    watch(endpoint, heartbeat, first_info, second_info, other_info)
    os.kill(first.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        silent.result(timeout=2)
    os.kill(second.pid, signal.SIGSTOP)
    assert silent.result(timeout=20) == "there"


def test_a_busy_process_is_not_silent(
    run: tuple[Endpoint, Heartbeat, Callable[..., tuple[subprocess.Popen[bytes], Any]], Future[Any]],
) -> None:
    endpoint, heartbeat, start, silent = run
    _, info = start("there")
    watch(endpoint, heartbeat, info)
    endpoint.notify(info, "compute", (4,))
    with pytest.raises(TimeoutError):
        silent.result(timeout=3)


def test_a_process_that_left_in_good_order_is_forgotten(
    run: tuple[Endpoint, Heartbeat, Callable[..., tuple[subprocess.Popen[bytes], Any]], Future[Any]],
) -> None:
    endpoint, heartbeat, start, silent = run
    child, info = start("there")
    watch(endpoint, heartbeat, info)
    endpoint.loop.call_soon_threadsafe(heartbeat.forget, info.uid)
    child.kill()
    with pytest.raises(TimeoutError):
        silent.result(timeout=2)


def test_this_node_and_processes_that_do_not_listen_are_not_watched(
    run: tuple[Endpoint, Heartbeat, Callable[..., tuple[subprocess.Popen[bytes], Any]], Future[Any]],
) -> None:
    endpoint, heartbeat, _, _ = run
    watch(endpoint, heartbeat)
    endpoint.loop.call_soon_threadsafe(heartbeat.watch, endpoint.info)
    wait_until(endpoint, lambda: not heartbeat._links)


def test_a_few_processes_of_a_node_are_watched_and_others_take_their_places(
    run: tuple[Endpoint, Heartbeat, Callable[..., tuple[subprocess.Popen[bytes], Any]], Future[Any]],
) -> None:
    endpoint, heartbeat, start, _ = run
    _, info = start("there")
    # As many processes as on a large node; only their addresses are needed.
    many = [dataclasses.replace(info, uid=f"{info.uid}-{number}") for number in range(8)]

    def watched() -> set[str]:
        return set(heartbeat._links["there"])

    for process in many:
        endpoint.loop.call_soon_threadsafe(heartbeat.watch, process)
    wait_until(endpoint, lambda: len(heartbeat._processes["there"]) == 8)
    assert watched() == {process.uid for process in many[: heartbeat_module._LINKS_PER_NODE]}
    endpoint.loop.call_soon_threadsafe(heartbeat.forget, many[0].uid)
    wait_until(endpoint, lambda: many[0].uid not in heartbeat._processes["there"])
    assert watched() == {process.uid for process in many[1 : heartbeat_module._LINKS_PER_NODE + 1]}
