import os
import signal
import threading
from typing import NoReturn

import pytest

from rlinf.utils.signals import Terminated, hear_interrupts, hold_interrupts


def kill_and_wait(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)
    threading.Event().wait(30)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_sigterm_interrupts_as_ctrl_c_does_and_both_are_left_as_they_were(
    number: signal.Signals, expected: type[KeyboardInterrupt]
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as caught, hear_interrupts():
        kill_and_wait(number)
    assert caught.type is expected
    assert signal.getsignal(number) is before


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with hear_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_the_handler_as_it_is() -> None:
    before, heard = signal.getsignal(signal.SIGTERM), []

    def run() -> None:
        with hear_interrupts(), hold_interrupts():
            heard.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert heard == [before]


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_an_interrupt_that_is_held_comes_at_the_end_of_the_outermost_block(
    number: signal.Signals, expected: type[KeyboardInterrupt]
) -> None:
    done = []

    def work() -> None:
        with hear_interrupts(), hold_interrupts():
            with hold_interrupts():
                os.kill(os.getpid(), number)
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert caught.type is expected
    assert done == ["inner", "outer"]


def test_what_was_held_once_does_not_come_again() -> None:
    with hear_interrupts():
        with pytest.raises(Terminated), hold_interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
        with hold_interrupts():
            pass


def test_an_error_in_the_block_passes_where_no_interrupt_came() -> NoReturn:
    with pytest.raises(ValueError, match="own"), hear_interrupts(), hold_interrupts():
        raise ValueError("own")
