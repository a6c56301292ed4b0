"""Numbers of messages, as the two sides of a connection count them."""

from collections.abc import Iterator
from typing import Any

import pytest

from rlinf.scheduler.address import WorkerAddress
from rlinf.scheduler.comm import spans
from rlinf.scheduler.comm.spans import MessageTrace, peer_started
from rlinf.telemetry import trace


@pytest.fixture(autouse=True)
def tracer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(spans, "_incarnations", {})
    trace.enable("a:0", 100)
    yield
    trace.disable()


def side(group: str, incarnation: int = 1) -> MessageTrace:
    return MessageTrace(WorkerAddress(group, 0, incarnation))


def sent(messages: MessageTrace, tag: tuple[str, int] | str | int | None, *targets: tuple[str, int | list[int]]) -> Any:
    with messages.sending(tag, *targets):
        pass
    return trace.snapshot().events[-1][7][1]


def received(messages: MessageTrace, group: str, tag: tuple[str, int] | str | int | None, rank: int = 0) -> Any:
    return messages.receiving(group, rank, tag)[2][1]


def test_both_sides_count_the_same_by_tag() -> None:
    a, b = side("a"), side("b")
    for tag in ("x", "y", "x", ("z", 1), "x"):
        assert sent(a, tag, ("b", 0)) == received(b, "a", tag)


def test_messages_differ_by_number_tag_and_receiver() -> None:
    a = side("a")
    keys = [sent(a, tag, ("b", rank)) for tag, rank in (("x", 0), ("x", 0), ("y", 0), ("x", 1))]
    assert len(set(keys)) == 4


def test_a_message_to_many_has_a_key_for_each() -> None:
    a = side("a")
    keys = sent(a, None, ("b", [0, 1]), ("c", 0))
    receivers = [MessageTrace(WorkerAddress(*address)) for address in (("b", 0), ("b", 1), ("c", 0))]
    assert list(keys) == [received(receiver, "a", None)[0] for receiver in receivers]
    assert trace.snapshot().events[-1][6] == {"to": "b:0, b:1, c:0", "tag": None}


def test_a_broadcast_to_nobody_is_no_send() -> None:
    with side("a").sending("x"):
        pass
    assert trace.snapshot().events == []


def test_a_relaunched_peer_counts_from_one_as_it_does_itself() -> None:
    a, b = side("a"), side("b")
    old = sent(a, "x", ("b", 0))
    received(b, "a", "x")
    peer_started(WorkerAddress("b", 0, 2))
    relaunched = MessageTrace(WorkerAddress("b", 0, 2))
    new = sent(a, "x", ("b", 0))
    assert new == received(relaunched, "a", "x")
    assert new != old
    assert received(a, "b", "x") == sent(relaunched, "x", ("a", 0))


def test_tags_that_never_come_back_are_forgotten() -> None:
    a, b = side("a"), side("b")
    for number in range(2 * spans._MAX_STREAMS):
        assert sent(a, number, ("b", 0)) == received(b, "a", number)
        assert sent(a, "hot", ("b", 0)) == received(b, "a", "hot")
    assert len(a._sent) <= spans._MAX_STREAMS


def test_a_tag_of_the_users_own_kind_is_shown_as_text() -> None:
    class Tag:
        def __str__(self) -> str:
            return "mine"

    assert side("a").receiving("b", 0, Tag())[3] == {"from": "b:0", "tag": "mine"}


def test_while_off_nothing_is_counted() -> None:
    a = side("a")
    trace.disable()
    with a.sending("x", ("b", 0)):
        pass
    assert a.receiving("b", 0, "x") is None
