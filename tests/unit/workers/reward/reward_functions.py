"""Functions such as users write."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, NoReturn

from rlinf.data.messages.responses import RewardQuery

not_a_function = 3
running: list[int] = []
most_running: list[int] = []


def length(query: RewardQuery) -> int:
    return len(query.response)


def lengths(queries: list[RewardQuery]) -> list[int]:
    return [len(query.response) for query in queries]


def one_for_all(queries: list[RewardQuery]) -> list[float]:
    return [1.0]


async def slow_length(query: RewardQuery) -> int:
    running.append(1)
    most_running.append(len(running))
    await asyncio.sleep(0.01)
    running.pop()
    return len(query.response)


async def leaves(query: RewardQuery) -> NoReturn:
    raise SystemExit(1)


def mean(query: RewardQuery) -> Any:
    return {"": lambda: 1 / 0, "text": lambda: "no number", "exit": lambda: exit(1)}[query.response]()


def never(query: RewardQuery) -> None:
    threading.Event().wait()
