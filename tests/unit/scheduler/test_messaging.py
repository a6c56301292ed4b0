"""What published code passes to ``send``, ``recv`` and ``broadcast``."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from rlinf.scheduler import CollectiveGroupOptions, Worker, messaging


def test_options_of_collectives_are_accepted_and_their_uselessness_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    messaging._log_unused_options.cache_clear()
    monkeypatch.setattr(messaging.get_logger("rlinf"), "propagate", True)
    worker: Any = Worker()
    worker._messenger = MagicMock()
    worker.send(1, "other", 0)
    assert not caplog.records
    options = CollectiveGroupOptions(accel_max_ctas=4)
    worker.send(1, "other", 0, options=options)
    worker.recv("other", 0, options=options)
    worker.broadcast(1, options=options)
    # Handlers that other tests left may each have recorded it.
    assert {record.getMessage() for record in caplog.records if "CollectiveGroupOptions" in record.getMessage()} == {
        "CollectiveGroupOptions have no effect: messages travel over shared memory and sockets, not over collectives."
    }
    assert messaging._log_unused_options.cache_info().misses == 1
    assert worker._messenger.send.call_count == 2
