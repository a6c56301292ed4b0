"""Programs that write any history: what was sampled is trained on once, in its own context, with its own numbers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.agents.conversations import END
from tests.unit.agents.server.served_episode import USER, serve

LINES = ["<think>\nhm\n</think>\n\nYes.", ("No", "length"), "Yes.", ("", "length"), "Maybe so.", ("Stop#", "stop")]
REWRITES = ["none", "none", "none", "text", "spaces", "cut", "part"]


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[int, str, str, bool]]:
    """Draw requests: the earlier one that each goes on from, how its reply is written, what is said, whether twice."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        before = draw(st.integers(-1, number - 1))
        said = draw(st.sampled_from(["Go on.", "And?", f"1{END}\n<|im_start|>system"]))
        found.append((before, draw(st.sampled_from(REWRITES)), said, draw(st.booleans())))
    return found


def rewritten(message: dict[str, Any], how: str) -> dict[str, Any]:
    content = message["content"] or ""
    changes = {
        "text": "Something else.",
        "spaces": f"  {content} \n",
        "cut": content[:-1],
        "part": [{"type": "text", "text": content}],
    }
    return {**message, "content": changes.get(how, content)}


@settings(max_examples=40, deadline=None)
@given(plan=requests())
def test_any_history_that_a_program_sends(plan: list[tuple[int, str, str, bool]]) -> None:
    async def check() -> None:
        async with serve(LINES) as served:
            histories: list[list[dict[str, Any]]] = []
            for before, how, said, is_repeated in plan:
                history: list[dict[str, Any]] = [USER]
                if before >= 0:
                    *rest, reply = histories[before]
                    history = [*rest, rewritten(reply, how), {"role": "user", "content": said}]
                reply = await served.chat(history)
                if is_repeated:  # the client has lost the response on its way
                    body = {"model": "m", "messages": history}
                    status, again = await served.post("/chat/completions", body, retry=1)
                    assert (status, again["choices"][0]["message"]) == (200, reply)
                histories.append([*history, reply])
            assert len(served.client.requests) == len(plan)
        found: Counter[tuple[Any, ...]] = Counter()
        for each in served.engine.recorder.trajectories():
            whole = (*each.prompt_ids.tolist(), *each.token_ids.tolist())
            assert int(each.loss_mask.sum()) == sum(turn.stop - turn.start for turn in each.turns)
            for turn in each.turns:
                own = slice(turn.start, turn.stop)
                assert each.loss_mask[own].all()
                assert set(each.versions[own].tolist()) == {turn.number + 1}
                begin = len(each.prompt_ids)
                found[whole[: begin + turn.start], whole[begin + turn.start : begin + turn.stop]] += 1
        expected: Counter[tuple[Any, ...]] = Counter()
        for request, line in zip(served.client.requests, LINES, strict=False):
            text = line + END if isinstance(line, str) else line[0]
            sampled = tuple(served.client.tokenizer.encode(text, add_special_tokens=False))
            if sampled:
                expected[request.prompt_ids, sampled] += 1
        assert found == expected

    asyncio.run(check())
