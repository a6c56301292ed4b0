"""What the holder of channels keeps, and for how long: messages come by hand, without a cluster."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from rlinf.errors import WorkerDiedError
from rlinf.scheduler.channel.host import ChannelHost
from rlinf.scheduler.channel.queue import ChannelQueue

CHANNEL = "channel-1"


def queues() -> list[ChannelQueue]:
    return [each for each in gc.get_objects() if isinstance(each, ChannelQueue)]


class Host:
    """A ``ChannelHost`` that is sent messages, and what it answered."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[Any], Any]] = {}
        runtime = Mock()
        runtime.endpoint.serve = self.handlers.__setitem__
        self.host = ChannelHost(runtime)
        others = weakref.WeakSet(queues())
        self.send("channel_create", CHANNEL, "c", 0)
        (self._queue,) = (weakref.ref(each) for each in queues() if each not in others)

    @property
    def has_queue(self) -> bool:
        gc.collect()
        return self._queue() is not None

    def send(self, operation: str, *args: Any, sender: str = "w", request: int = 0, frames: Any = ()) -> Mock:
        call = Mock(args=args, request_id=request, frames=list(frames))
        call.sender.uid = sender
        self.handlers[operation](call)
        return call

    def put(self, frame: bytes, request: int) -> None:
        self.send("channel_put", CHANNEL, "key", 1.0, True, sender="producer", request=request, frames=[frame])

    def get(self, request: int, *, sender: str, taken: tuple[int, ...] = ()) -> list[bytes]:
        call = self.send("channel_get", CHANNEL, "key", None, True, None, taken, sender=sender, request=request)
        return call.reply.call_args.args[1] if call.reply.called else []


@pytest.fixture
def host() -> Host:
    return Host()


def test_a_closed_channel_is_forgotten_once_it_is_empty() -> None:
    host = Host()
    host.put(b"one", 1)
    host.send("channel_open", CHANNEL, sender="consumer")
    host.send("channel_close", CHANNEL)
    assert host.get(1, sender="consumer") == [b"one"]
    assert host.has_queue, "what was granted may come back"
    host.send("channel_ack", CHANNEL, [1], sender="consumer")
    assert not host.has_queue


def test_an_empty_channel_is_forgotten_when_it_is_closed() -> None:
    host = Host()
    assert host.has_queue
    host.send("channel_close", CHANNEL)
    assert not host.has_queue


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_a_consumer_that_dies_gives_back_only_what_it_has_not_taken(host: Host, is_acknowledged: bool) -> None:
    host.put(b"one", 1)
    host.put(b"two", 2)
    assert host.get(1, sender="first") == [b"one"]
    assert host.get(2, sender="first", taken=(1,) if is_acknowledged else ()) == [b"two"]
    host.handlers["died"](Mock(args=(None, "first", WorkerDiedError("gone"), False)))
    given = [host.get(request, sender="second") for request in (1, 2)]
    assert given == ([[b"two"], []] if is_acknowledged else [[b"one"], [b"two"]])
