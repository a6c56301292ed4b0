"""Every wait that lasts says who waits for whom."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from sample_workers import Sample

from rlinf.errors import CommTimeoutError
from rlinf.scheduler import Channel, Cluster, WorkerGroup, results
from rlinf.scheduler.comm import work
from rlinf.scheduler.results import wait_all


@pytest.fixture
def pair(launch: Callable[..., Any]) -> WorkerGroup[Any]:
    return launch(Sample.create_group())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(work, "WATCHDOG_SECONDS", 0.2)
    monkeypatch.setattr(results, "GROUP_WATCHDOG_SECONDS", 0.2)
    caplog.set_level(logging.INFO, logger="rlinf")


def test_a_wait_for_a_channel_names_channel_and_key_and_repeats(
    cluster: Cluster, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CommTimeoutError, match=unique):
        Channel.create(unique).get(key=("step", 3), timeout=1)
    said = [line for line in caplog.messages if "Still waiting" in line and unique in line]
    assert len(said) >= 2
    assert "driver waits for channel" in said[0]
    assert "('step', 3)" in said[0]
    assert "since " in said[0]


def test_a_put_into_a_full_channel_says_who_puts(
    cluster: Cluster, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    channel = Channel.create(unique, maxsize=1)
    channel.put(1)
    with pytest.raises(CommTimeoutError):
        channel.put(2, async_op=True).wait(timeout=0.5)
    assert any("driver waits to put into channel" in line and unique in line for line in caplog.messages)


@pytest.mark.parametrize("wait", [lambda call: call.wait(timeout=1.2), lambda call: wait_all(call, timeout=1.2)])
def test_a_call_that_lasts_says_what_its_late_ranks_do(
    pair: Any, caplog: pytest.LogCaptureFixture, wait: Callable[..., Any]
) -> None:
    pending = pair.execute_on(0).recv_all(1, pair.name, 1, tag="late")
    with pytest.raises(CommTimeoutError, match="recv_all"):
        wait(pending)
    said = [line for line in caplog.messages if "recv_all() runs for" in line]
    # Whenever the time has doubled: 0.2, 0.4 and 0.8 s, less what passed while the ranks were asked.
    assert 1 <= len(said) <= 3
    assert f"{pair.name}:0: runs recv_all() since" in said[-1]
    assert f"waits for a message with tag 'late' from {pair.name}:1" in said[-1]
    pair.execute_on(1).send_all([1], pair.name, 0, tag="late").wait()
    assert pending.wait() == [[1]]


def test_a_rank_that_does_not_answer_is_said_to(
    pair: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    monkeypatch.setattr("rlinf.scheduler.run_status.ANSWER_SECONDS", 0.3)
    pid = pair.worker_info_list[1].pid
    pending = pair.execute_on(1).sleep(1)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(CommTimeoutError):
            pending.wait(timeout=1)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert f"{pair.name}:1: does not answer" in caplog.text
    assert pending.wait() == [None]
