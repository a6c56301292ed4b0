"""An agent on the ``openai`` package."""

import json
import sys

from openai import OpenAI

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}
client = OpenAI()
messages = list(json.load(sys.stdin)["messages"])
while True:
    completion = client.chat.completions.create(model="policy", messages=messages, tools=[ADD], temperature=0.3)
    reply = completion.choices[0].message
    messages.append(reply)
    if not reply.tool_calls:
        break
    for call in reply.tool_calls:
        numbers = json.loads(call.function.arguments)
        result = str(numbers["a"] + numbers["b"])
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
json.dump({"said": reply.content, "reward": 1}, sys.stdout)
