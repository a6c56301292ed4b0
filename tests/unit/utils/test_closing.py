"""Everything is closed, in order, although some fail."""

from __future__ import annotations

import pytest

from rlinf.utils.closing import close_all


def test_all_are_closed_in_order_and_the_last_error_is_raised_with_the_others_as_its_context() -> None:
    closed: list[str] = []

    def fail(error: Exception) -> None:
        closed.append(str(error))
        raise error

    closers = [lambda: fail(ValueError("a")), lambda: closed.append("b"), lambda: fail(KeyError(1)), lambda: None]
    with pytest.raises(KeyError) as caught:
        close_all(closers)
    assert closed == ["a", "b", "1"]
    assert isinstance(caught.value.__context__, ValueError)


def test_nothing_to_close_is_no_error() -> None:
    close_all([])
