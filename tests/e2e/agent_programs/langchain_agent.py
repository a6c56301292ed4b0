"""An agent on LangChain."""

import json
import sys

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


model = ChatOpenAI(model="policy").bind_tools([add])
messages = [HumanMessage(json.load(sys.stdin)["messages"][0]["content"])]
while True:
    reply = model.invoke(messages)
    messages.append(reply)
    if not reply.tool_calls:
        break
    messages += [add.invoke(call) for call in reply.tool_calls]
json.dump({"said": reply.content}, sys.stdout)
