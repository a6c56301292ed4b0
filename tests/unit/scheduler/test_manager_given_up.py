"""A process that was declared dead and lives: it gets and gives nothing any more, and ends when it hears of it."""

import pickle
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlinf.errors import ClusterError, WorkerDiedError
from rlinf.scheduler.address import RunSpec, WorkerAddress, WorkerIdentity
from rlinf.scheduler.channel.host import ChannelHost
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.folders import SHARED_MEMORY, remove_process, segments_folder
from rlinf.scheduler.comm.serialization import decode, encode
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder
from rlinf.scheduler.manager import Manager
from rlinf.scheduler.runtime import Runtime

# Takes part in a run, and waits.
MEMBER = """
import pickle, sys, threading
from rlinf.scheduler.runtime import Runtime
runtime = Runtime(**pickle.load(sys.stdin.buffer))
runtime.join()
print(runtime.endpoint.info.uid, flush=True)
threading.Event().wait()
"""
LARGE = np.arange(1 << 20, dtype=np.uint8)


class Run:
    """A manager, and workers of one group, without Ray.

    Args:
        spans_nodes: Whether workers are on another node than the manager.
    """

    def __init__(self, spans_nodes: bool) -> None:
        self.runtimes, self.processes = [], []
        self.spec = RunSpec(uuid.uuid4().hex[:8], new_keys(), spans_nodes, None)
        self.node_id = "there" if spans_nodes else "here"
        runtime = self.start("here", None)
        self.hosts_asked = []
        self.manager = Manager(runtime, self.hosts_asked.append)
        self.loop = runtime.endpoint.loop
        self.spec = replace(self.spec, manager=runtime.endpoint.info)

    def start(self, node_id: str, identity: WorkerIdentity | None) -> Any:
        self.runtimes.append(Runtime(**self.arguments(node_id, identity)))
        return self.runtimes[-1]

    def arguments(self, node_id: str, identity: WorkerIdentity) -> dict[str, Any]:
        return {"spec": self.spec, "node_id": node_id, "node_ip": "127.0.0.1", "identity": identity}

    def identity(self, rank: int) -> WorkerIdentity:
        return WorkerIdentity(WorkerAddress("g", rank, 1), world_size=2, node_rank=0, environment={})

    def member(self, rank: int) -> Any:
        """Start a worker in this process."""
        runtime = self.start(self.node_id, self.identity(rank))
        runtime.join()
        return runtime

    def member_process(self, rank: int) -> subprocess.Popen[bytes]:
        """Start a worker in a process of its own."""
        process = subprocess.Popen([sys.executable, "-c", MEMBER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        process.stdin.write(pickle.dumps(self.arguments(self.node_id, self.identity(rank))))
        process.stdin.close()
        assert process.stdout.readline()
        return process

    def on_manager(
        self,
        function: Callable[[WorkerAddress, str | None], None] | Callable[[], None],
        *args: WorkerAddress | str | None,
    ) -> None:
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (function(*args), done.set()))
        assert done.wait(20)

    def give_up(self, rank: int) -> None:
        self.on_manager(self.manager.worker_gone, WorkerAddress("g", rank, 1), "it was out of reach.")

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.stdout.close()
            process.wait()
        self.on_manager(self.manager._heartbeat.close)
        for runtime in self.runtimes:
            runtime.close()
        remove_socket_folder(self.spec.namespace)


@pytest.fixture(params=[False, True], ids=["same node", "other node"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    made = Run(request.param)
    made.runtimes[0].spec = made.spec
    first = made.start("here", None)
    assert first.query("group_begin", "g", 2) == 1
    yield made
    made.close()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_process_that_was_given_up_ends_when_it_hears_of_it(run: Run, is_stopped: bool) -> None:
    process = run.member_process(0)
    if is_stopped:
        process.send_signal(signal.SIGSTOP)
    run.give_up(0)
    process.send_signal(signal.SIGCONT)
    assert process.wait(30) == 1


def test_a_process_whose_work_has_ended_is_left_to_its_group(run: Run) -> None:
    process = run.member_process(0)
    other = run.member(1)
    message = other.receive(("g", 0), None, None)
    run.on_manager(run.manager.worker_gone, WorkerAddress("g", 0, 1), None)
    with pytest.raises(WorkerDiedError):
        message.result(20)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)


def test_a_lock_is_not_granted_to_a_process_that_was_given_up(run: Run) -> None:
    # It does not hear of its end, as where the news are on their way.
    zombie, other = run.member(0), run.member(1)
    zombie.endpoint.serve("died", lambda call: None)
    run.give_up(0)
    late = zombie.request("lock", ("slot", "n", 0))
    other.query("lock", ("slot", "n", 0), timeout=20)
    assert not late.done()


def test_a_channel_host_refuses_what_a_process_that_was_given_up_puts(run: Run) -> None:
    zombie, host = run.start("here", None), run.start("here", None)
    ChannelHost(host)
    zombie.endpoint.query(host.endpoint.info, "channel_create", "c", "c", 0, timeout=20)
    zombie.endpoint.request(host.endpoint.info, "channel_put", ("c", "k", 1, True), encode(1)).result(20)
    gone = WorkerDiedError("gone", group="g", rank=0)
    run.runtimes[0].endpoint.notify(host.endpoint.info, "died", (None, zombie.endpoint.info.uid, gone, False))
    size = run.runtimes[0].endpoint
    assert size.query(host.endpoint.info, "channel_size", "c", "k", timeout=20) == 1
    zombie.endpoint.request(host.endpoint.info, "channel_put", ("c", "k", 1, True), encode(2))
    with pytest.raises(TimeoutError):
        zombie.endpoint.query(host.endpoint.info, "channel_size", "c", "k", timeout=1)
    assert size.query(host.endpoint.info, "channel_size", "c", "k", timeout=20) == 1


@pytest.fixture
def pair() -> Iterator[tuple[str, Endpoint, Endpoint, list[Any], threading.Semaphore]]:
    """A sender of large messages, and a receiver that keeps them."""
    namespace, keys = uuid.uuid4().hex[:8], new_keys()
    sender, receiver = (Endpoint(namespace=namespace, node_id="n", keys=keys, listen_ip=None) for _ in range(2))
    messages = []
    arrived = threading.Semaphore(0)
    receiver.serve("data", lambda call: (messages.append(call.frames), arrived.release()))
    yield namespace, sender, receiver, messages, arrived
    sender.close()
    receiver.close()
    remove_socket_folder(namespace)


def send_and_lose(namespace: str, sender: Endpoint, receiver: Endpoint, arrived: threading.Semaphore) -> None:
    """Send a message whose memory another process, which has heard of the death, removes before it is read."""
    with receiver._transport._dispatching:  # the receiver is busy
        sender.notify(receiver.info, "data", (), encode(LARGE))
        remove_process(namespace, sender.info.uid)
    assert arrived.acquire(timeout=20)


@pytest.mark.parametrize("is_known", [True, False], ids=["the death is known", "the news are on their way"])
def test_an_unreadable_message_is_the_death_of_its_sender(
    pair: tuple[str, Endpoint, Endpoint, list[Any], threading.Semaphore], is_known: bool
) -> None:
    namespace, sender, receiver, messages, arrived = pair
    send_and_lose(namespace, sender, receiver, arrived)
    error = WorkerDiedError("g:0 is gone", group="g", rank=0)
    news = threading.Timer(0 if is_known else 0.5, receiver.peer_died, (sender.info.uid, error))
    news.start()
    if is_known:
        news.join()
    with pytest.raises(WorkerDiedError, match="g:0 is gone"):
        decode(messages[0])
    with pytest.raises(WorkerDiedError, match="g:0 is gone"):
        list(messages[0])
    news.join()


def test_an_unreadable_message_of_a_sender_that_lives_says_why(
    pair: tuple[str, Endpoint, Endpoint, list[Any], threading.Semaphore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlinf.scheduler.comm.endpoint._NEWS_SECONDS", 0.1)
    namespace, sender, receiver, messages, arrived = pair
    send_and_lose(namespace, sender, receiver, arrived)
    with pytest.raises(ClusterError, match="cannot be read: .*No such file"):
        decode(messages[0])


def test_an_unreadable_put_is_refused_and_not_stored(run: Run) -> None:
    here = run.runtimes[0]
    producer, host = run.start("here", None), run.start("here", None)
    ChannelHost(host)
    here.endpoint.query(host.endpoint.info, "channel_create", "c", "c", 0, timeout=20)
    with host.endpoint._transport._dispatching:
        put = producer.endpoint.request(host.endpoint.info, "channel_put", ("c", "k", 1, True), encode(LARGE))
        # Not its socket: it lives, and gets the host's answer.
        shutil.rmtree(segments_folder(SHARED_MEMORY, run.spec.namespace, producer.endpoint.info.uid))
    with pytest.raises(ClusterError, match="cannot be read"):
        put.result(timeout=20)
    assert here.endpoint.query(host.endpoint.info, "channel_size", "c", "k", timeout=20) == 0


@pytest.mark.parametrize("says_farewell", [True, False])
def test_the_last_words_to_another_node_arrive_where_they_are_to(says_farewell: bool) -> None:
    namespace, keys, heard = uuid.uuid4().hex[:8], new_keys(), threading.Event()
    here, there = (Endpoint(namespace=namespace, node_id=node, keys=keys, listen_ip="127.0.0.1") for node in "ab")
    there.serve("last", lambda call: heard.set())
    if says_farewell:
        here.say_farewell()
    # The connection is not made yet: what is sent waits for it.
    here.notify(there.info, "last")
    here.peer_died(there.info.uid, WorkerDiedError("gone"))
    assert heard.wait(20 if says_farewell else 2) is says_farewell
    here.close()
    there.close()
    remove_socket_folder(namespace)
