"""Streams of chats, responses and completions by the ``openai`` package."""

import json
import sys

from openai import OpenAI

client = OpenAI()
messages = list(json.load(sys.stdin)["messages"])
with client.chat.completions.stream(model="policy", messages=messages) as stream:
    for _ in stream:
        pass
    first = stream.get_final_completion().choices[0].message
again = {"role": "user", "content": "Again."}
response = client.responses.create(
    model="policy", input=[*messages, {"role": "assistant", "content": first.content}, again]
)
with client.responses.stream(model="policy", input=[again], previous_response_id=response.id) as stream:
    for _ in stream:
        pass
    third = stream.get_final_response()
text = "".join(
    chunk.choices[0].text for chunk in client.completions.create(model="policy", prompt="Once upon", stream=True)
)
more = client.completions.create(model="policy", prompt=f"Once upon{text}. And", stop=["."])
json.dump({"said": [first.content, response.output_text, third.output_text, text, more.choices[0].text]}, sys.stdout)
