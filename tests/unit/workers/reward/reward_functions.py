"""Functions such as users write."""

from __future__ import annotations

import asyncio
import threading
from typing import NoReturn

not_a_function = 3
running: list[int] = []
most_running: list[int] = []


def length(query) -> int:
    return len(query.response)


def lengths(queries) -> list[int]:
    return [len(query.response) for query in queries]


def one_for_all(queries) -> list[float]:
    return [1.0]


async def slow_length(query) -> int:
    running.append(1)
    most_running.append(len(running))
    await asyncio.sleep(0.01)
    running.pop()
    return len(query.response)


async def leaves(query) -> NoReturn:
    raise SystemExit(1)


def mean(query):
    return {"": lambda: 1 / 0, "text": lambda: "no number", "exit": lambda: exit(1)}[query.response]()


def never(query) -> None:
    threading.Event().wait()
