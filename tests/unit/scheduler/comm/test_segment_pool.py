"""Shared memory: reused, given back, bounded, and nothing of it left behind."""

import gc
import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from rlinf.errors import ClusterError, WorkerDiedError
from rlinf.scheduler.comm import endpoint, folders, segment_pool
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.segment_pool import SegmentPool, SharedFrame, size_class
from rlinf.scheduler.comm.serialization import decode, encode
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder

KEYS = new_keys()
MB = 1 << 20


@pytest.fixture
def namespace() -> Iterator[str]:
    name = uuid.uuid4().hex[:8]
    yield name
    remove_socket_folder(name)


@pytest.fixture
def make(namespace: str) -> Iterator[Callable[..., Any]]:
    made = []

    def endpoint(**options: Any) -> Any:
        made.append(Endpoint(namespace=namespace, node_id="n0", keys=KEYS, listen_ip=None, **options))
        made[-1].serve("echo", lambda call: call.reply(None, call.frames))
        made[-1].serve("keep", keep)
        made[-1].kept = []
        return made[-1]

    def keep(call: Any) -> None:
        call.endpoint.kept.append(decode(call.frames))
        call.reply()

    yield endpoint
    for entry in made:
        entry.close()


def files(namespace: str) -> list[Any]:
    """Return the names of all segments of a run."""
    found = []
    for base in (folders.SHARED_MEMORY, folders.temporary_base()):
        folder = folders._folder(base, namespace)
        found += [str(path.relative_to(folder)) for path in folder.glob("*.d/*")]
    return sorted(found)


