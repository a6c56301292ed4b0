"""The event loop of workers: uvloop's where it is installed, and asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
import sys

import pytest

from rlinf.utils.event_loop import new_event_loop


async def _answer() -> int:
    await asyncio.sleep(0)
    return 42


@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_loops_of_either_kind_run_what_they_are_given(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setitem(sys.modules, "uvloop", None)  # an import fails as if it were not installed
    loop = new_event_loop()
    try:
        assert type(loop).__module__.partition(".")[0] == kind
        assert not loop.is_running()
        assert loop.run_until_complete(_answer()) == 42
    finally:
        loop.close()
