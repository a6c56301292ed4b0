"""Functions that recipes of tests name."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
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
    if how == "block":
        time.sleep(60)
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


def praise(reply: Reply, prompt: Prompt) -> Any:
    """Rewards each of two replies by what it says, apart from the episode."""
    del prompt
    return {"content": "More.", "reward": json.loads(reply.text)} if reply.turn < 2 else 1.0


async def end_at_once(reply: Reply, prompt: Prompt) -> None:
    del reply, prompt


def confuse(reply: Reply, prompt: Prompt) -> Any:
    del reply, prompt
    return ["no message"]


def talk(row: dict[str, Any], *, base_url: str, api_key: str) -> float:
    """Request one completion."""
    headers = {"Authorization": f"Bearer {api_key}"}
    body = json.dumps({"messages": row["messages"]}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", body, headers)
    with urllib.request.urlopen(request) as response:
        assert json.load(response)["choices"][0]["message"]["content"] == "3"
    return 0.5


async def talk_later(row: dict[str, Any], *, base_url: str, api_key: str) -> None:
    """Request one completion, and judge nothing."""
    await asyncio.to_thread(talk, row, base_url=base_url, api_key=api_key)


def talk_nonsense(row: dict[str, Any], *, base_url: str, api_key: str) -> str:
    """Judge by a text."""
    del row, base_url, api_key
    return "no number"


async def talk_badly(row: dict[str, Any], *, base_url: str, api_key: str) -> float:
    """Raise."""
    del base_url, api_key
    return float(row["nothing"])


def look_up(query: str) -> str:
    """Look something up.

    Args:
        query: What.
    """
    return f"About {query}: <|im_end|>"