def settle(condition: Callable[[], bool] | Callable[[], Any] | Callable[[], list[Any]]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        gc.collect()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def data(size: int = MB) -> torch.Tensor:
    return torch.arange(size, dtype=torch.uint8)


def test_size_classes_waste_little() -> None:
    for size in (1, 65_536, 65_537, 100_000, MB, MB + 64, 3 * MB + 5, 64 * MB + 64):
        assert size <= size_class(size) <= max(65_536, size * 1.25 + 4096)


def test_segments_are_reused(make: Callable[..., Any], namespace: str) -> None:
    sender, receiver = make(), make()
    for _ in range(20):
        sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
        receiver.kept.clear()
        settle(lambda: (sender.segments.reference_counts.settle(), len(sender.segments.reference_counts) == 0)[1])
    assert len(files(namespace)) == 1


def test_a_new_segment_has_its_pages(namespace: str) -> None:
    pool = SegmentPool(namespace, "p")
    memory = np.frombuffer(pool.reserve(8 * MB), np.uint8)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    memory[:] = 1
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
    assert faults < 8 * MB // mmap.PAGESIZE // 4
    del memory
    pool.close()


def test_releases_that_follow_one_another_wake_the_thread_that_tells_once(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_TELL_SECONDS", 1.0)
    sender, receiver = make(), make()
    woken = []
    wake = receiver.loop.call_soon_threadsafe
    monkeypatch.setattr(receiver.loop, "call_soon_threadsafe", lambda *call: (woken.append(call), wake(*call)))
    for _ in range(2):
        sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
        receiver.kept.clear()
        settle(lambda: (sender.segments.reference_counts.settle(), len(sender.segments.reference_counts) == 0)[1])
    assert len(woken) == 1


def test_a_segment_comes_back_when_the_last_array_over_it_dies(make: Callable[..., Any]) -> None:
    sender, receiver = make(), make()
    item = {"a": data(), "b": np.ones(100_000), "small": torch.ones(3)}
    sender.request(receiver.info, "keep", (), encode(item)).result(timeout=20)
    view = receiver.kept.pop()["a"][5:10]
    sender.segments.reference_counts.settle()
    assert len(sender.segments.reference_counts) == 1, "a view of one tensor keeps the block"
    time.sleep(0.05)
    assert len(sender.segments.reference_counts) == 1
    assert view.tolist() == [5, 6, 7, 8, 9]
    del view
    settle(lambda: (sender.segments.reference_counts.settle(), len(sender.segments.reference_counts) == 0)[1])


def test_what_a_receiver_keeps_is_not_overwritten(make: Callable[..., Any]) -> None:
    sender, receiver = make(), make()
    for value in range(10):
        item = torch.full((MB,), value, dtype=torch.uint8)
        sender.request(receiver.info, "keep", (), encode(item)).result(timeout=20)
    assert [int(item.unique()) for item in receiver.kept] == list(range(10))


def test_what_a_receiver_wrote_does_not_hide_the_next_message(make: Callable[..., Any], namespace: str) -> None:
    sender, receiver = make(), make()
    for value in range(6):
        item = torch.full((MB,), value, dtype=torch.uint8)
        sender.request(receiver.info, "keep", (), encode(item)).result(timeout=20)
        got = receiver.kept.pop()
        assert int(got.unique()) == value
        if value % 2:
            got[value * 1000] = 77
        del got
        settle(lambda: (sender.segments.reference_counts.settle(), len(sender.segments.reference_counts) == 0)[1])
    assert len(files(namespace)) == 1


def test_only_mappings_that_nobody_wrote_to_are_used_again(make: Callable[..., Any]) -> None:
    sender, receiver = make(), make()
    places = []
    for value in range(4):
        sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
        got = receiver.kept.pop()
        places.append(got.data_ptr())
        if value == 1:
            got[0] = 1
            spacer = mmap.mmap(-1, MB)  # takes the range of addresses that is about to be free
        del got
        settle(lambda: (sender.segments.reference_counts.settle(), len(sender.segments.reference_counts) == 0)[1])
    assert places[0] == places[1]
    assert places[2] == places[3]
    spacer.close()


def test_a_kernel_that_cannot_tell_what_was_written_maps_anew(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(segment_pool, "_PAGEMAP", str(tmp_path / "missing"))
    sender, receiver = make(), make()
    for value in range(6):
        item = torch.full((MB,), value, dtype=torch.uint8)
        sender.request(receiver.info, "keep", (), encode(item)).result(timeout=20)
        received = receiver.kept.pop()
        assert received.unique().tolist() == [value]
        received.fill_(99)
        del received
        settle(lambda: (sender.segments.reference_counts.settle(), len(sender.segments.reference_counts) == 0)[1])


def test_unused_mappings_are_bounded(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_pool, "_IDLE_MAPPED_BYTES", 3 * MB)
    sender, receiver = make(), make()
    for _ in range(8):
        sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
    receiver.kept.clear()
    settle(lambda: (sender.segments.reference_counts.settle(), len(sender.segments.reference_counts) == 0)[1])
    assert receiver._mappings._idle_bytes <= 3 * MB
    sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
    assert torch.equal(receiver.kept[0], data())


def test_many_receivers_share_one_copy(make: Callable[..., Any], namespace: str) -> None:
    sender, receivers = make(), [make() for _ in range(4)]
    frames = sender.share(encode(data()))
    assert isinstance(frames[1], SharedFrame)
    for receiver in receivers:
        sender.request(receiver.info, "keep", (), frames).result(timeout=20)
    del frames
    assert len(files(namespace)) == 1
    for receiver in receivers:
        assert torch.equal(receiver.kept[0], data())
        assert len(sender.segments.reference_counts) == 1
        receiver.kept.clear()
    settle(lambda: (sender.segments.reference_counts.settle(), len(sender.segments.reference_counts) == 0)[1])


def test_the_death_of_a_receiver_gives_back_what_it_held(make: Callable[..., Any]) -> None:
    sender, receiver = make(), make()
    sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
    sender.segments.reference_counts.settle()
    assert len(sender.segments.reference_counts) == 1
    sender.peer_died(receiver.info.uid, WorkerDiedError("gone"))
    assert len(sender.segments.reference_counts) == 0
    assert torch.equal(receiver.kept[0], data()), "should it live after all, it has its mapping"


def test_what_was_received_outlives_its_sender(make: Callable[..., Any], namespace: str) -> None:
    sender, receiver = make(), make()
    sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
    receiver.peer_died(sender.info.uid, WorkerDiedError("gone"))
    assert files(namespace) == []
    assert torch.equal(receiver.kept[0], data())


def test_what_a_relay_keeps_outlives_its_producer(make: Callable[..., Any], namespace: str) -> None:
    producer, relay, consumer = make(), make(), make()
    relay.keep_shared()
    queued = []
    relay.serve("put", lambda call: (queued.append(call.frames), call.reply()))
    producer.request(relay.info, "put", (), encode(data())).result(timeout=20)
    for process in (relay, consumer):
        process.peer_died(producer.info.uid, WorkerDiedError("gone"))
    assert len(files(namespace)) == 1, "only the relay's name of it is left"
    relay.request(consumer.info, "keep", (), queued.pop()).result(timeout=20)
    assert torch.equal(consumer.kept[0], data())
    consumer.kept.clear()
    settle(lambda: (relay.segments.reference_counts.settle(), not files(namespace))[1])


def test_a_relay_tells_the_producer_when_its_item_is_done(make: Callable[..., Any]) -> None:
    producer, relay, consumer = make(), make(), make()
    relay.keep_shared()
    relay.serve("pass", lambda call: (relay.notify(consumer.info, "keep", (), call.frames), call.reply()))
    for _ in range(5):
        producer.request(relay.info, "pass", (), encode(data())).result(timeout=20)
        settle(lambda: consumer.kept)
        consumer.kept.clear()
        settle(lambda: (producer.segments.reference_counts.settle(), len(producer.segments.reference_counts) == 0)[1])


def test_little_shared_memory_is_left_alone(
    make: Callable[..., Any], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_pool, "shared_memory_bytes", lambda: 64 * MB)
    sender, receiver = make(), make()
    sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
    assert torch.equal(receiver.kept[0], data())
    assert not folders._folder(folders.SHARED_MEMORY, namespace).exists()
    assert len(files(namespace)) == 1


def test_a_full_file_system_is_no_error(
    make: Callable[..., Any], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment_pool.os, "posix_fallocate", full)
    sender, receiver = make(), make()
    sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
    assert torch.equal(receiver.kept[0], data())
    assert files(namespace) == []


def test_a_pool_is_bounded(namespace: str) -> None:
    pool = SegmentPool(namespace, "me")
    pool.write([memoryview(bytes(10))])
    pool._limit_bytes = 4 * MB
    held = [pool.write([memoryview(bytes(MB))]) for _ in range(6)]
    assert sum(entry is not None for entry in held) == 4, "the fifth would exceed the limit"
    held.clear()
    assert pool.write([memoryview(bytes(3 * MB))]) is not None, "idle segments make room for another size"
    pool.close()
    assert files(namespace) == []


def test_as_much_stays_idle_as_was_reserved_at_a_time(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_pool, "_IDLE_BYTES", 2 * MB)
    pool = SegmentPool(namespace, "me")
    written = [pool.write([memoryview(bytes(MB))]) for _ in range(4)]
    written.clear()
    pool.reference_counts.settle()
    assert len(files(namespace)) == 2
    known: set[str] = set()
    for _ in range(3):
        reserved = [pool.reserve(MB) for _ in range(5)]
        known.update(files(namespace))
        reserved.clear()
        pool.reference_counts.settle()
        assert len(files(namespace)) == 5
    assert len(known) == 5
    assert pool._idle_limit_bytes == 5 * MB
    pool.close()


def test_reserved_memory_is_sent_as_it_is_and_free_again_once_nobody_looks(
    make: Callable[..., Any], namespace: str
) -> None:
    sender, receivers = make(), (make(), make())
    message = torch.frombuffer(sender.reserve(MB), dtype=torch.uint8)
    message.copy_(torch.arange(MB) % 251)
    for receiver in receivers:
        sender.request(receiver.info, "keep", (), encode([message[: MB // 2], data()])).result(timeout=20)
    for receiver in receivers:
        first, second = receiver.kept[0]
        assert torch.equal(first, message[: MB // 2])
        assert torch.equal(second, data())
    num_files = len(files(namespace))
    del message
    other = torch.frombuffer(sender.reserve(MB), dtype=torch.uint8)
    assert len(files(namespace)) == num_files + 1, "receivers still look at the first"
    del first, second, other
    for receiver in receivers:
        receiver.kept.clear()
    settle(lambda: (sender.segments.reference_counts.settle(), len(sender.segments.reference_counts) == 0)[1])
    sender.reserve(MB)
    assert len(files(namespace)) == num_files + 1, "the segments serve again"


def test_no_room_to_reserve_is_no_error(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment_pool.os, "posix_fallocate", full)
    assert make().reserve(MB) is None


def test_a_message_whose_memory_is_gone_says_so(make: Callable[..., Any], namespace: str) -> None:
    sender, receiver = make(), make()
    arrived = []
    receiver.serve("data", lambda call: (arrived.append(call.frames), call.reply()))
    frames = sender.share(encode(data()))
    shutil.rmtree(folders.segments_folder(folders.SHARED_MEMORY, namespace, sender.info.uid))
    with pytest.raises(ClusterError, match="cannot be read"):
        sender.request(receiver.info, "data", (), frames).result(timeout=20)
    assert arrived == []
    sender.notify(receiver.info, "data", (), frames)
    settle(lambda: arrived)
    with pytest.raises(ClusterError, match="cannot be read"):
        decode(arrived[0])


def test_forks_do_not_give_back_what_their_parent_holds(make: Callable[..., Any]) -> None:
    sender, receiver = make(), make()
    sender.request(receiver.info, "keep", (), encode(data())).result(timeout=20)
    child = os.fork()
    if not child:
        receiver.kept.clear()
        os._exit(0)
    os.waitpid(child, 0)
    sender.segments.reference_counts.settle()
    time.sleep(0.05)
    assert len(sender.segments.reference_counts) == 1
    assert torch.equal(receiver.kept[0], data())


VICTIM = """
import sys, time, torch
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.serialization import encode
from rlinf.scheduler.comm.transport import new_keys
endpoint = Endpoint(namespace=sys.argv[1], node_id="n0", keys=new_keys(), listen_ip=None)
endpoint.share(encode(torch.zeros(1_000_000)))
print("ready", flush=True)
time.sleep(600)
"""


def test_the_next_run_removes_what_a_killed_one_has_left(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__)))))
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, namespace], stdout=subprocess.PIPE, cwd=root)
    assert victim.stdout.readline() == b"ready\n"
    monkeypatch.setattr(folders, "_SWEEP_AGE_SECONDS", -1.0)
    folders._sweep(folders.SHARED_MEMORY)
    assert files(namespace), "a live run is left alone"
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    folders._sweep(folders.SHARED_MEMORY)
    assert not folders._folder(folders.SHARED_MEMORY, namespace).exists()
