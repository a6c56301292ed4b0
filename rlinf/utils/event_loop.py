"""Event loops of workers: uvloop's where it is installed, whose turns cost less than those of asyncio's own."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that does not run yet."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
