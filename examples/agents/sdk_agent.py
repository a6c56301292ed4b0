"""A plain program on the openai package: has the model try again once if it is wrong. Nothing here knows of training.

It reads a row such as {"messages": [{"role": "user", "content": "12+34="}], "reference": "46"}.
"""

import json
import sys
from typing import Any

from openai import AsyncOpenAI, OpenAI

MODEL = "policy"
AGAIN = {"role": "user", "content": "Wrong. Try again."}


def main() -> None:
    """Play one episode, with the server and the key of the environment (OPENAI_BASE_URL, OPENAI_API_KEY)."""
    row = json.load(sys.stdin)
    client = OpenAI()
    messages = list(row["messages"])
    for _ in range(2):
        reply = client.chat.completions.create(model=MODEL, messages=messages).choices[0].message
        if reply.content == row["reference"]:
            break
        messages += [reply, AGAIN]
    json.dump({"reward": float(reply.content == row["reference"])}, sys.stdout)


async def play(row: dict[str, Any], *, base_url: str, api_key: str) -> float:
    """Do the same without a process for each episode, which takes longer than a tiny model does."""
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        messages = list(row["messages"])
        for _ in range(2):
            completion = await client.chat.completions.create(model=MODEL, messages=messages)
            reply = completion.choices[0].message
            if reply.content == row["reference"]:
                return 1.0
            messages += [reply, AGAIN]
    return 0.0


if __name__ == "__main__":
    main()
