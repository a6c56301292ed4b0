"""``tool_type: retrieval``: passages from a search service that speaks Search-R1's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf.agents.threads import call_in_thread
from rlinf.agents.tools.base import Tool, ToolResult, ToolSchema, make_schema
from rlinf.config.schema.agent import RetrievalToolConfig
from rlinf.errors import AgentError, RewardError
from rlinf.utils.json_service import post_json
from rlinf.utils.urls import mask_url


class RetrievalTool(Tool):
    """Posts ``{"queries": [...], "topk": k, "return_scores": true}`` and reads ``{"result": [[{"document": ...}]]}``.

    A document is text, or has its text as ``contents``: the title in its first line. A service that does not answer
    fails the episode.
    """

    ends_itself = True
    cfg: RetrievalToolConfig

    @property
    def schema(self) -> ToolSchema:
        """See ``Tool``."""
        return make_schema(
            self.name, "Searches for passages about a question.", query=("string", "What to search for.")
        )

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """See ``Tool``."""
        body = {"queries": [arguments["query"]], "topk": self.cfg.top_k, "return_scores": True}
        try:
            reply = await call_in_thread(
                post_json,
                self.cfg.url,
                body,
                timeout_seconds=self.cfg.timeout_seconds,
                max_retries=self.cfg.max_retries,
            )
        except RewardError as error:
            raise AgentError(f"agent.tools.{self.name} (tool_type=retrieval): {error}") from error
        return ToolResult(self._passages(reply))

    def _passages(self, reply: Any) -> str:
        found = reply.get("result") if isinstance(reply, Mapping) else None
        if not (isinstance(found, list) and len(found) == 1 and isinstance(found[0], list)):
            raise AgentError(
                f"agent.tools.{self.name}.url: {mask_url(self.cfg.url)} sent {str(reply)[:200]}; expected "
                '{"result": [[{"document": ...}, ...]]}. Correct the service.'
            )
        texts = [_text(each) for each in found[0]]
        return "\n".join(f"Doc {number}: {text}" for number, text in enumerate(texts, 1)) or "Nothing was found."


def _text(entry: Any) -> str:
    document = entry.get("document", entry) if isinstance(entry, Mapping) else entry
    text = str(document.get("contents", document)) if isinstance(document, Mapping) else str(document)
    title, _, rest = text.partition("\n")
    return f"(Title: {title.strip()}) {rest.strip()}" if rest else text.strip()
