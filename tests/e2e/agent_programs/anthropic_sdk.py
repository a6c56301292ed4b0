"""An agent on the ``anthropic`` package: a turn as a whole, and the following ones as streams."""

import json
import sys
from typing import Any

from anthropic import Anthropic

ADD = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}
client = Anthropic()
messages = list(json.load(sys.stdin)["messages"])
keys: dict[str, Any] = {"model": "policy", "tools": [ADD], "max_tokens": 150}
reply = client.messages.create(messages=messages, **keys)
while reply.stop_reason == "tool_use":
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": str(call.input["a"] + call.input["b"])}
        for call in reply.content
        if call.type == "tool_use"
    ]
    messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
    with client.messages.stream(messages=messages, **keys) as stream:
        reply = stream.get_final_message()
json.dump({"said": reply.content[-1].text, "reward": 1}, sys.stdout)
