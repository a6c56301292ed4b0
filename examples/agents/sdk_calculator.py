"""A plain program on the openai package: has the model multiply with a calculator. Nothing here knows of training.

It reads a row such as {"messages": [{"role": "user", "content": "123*456="}]}.
"""

import asyncio
import json
import operator
import re
import sys
from typing import Any

from openai import AsyncOpenAI

MODEL = "policy"
MAX_TURNS = 3
OPERATORS = {"*": operator.mul, "+": operator.add, "-": operator.sub}
CALCULATOR: Any = {
    "type": "function",
    "function": {
        "name": "calc",
        "description": "Evaluates an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "For example 12*34."}},
            "required": ["expression"],
        },
    },
}


def calculate(arguments: str) -> str:
    """Return what the model reads behind its call."""
    try:
        parts = re.fullmatch(r"(\d+)([*+-])(\d+)", json.loads(arguments)["expression"])
    except (ValueError, KeyError, TypeError):
        parts = None
    if parts is None:
        return "Error: expected an expression such as 12*34"
    left, sign, right = parts.groups()
    return str(OPERATORS[sign](int(left), int(right)))


async def converse(client: AsyncOpenAI, messages: list[Any]) -> str:
    """Answer calls of the calculator until a reply has none; return that."""
    for _ in range(MAX_TURNS):
        completion = await client.chat.completions.create(model=MODEL, messages=messages, tools=[CALCULATOR])
        reply = completion.choices[0].message
        if not reply.tool_calls:
            break
        messages.append(reply)
        for call in reply.tool_calls:
            result = calculate(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return reply.content or ""


async def main() -> None:
    """Play one episode, with the server and the key of the environment (OPENAI_BASE_URL, OPENAI_API_KEY)."""
    async with AsyncOpenAI() as client:
        sys.stdout.write(await converse(client, json.load(sys.stdin)["messages"]))


async def play(row: dict[str, Any], *, base_url: str, api_key: str) -> None:
    """Do the same without a process for each episode, which takes longer than a tiny model does."""
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        await converse(client, list(row["messages"]))


if __name__ == "__main__":
    asyncio.run(main())
