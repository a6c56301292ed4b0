"""Functions that recipes of tests name."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from rlinf.agents.chat import Reply
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError

NO_FUNCTION = 3


def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


async def add_later(a: int) -> int:
    """Adds one, later.

    Args:
        a: A number.
    """
    await asyncio.sleep(0)
    return a + 1


def undescribed(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - a function without hints
    return a


def behave(how: str) -> str:
    """Behaves badly.

    Args:
        how: In which way.
    """
    if how == "sleep":
        time.sleep(60)
    if how == "raise":
        raise ValueError("of my own")
    if how == "exit":
        sys.exit(3)
    if how == "service":
        raise AgentError("the service is away")
    return "x" * 100_000_000 if how == "write" else how


async def behave_later(how: str) -> str:
    """Behaves badly, in a coroutine.

    Args:
        how: In which way.
    """
    while how == "stay":
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            break
    if how == "exit":
        sys.exit(3)
    return how


def guess(reply: Reply, prompt: Prompt) -> Any:
    """Responds to guesses of a number."""
    if reply.text == str(prompt.reference):
        return 1.0
    return "higher" if int(reply.text) < prompt.reference else {"content": "lower"}


async def end_at_once(reply: Reply, prompt: Prompt) -> None:
    del reply, prompt


def confuse(reply: Reply, prompt: Prompt) -> Any:
    del reply, prompt
    return ["no message"]
