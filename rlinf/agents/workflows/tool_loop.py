"""``workflow: tools``: the model calls tools until it replies without a call."""

from __future__ import annotations

from typing import ClassVar

from rlinf.agents.chat import Chat, Reply
from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.tools.toolbox import EpisodeTools
from rlinf.agents.workflow import RolloutWorkflow
from rlinf.data.messages.responses import Prompt


class ToolsWorkflow(RolloutWorkflow):
    """Answers each call with the tool's result; what is wrong with a call is a result too."""

    roles: ClassVar[tuple[str, ...]] = ("tool",)

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> None:
        """See ``RolloutWorkflow``."""
        async with self.context.tools.open(data, engine.counts) as tools:
            await call_tools(engine.chat(tools=self.context.tools.schemas), tools)


async def call_tools(chat: Chat, tools: EpisodeTools) -> Reply:
    """Answer the calls of a conversation until a reply has none; return that.

    Args:
        chat: Opened with the schemas of the tools.
        tools: Those of the episode.
    """
    while (reply := await chat.reply()).tool_calls:
        chat.say(*await tools.run(reply.tool_calls))
    return reply
