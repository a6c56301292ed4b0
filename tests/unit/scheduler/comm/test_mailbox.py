"""Receives end once, keep the order of a sender, and follow its incarnations."""

from collections.abc import Callable
from typing import Any

import pytest

from rlinf.errors import CommTimeoutError, WorkerDiedError
from rlinf.scheduler.comm.mailbox import Mailbox, MessageHeader


@pytest.fixture
def mailbox(make: Callable[..., Any]) -> Mailbox:
    return Mailbox("me:0", make().loop)


def letter(
    sequence: int, tag: object = None, incarnation: int = 1, source: tuple[str, int] = ("env", 0)
) -> MessageHeader:
    return MessageHeader(source, incarnation, sequence, tag)


def test_a_receive_ends_once_with_message_death_or_timeout(mailbox: Mailbox) -> None:
    first = mailbox.receive(("env", 0), None, None)
    mailbox.deliver(letter(0), ["a"])
    assert first.result(timeout=5) == ["a"]
    late = mailbox.receive(("env", 0), "x", 0.05)
    with pytest.raises(CommTimeoutError, match="me:0 has waited since .* with tag 'x' from env:0"):
        late.result(timeout=10)
    waiting = mailbox.receive(("env", 0), None, 30)
    mailbox.source_died(("env", 0), 1, WorkerDiedError("gone"))
    with pytest.raises(WorkerDiedError):
        waiting.result(timeout=5)
    mailbox.deliver(letter(1), ["late"])
    assert mailbox.num_dropped == 1


def test_a_cancelled_receive_takes_no_message(mailbox: Mailbox) -> None:
    mailbox.receive(("env", 0), None, None).cancel()
    mailbox.deliver(letter(0), ["a"])
    assert mailbox.receive(("env", 0), None, None).result(timeout=5) == ["a"]


def test_a_new_incarnation_replaces_the_old(mailbox: Mailbox) -> None:
    mailbox.deliver(letter(0), ["old"])
    mailbox.source_started(("env", 0), 2)
    mailbox.deliver(letter(1), ["older still"])
    mailbox.deliver(letter(0, incarnation=2), ["new"])
    assert mailbox.receive(("env", 0), None, None).result(timeout=5) == ["new"]
    assert mailbox.num_dropped == 2


def test_a_gap_in_the_sequence_is_an_error_not_a_silence(mailbox: Mailbox) -> None:
    waiting = mailbox.receive(("env", 0), None, None)
    mailbox.deliver(letter(2), ["third"])
    with pytest.raises(WorkerDiedError, match="2 messages were lost"):
        waiting.result(timeout=5)
