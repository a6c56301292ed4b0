"""What published code passes to ``send``, ``recv`` and ``broadcast``."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from rlinf.scheduler import CollectiveGroupOptions, Worker, messaging


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was logged as having no effect."""
    names: list[str] = []
    monkeypatch.setattr(messaging, "note_unused", lambda name, why: names.append(name))
    return names


@pytest.fixture
def worker() -> Any:
    """One whose messages go nowhere."""
    made: Any = Worker()
    made._messenger = MagicMock()
    return made


def test_options_go_along_with_what_is_sent(worker: Any, unused: list[str]) -> None:
    options = CollectiveGroupOptions(accel_max_ctas=4, is_high_priority_stream=True)
    worker.send(1, "other", 0, options=options)
    worker.send_tensor(torch.ones(2), "other", 0, options=options)
    worker.send(1, "other", 0)
    worker.recv("other", 0, options=options)
    worker.broadcast(1, options=options)
    for call in (worker._messenger.send.call_args_list[0], worker._messenger.send_tensor.call_args):
        assert call.kwargs["options"] is options
    assert worker._messenger.send.call_args.kwargs["options"] is None
    assert not unused


def test_the_option_that_has_no_effect_is_logged(worker: Any, unused: list[str]) -> None:
    worker.broadcast(1, options=CollectiveGroupOptions(use_ring_broadcast=True))
    assert unused == ["CollectiveGroupOptions.use_ring_broadcast"]


def test_options_in_the_place_of_a_tag_are_no_tag(worker: Any, unused: list[str]) -> None:
    options = CollectiveGroupOptions(accel_max_ctas=4)
    worker.send(1, "other", 0, False, options)
    worker.send(1, "other", 0, False, "tag")
    found = [(call.kwargs["tag"], call.kwargs["options"]) for call in worker._messenger.send.call_args_list]
    assert found == [(None, options), ("tag", None)]
    worker.recv("other", 0, False, options)
    assert worker._messenger.recv.call_args.kwargs["tag"] is None


def test_only_untouched_options_are_empty() -> None:
    assert CollectiveGroupOptions().is_empty_options()
    assert not CollectiveGroupOptions(use_ring_broadcast=True).is_empty_options()
