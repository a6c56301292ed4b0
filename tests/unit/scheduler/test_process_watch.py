"""Ends of processes are noticed whatever these leave behind, and only of the very process that was meant."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rlinf.scheduler.process_watch import ProcessId, ProcessWatch, own_process

# Forks a child that holds every descriptor, and waits; the child ends when its input does.
PARENT = """
import os, sys
from rlinf.scheduler.process_watch import own_process
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print(*own_process(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join()
    running.close()


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.identity = ProcessId(*map(int, process.stdout.readline().split()))
    yield process
    process.kill()
    process.stdin.close()
    process.stdout.close()
    process.wait()


def watch(loop: asyncio.AbstractEventLoop, process: Any) -> threading.Event:
    ended, watching = threading.Event(), ProcessWatch(loop)
    loop.call_soon_threadsafe(watching.add, process, ended.set)
    # What was called before has been done.
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
    return ended


@pytest.mark.parametrize("signals", [True, False], ids=["pidfd", "without pidfd"])
def test_a_process_ends_although_its_child_lives_and_nobody_waits_for_it(
    loop: asyncio.AbstractEventLoop, parent: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, signals: bool
) -> None:
    if not signals:
        monkeypatch.delattr(os, "pidfd_open")
    ended = watch(loop, parent.identity)
    assert not ended.wait(1.5)
    # It stays a zombie: its parent, this process, does not fetch its exit status.
    parent.kill()
    assert ended.wait(20)


def test_a_process_whose_number_is_another_ones_has_ended(
    loop: asyncio.AbstractEventLoop, parent: subprocess.Popen[str]
) -> None:
    ended = watch(loop, parent.identity._replace(started=parent.identity.started - 1))
    assert ended.wait(20)
    assert parent.poll() is None


def test_one_that_ended_before_it_was_watched_has_ended(
    loop: asyncio.AbstractEventLoop, parent: subprocess.Popen[str]
) -> None:
    parent.kill()
    parent.wait()
    assert watch(loop, parent.identity).wait(20)


def test_the_processes_of_another_container_are_not_watched(
    loop: asyncio.AbstractEventLoop, parent: subprocess.Popen[str]
) -> None:
    ended = watch(loop, parent.identity._replace(namespace=parent.identity.namespace + 1))
    parent.kill()
    assert not ended.wait(3)


def test_a_process_knows_itself_also_under_a_strange_name() -> None:
    name = "a) S (b 1 2"
    code = (
        "import ctypes; from rlinf.scheduler.process_watch import own_process; before = own_process();"
        f"ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0); assert own_process() == before; print(before.pid)"
    )
    made = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    output, _ = made.communicate()
    assert (int(output), made.returncode) == (made.pid, 0)
    assert own_process().pid == os.getpid()
