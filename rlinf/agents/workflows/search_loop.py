"""``workflow: search``: the model searches within one turn of a chat, by Search-R1's tags."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlinf.agents.chat import ToolCall
from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.template import Message
from rlinf.agents.workflow import RolloutWorkflow
from rlinf.config.schema.agent import SearchConfig
from rlinf.data.messages.responses import Prompt

STOPS = ("</search>", "</answer>")
_QUERY = re.compile(r".*<search>(.*?)</search>", re.DOTALL)


@dataclass(slots=True)
class _Transcript:
    messages: list[Message]


class SearchWorkflow(RolloutWorkflow):
    """Puts what is found for ``<search>query</search>`` behind it, as ``<information>...</information>``.

    The model then goes on with the same turn, until it writes ``<answer>...</answer>`` or ends without a search
    (https://arxiv.org/abs/2503.09516, algorithm 1). Unlike there, a turn that ends with neither tag ends the episode.
    """

    cfg: SearchConfig

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> None:
        """See ``RolloutWorkflow``."""
        tokenizer = self.context.tools.tokenizer
        transcript = _Transcript(list(data.messages) or [{"role": "user", "content": data.text}])
        engine.chats.append(transcript)
        token_ids = list(data.token_ids)
        async with self.context.tools.open(data, engine.counts) as tools:
            while True:
                completion = await engine.agenerate(token_ids, stop=STOPS)
                said = str(tokenizer.decode(list(completion.token_ids), skip_special_tokens=True))
                transcript.messages.append({"role": "assistant", "content": said})
                query = read_query(said)
                if query is None:
                    return
                (found,) = await tools.run([self._call(query, len(transcript.messages))])
                transcript.messages.append(found)
                text = f"\n\n<information>{found['content']}</information>\n\n"
                # What was found stays plain text, special tokens included.
                added = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
                token_ids += [*completion.token_ids, *added]

    def _call(self, query: str, number: int) -> ToolCall:
        (name,) = self.cfg.tools
        return ToolCall(id=f"call_{number}", name=name, arguments={"query": query}, error=None, text=query)


def read_query(text: str) -> str | None:
    """Return the query of the search that a text ends with; None without one.

    Args:
        text: What the model wrote up to a stop string; blanks may follow that.
    """
    match = _QUERY.fullmatch(text.rstrip())
    return None if match is None or not match.group(1).strip() else match.group(1).strip()
