"""Agents on smolagents: ``tools`` calls tools, ``code`` writes programs."""

import json
import os
import sys

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool
from smolagents.monitoring import LogLevel


@tool
def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: One number.
        b: The other.
    """
    return a + b


model = OpenAIModel(model_id="policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
kind = {"code": CodeAgent, "tools": ToolCallingAgent}[sys.argv[1]]
agent = kind(tools=[add], model=model, max_steps=4, verbosity_level=LogLevel.OFF)
said = agent.run(json.load(sys.stdin)["messages"][0]["content"])
json.dump({"said": str(said)}, sys.stdout)
