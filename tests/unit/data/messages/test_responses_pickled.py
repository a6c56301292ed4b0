"""Prompts reach engines as they are."""

from __future__ import annotations

from rlinf.data.messages.responses import Prompt
from rlinf.scheduler.comm.serialization import decode, encode


def test_a_prompt_is_the_same_after_it_has_been_sent() -> None:
    prompt = Prompt(index=3, token_ids=(5, 1 << 40, 0), text="ab", reference=[1], metadata={"level": 2})
    found = decode([bytes(frame) for frame in encode(prompt)])
    assert found == prompt
    assert (type(found.token_ids), hash(found.token_ids)) == (tuple, hash(prompt.token_ids))
