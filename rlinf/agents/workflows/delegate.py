"""``workflow: delegate``: a main agent hands tasks to sub-agents, which are the same model with tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimitError
from rlinf.agents.tools.base import Tool, ToolResult, ToolSchema, ToolSession, make_schema
from rlinf.agents.tools.toolbox import EpisodeTools, ToolBox
from rlinf.agents.workflow import RolloutWorkflow, WorkflowContext
from rlinf.agents.workflows.tool_loop import call_tools
from rlinf.config.schema.agent import DelegateConfig, ToolConfig
from rlinf.data.messages.responses import Prompt

DELEGATE = "delegate"
"""Name of the main agent's tool."""


class DelegateWorkflow(RolloutWorkflow):
    """Plays the tool loop of a main agent whose one tool starts a sub-agent, which plays a tool loop of its own.

    All turns are those of one episode: they have its reward and advantage, as in WideSeek-R1
    (https://arxiv.org/abs/2602.04634).

    Args:
        cfg: The ``agent`` section.
        context: See ``RolloutWorkflow``; its tools are the sub-agents'.
    """

    cfg: DelegateConfig
    roles: ClassVar[tuple[str, ...]] = ("tool",)

    def __init__(self, cfg: DelegateConfig, context: WorkflowContext) -> None:
        super().__init__(cfg, context)
        self._tool = DelegateTool(
            DELEGATE,
            ToolConfig(
                tool_type=DELEGATE, timeout_seconds=cfg.worker_timeout_seconds, max_result_tokens=cfg.max_result_tokens
            ),
        )

    def check(self) -> None:
        """See ``RolloutWorkflow``: with the tools of either."""
        super().check()
        assert self.context.template is not None
        self.context.template.check(roles=self.roles, tools=[self._tool.schema])

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> None:
        """See ``RolloutWorkflow``."""
        session = DelegateSession(self._tool, self.cfg, self.context.tools, engine)
        tools = EpisodeTools(self.context.tools, {DELEGATE: session}, engine.counts)
        await call_tools(engine.chat(tools=[self._tool.schema]), tools)


class DelegateTool(Tool):
    """What the main agent knows of its sub-agents."""

    runs_at_once = True

    @property
    def schema(self) -> ToolSchema:
        """See ``Tool``."""
        return make_schema(
            self.name,
            "Hands a task to another agent, and returns what it replies. Calls of one turn are worked on at once.",
            task=("string", "All that the other agent has to know."),
        )

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Not used: the session of an episode is called."""
        raise NotImplementedError


class DelegateSession(ToolSession):
    """The sub-agents of an episode.

    Args:
        tool: The main agent's.
        cfg: The ``agent`` section.
        box: The sub-agents' tools.
        engine: The main agent's.
    """

    def __init__(self, tool: Tool, cfg: DelegateConfig, box: ToolBox, engine: EpisodeEngine) -> None:
        super().__init__(tool)
        self._cfg, self._box, self._engine = cfg, box, engine
        self._num_agents = 0

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Have a sub-agent work on a task; a limit that it reaches is an error that the main agent reads."""
        if self._num_agents == self._cfg.max_agents:
            return ToolResult(f"Error: there may be {self._cfg.max_agents} other agents, and all have worked.", True)
        self._num_agents += 1
        engine = self._engine.agent(f"worker.{self._num_agents}", max_turns=self._cfg.worker_turns)
        message = {"role": "user", "content": self._cfg.worker_prompt.replace("{task}", arguments["task"])}
        try:
            async with self._box.open(engine.prompt, engine.counts) as tools:
                reply = await call_tools(engine.chat([message], tools=self._box.schemas), tools)
        except EpisodeLimitError:
            return ToolResult("Error: the other agent has used up its turns or its context.", True)
        return ToolResult(reply.text)
