"""Published names of keyword arguments, and arguments without effect."""
# Published keywords are not in the signatures.
# mypy: disable-error-code="call-arg, call-overload"

from __future__ import annotations

import logging

import pytest

from rlinf.utils import published
from rlinf.utils.published import note_unused, published_keywords


@published_keywords(object="obj", ranks="rank")
def send(obj: int, rank: int = 0, *, last: int = 0) -> tuple[int, int, int]:
    return obj, rank, last


def test_both_names_of_an_argument_reach_it() -> None:
    assert send(1, 2, last=3) == send(object=1, ranks=2, last=3) == send(obj=1, ranks=2, last=3) == (1, 2, 3)
    assert send.__name__ == "send"


@pytest.mark.parametrize("call", [lambda: send(obj=1, object=2), lambda: send(1, object=2)])
def test_an_argument_that_is_given_twice_is_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(TypeError, match=r"send\(\) got .*obj"):
        call()


def test_an_argument_without_effect_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    note_unused.cache_clear()
    monkeypatch.setattr(published.get_logger("rlinf"), "propagate", True)
    for argument in ("f(a=)", "f(b=)", "f(a=)"):
        note_unused(argument, "nothing reads it")
    messages = [(record.levelno, record.getMessage()) for record in caplog.records]
    # Handlers that other tests left may each have recorded it.
    assert list(dict.fromkeys(messages)) == [
        (logging.WARNING, "f(a=) has no effect: nothing reads it."),
        (logging.WARNING, "f(b=) has no effect: nothing reads it."),
    ]
    assert note_unused.cache_info().misses == 2
