import os
import signal
import threading

import pytest

from rlinf.utils.signals import Terminated, hear_sigterm


def kill_and_wait():
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(30)


def test_sigterm_interrupts_as_ctrl_c_does_and_is_left_as_it_was():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt) as caught, hear_sigterm():
        kill_and_wait()
    assert caught.type is Terminated
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_leave_the_handler_as_it_is():
    before, heard = signal.getsignal(signal.SIGTERM), []

    def run():
        with hear_sigterm():
            heard.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert heard == [before]
