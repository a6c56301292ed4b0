"""A live client on the openai package: asks questions, and says a moment later whether the answers were right.

python examples/agents/online_client.py results/tiny_math/train.jsonl --base-url http://127.0.0.1:8300/v1

It asks until the run has ended. Each line that it prints is the share of right answers among the last 500.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openai import APIConnectionError, AsyncOpenAI, InternalServerError, NotFoundError

MODEL = "policy"
NUM_REPORTED = 500
WAIT_SECONDS = 0.2


class Client:
    """Many users at once, of one application.

    Args:
        base_url: The server's.
        api_key: The application's.
        questions: Rows with ``question`` and ``answer``.
        delay_seconds: Of the feedback, at most.
        chance: Chooses delays; with ``is_random`` also the feedback.
        is_random: Whether the feedback says nothing: the control, which must not learn.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        questions: Iterator[dict[str, Any]],
        *,
        delay_seconds: float,
        chance: random.Random,
        is_random: bool = False,
    ) -> None:
        self.questions, self.delay_seconds, self.chance, self.is_random = questions, delay_seconds, chance, is_random
        self.openai = AsyncOpenAI(base_url=base_url, api_key=api_key)
        self.right: deque[bool] = deque(maxlen=NUM_REPORTED)
        self.num_asked = self.num_untracked = 0

    async def ask(self) -> None:
        """Ask one question, and give feedback on the answer."""
        row = next(self.questions)
        messages: Any = [{"role": "user", "content": row["question"]}]
        completion = await self.openai.chat.completions.create(model=MODEL, messages=messages)
        is_right = completion.choices[0].message.content == row["answer"]
        self.right.append(is_right)
        self.num_asked += 1
        if self.num_asked % NUM_REPORTED == 0:
            self.report(f"{self.num_asked} questions")
        await asyncio.sleep(self.chance.uniform(0, self.delay_seconds))
        value = float(self.chance.random() < 0.5 if self.is_random else is_right)
        body = {"response_id": completion.id, "value": value}
        feedback: Any = await self.openai.post("/feedback", cast_to=object, body=body)
        self.num_untracked += not feedback["is_tracked"]

    async def ask_on(self) -> None:
        """Ask one question after the other until the server has ended."""
        while True:
            try:
                await self.ask()
            except NotFoundError:  # the session has ended meanwhile: its feedback is of no use
                self.num_untracked += 1
            except (APIConnectionError, InternalServerError):
                return

    async def run(self, num_users: int) -> None:
        """Wait for the server, and let users ask until it has ended."""
        while not await self.is_served():
            await asyncio.sleep(WAIT_SECONDS)
        await asyncio.gather(*(self.ask_on() for _ in range(num_users)))
        self.report(f"end after {self.num_asked} questions, {self.num_untracked} not trained on")

    def report(self, when: str) -> None:
        """Print the share of right answers among the last ones."""
        sys.stdout.write(f"{when}: {sum(self.right) / max(len(self.right), 1):.3f}\n")
        sys.stdout.flush()

    async def is_served(self) -> bool:
        """Return whether the server listens."""
        try:
            await self.openai.models.list()
        except APIConnectionError:
            return False
        return True


def main() -> None:
    """Read the command line and ask."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("questions", type=Path, help="JSON lines with question and answer")
    parser.add_argument("--base-url", default=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8300/v1"))
    parser.add_argument("--api-key", default=os.environ.get("AGENT_API_KEY", "tiny"))
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--delay", type=float, default=0.2, help="seconds until the feedback, at most")
    parser.add_argument("--random-feedback", action="store_true", help="a control: the feedback says nothing")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.questions.read_text(encoding="utf-8").splitlines()]
    chance = random.Random(args.seed)
    chance.shuffle(rows)
    client = Client(
        args.base_url,
        args.api_key,
        itertools.cycle(rows),
        delay_seconds=args.delay,
        chance=chance,
        is_random=args.random_feedback,
    )
    asyncio.run(client.run(args.users))


if __name__ == "__main__":
    sys.exit(main())
