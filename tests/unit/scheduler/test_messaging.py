"""What published code passes to ``send``, ``recv`` and ``broadcast``."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from rlinf.scheduler import CollectiveGroupOptions, Worker, messaging


def test_each_option_of_collectives_is_noted_as_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    unused: list[str] = []
    monkeypatch.setattr(messaging, "note_unused", lambda name, why: unused.append(name))
    worker: Any = Worker()
    worker._messenger = MagicMock()
    worker.send(1, "other", 0)
    worker.send(1, "other", 0, options=CollectiveGroupOptions())
    assert not unused
    worker.send(1, "other", 0, options=CollectiveGroupOptions(accel_max_ctas=4, use_ring_broadcast=True))
    worker.recv("other", 0, options=CollectiveGroupOptions(accel_min_ctas=0))
    worker.broadcast(1, options=CollectiveGroupOptions(is_high_priority_stream=True, accel_cluster_size=2))
    assert [name.removeprefix("CollectiveGroupOptions.") for name in unused] == [
        *("accel_max_ctas", "use_ring_broadcast", "accel_min_ctas", "accel_cluster_size", "is_high_priority_stream")
    ]


def test_options_in_the_place_of_a_tag_are_no_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messaging, "note_unused", lambda name, why: None)
    worker: Any = Worker()
    worker._messenger = MagicMock()
    worker.send(1, "other", 0, False, CollectiveGroupOptions(accel_max_ctas=4))
    worker.send(1, "other", 0, False, "tag")
    assert [call.kwargs["tag"] for call in worker._messenger.send.call_args_list] == [None, "tag"]


def test_only_untouched_options_are_empty() -> None:
    assert CollectiveGroupOptions().is_empty_options()
    assert not CollectiveGroupOptions(use_ring_broadcast=True).is_empty_options()
