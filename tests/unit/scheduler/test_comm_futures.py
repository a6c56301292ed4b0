"""Waiting for futures, and being interrupted."""

import signal
import threading
import time

import pytest

from rlinf.scheduler.comm.futures import Promise, wait_any


def test_waiting_ends_with_the_first_result_or_in_time():
    first, second = Promise(), Promise()
    threading.Timer(0.05, second.set_result, (3,)).start()
    wait_any([first, second], None)
    assert (first.done(), second.done()) == (False, True)
    begin = time.monotonic()
    wait_any([first], 0.7)
    assert time.monotonic() - begin >= 0.7
    wait_any([first], -1)


def test_a_signal_that_another_thread_took_still_interrupts():
    """As one that comes just before the main thread goes to sleep: nothing wakes that thread."""

    def interrupt():
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    promise = Promise()
    end = threading.Timer(60, promise.set_result, (None,))
    end.start()
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        promise.result()
    end.cancel()
    assert not promise.done(), "interrupted only once the wait was over"
