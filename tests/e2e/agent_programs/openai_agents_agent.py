"""An agent on the OpenAI Agents SDK, which speaks the protocol of responses."""

import json
import sys

from agents import Agent, Runner, function_tool, set_tracing_disabled


@function_tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


set_tracing_disabled(True)
agent = Agent(name="adder", instructions="Add.", model="policy", tools=[add])
result = Runner.run_sync(agent, json.load(sys.stdin)["messages"][0]["content"])
json.dump({"said": result.final_output}, sys.stdout)
