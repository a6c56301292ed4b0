"""More processes than a queue of connections holds speak for the first time to one that is busy."""

from __future__ import annotations

import os
import random
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chaos_workers import Chaotic

from rlinf.errors import WorkerDiedError
from rlinf.scheduler.comm import local
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder
from tests.chaos.conftest import PROCESS_SECONDS

STRANGERS = 24


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Endpoints of one run whose queues hold two connections."""
    monkeypatch.setattr(local, "_BACKLOG", 1)
    namespace, keys, made = uuid.uuid4().hex[:8], new_keys(), []

    def endpoint() -> Any:
        made.append(Endpoint(namespace=namespace, node_id="n0", keys=keys, listen_ip=None))
        return made[-1]

    yield endpoint
    for entry in made:
        entry.close()
    remove_socket_folder(namespace)


def test_no_first_message_is_lost(crowd: Callable[[], Any], chance: random.Random) -> None:
    server = crowd()
    got, resume = [], threading.Event()
    server.serve("note", lambda call: (got.append(call.args), call.reply(call.args)))
    server.serve("pause", lambda call: (call.reply(), resume.wait(60)))
    clients = [crowd() for _ in range(STRANGERS)]
    clients[0].query(server.info, "pause", timeout=PROCESS_SECONDS)
    order = list(enumerate(clients))
    chance.shuffle(order)
    replies = [client.request(server.info, "note", (number, turn)) for number, client in order for turn in range(3)]
    threading.Timer(chance.uniform(0, 0.5), resume.set).start()
    for reply in replies:
        reply.result(timeout=PROCESS_SECONDS)
    assert sorted(got) == [(number, turn) for number in range(STRANGERS) for turn in range(3)]
    for number in range(STRANGERS):
        assert [turn for sender, turn in got if sender == number] == [0, 1, 2], "in the order of sending"


def test_the_death_of_the_busy_one_ends_all_that_wait_for_its_queue(
    crowd: Callable[[], Any], chance: random.Random
) -> None:
    server = crowd()
    paused, resume = threading.Event(), threading.Event()
    server.serve("pause", lambda call: (paused.set(), resume.wait(60)))
    clients = [crowd() for _ in range(STRANGERS)]
    clients[0].notify(server.info, "pause")
    assert paused.wait(PROCESS_SECONDS)
    waiting = [client.request(server.info, "pause") for client in clients]
    chance.shuffle(clients)
    for client in clients:
        client.peer_died(server.info.uid, WorkerDiedError("gone"))
    for reply in waiting:
        with pytest.raises(WorkerDiedError):
            reply.result(timeout=PROCESS_SECONDS)
    resume.set()


def test_first_messages_to_a_stopped_worker_arrive_once_it_goes_on(
    launch: Callable[..., Any], chance: random.Random
) -> None:
    """The senders have never spoken to it; whether it runs when they do must make no difference."""
    right = launch(Chaotic.create_group(), name="right", first=2)
    left = launch(Chaotic.create_group(), name="left", ranks=2)
    pid = right.worker_info_list[0].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        sending = left.flood("right", 0, 3)
        sending.wait(timeout=PROCESS_SECONDS)
    finally:
        threading.Timer(chance.uniform(0, 0.5), os.kill, (pid, signal.SIGCONT)).start()
    for rank in (0, 1):
        arrays = right.receive("left", rank, 3).wait(timeout=PROCESS_SECONDS)[0]
        assert [array[0] for array in arrays] == [0, 1, 2]
