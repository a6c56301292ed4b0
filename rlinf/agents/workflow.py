"""The contract of workflows: how an episode is played."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowContext:
    """What a workflow may use of the process that it runs in.

    Attributes:
        template: The model's chat template, or the recipe's; None where there is none.
        tools: Those of the recipe; none for workflows without.
    """

    template: ChatTemplate | None
    tools: ToolBox


class RolloutWorkflow(abc.ABC):
    """How an episode is played: one object per process, many episodes at a time, no state between them.

    Args:
        cfg: The ``agent`` section.
        context: What it may use of its process.

    Attributes:
        roles: Who speaks behind a reply of the model: ``user``, ``tool`` or both; empty without chats.
        is_one_request: Whether every episode is one request: those of a group reach their engine in one call.
    """

    roles: ClassVar[tuple[str, ...]] = ()
    is_one_request: ClassVar[bool] = False

    def __init__(self, cfg: Any, context: WorkflowContext) -> None:
        self.cfg, self.context = cfg, context

    @property
    def timeout_seconds(self) -> float | None:
        """Time of an episode; None where it does not begin before a client does."""
        seconds: float = self.cfg.timeout_seconds
        return seconds

    async def close(self) -> None:
        """Called when the run ends: requests that are being served may end, further ones are refused."""
        return

    def check(self) -> None:
        """Check before anything is played that the workflow works with the model's template.

        Raises:
            AgentError: It does not.
        """
        if not self.roles:
            return
        if self.context.template is None:
            raise AgentError(
                "The workflow holds conversations, and the tokenizer has no chat template. Give one as "
                "agent.chat_template: a file in Jinja2."
            )
        self.context.template.check(roles=self.roles, tools=self.context.tools.schemas)

    @abc.abstractmethod
    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> float | None:
        """Play one episode.

        Args:
            engine: Samples and records; belongs to this episode alone.
            data: The row.

        Returns:
            The workflow's own judgement, which rewards read as ``RewardQuery.outcome``; None without one.

        Raises:
            EpisodeLimitError: As the engine raised it: the episode ends there.
            Exception: The episode has failed; it is played anew, and then fails the run. It is never a reward of 0.
        """
