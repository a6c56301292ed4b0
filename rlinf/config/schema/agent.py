"""The ``agent`` section: how episodes of language models are played, and the tools that models may call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlinf.config.schema.base import ConfigSection, NonNegativeInt, PositiveFloat, PositiveInt
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class ToolConfig(ConfigSection):
    """Keys of every tool."""

    tool_type: str
    """Registered tool."""
    timeout_seconds: PositiveFloat = 10.0
    """Time of a call; the model reads that it is over."""
    max_result_tokens: PositiveInt = 512
    """Tokens of a result: of a longer one, head and tail are kept."""


@dataclass(frozen=True, kw_only=True)
class CalculatorToolConfig(ToolConfig):
    """``tool_type: calculator``: arithmetic."""


@dataclass(frozen=True, kw_only=True)
class FunctionToolConfig(ToolConfig):
    """``tool_type: function``: a function of yours."""

    function: str
    """Where it is: ``package.module:function``; plain or ``async``, with type hints and a docstring."""


@dataclass(frozen=True, kw_only=True)
class PythonToolConfig(ToolConfig):
    """``tool_type: python``: programs in a sandbox."""

    cpu_seconds: PositiveFloat = 5.0
    """Processor time of a program."""
    memory_bytes: PositiveInt = 512 << 20
    """Memory of a program."""
    max_output_bytes: PositiveInt = 1 << 20
    """Output of a program; one that writes more is ended."""
    max_programs: PositiveInt = 8
    """Programs that run at a time in each process that plays episodes."""


@dataclass(frozen=True, kw_only=True)
class RetrievalToolConfig(ToolConfig):
    """``tool_type: retrieval``: passages from a search service."""

    url: str
    """Address that queries are posted to, for example ``http://127.0.0.1:8000/retrieve``."""
    timeout_seconds: PositiveFloat = 10.0
    """Time of an attempt. A service that does not answer in time at any attempt fails the episode: the model is not to
    blame."""
    top_k: PositiveInt = 3
    """Passages of a result."""
    max_retries: NonNegativeInt = 3
    """Further attempts after one that failed."""


@dataclass(frozen=True, kw_only=True)
class McpToolConfig(ToolConfig):
    """``tool_type: mcp``: the tools of a server of the Model Context Protocol, by their own names."""

    command: list[str] = field(default_factory=list)
    """A program that speaks the protocol over its standard input and output, with its arguments, ``python`` for the
    interpreter of the run; each process that plays episodes starts one."""
    url: str | None = None
    """In place of a command: address of a server over HTTP."""
    tools: list[str] = field(default_factory=list)
    """Those of its tools that the model may call; empty: all."""
    start_seconds: PositiveFloat = 30.0
    """Time for the server to start and to list its tools."""


@dataclass(frozen=True, kw_only=True)
class AgentConfig(ConfigSection):
    """Keys of every workflow."""

    workflow: str
    """Registered workflow."""
    group_name: str = "AgentGroup"
    """Name of the worker group, where ``cluster.component_placement`` places the component ``agent`` by itself; else
    the reward group plays the episodes."""
    max_turns: PositiveInt = 8
    """Completions of an episode."""
    max_context_tokens: PositiveInt | None = None
    """Tokens of an episode; null takes ``data.max_prompt_length`` + ``algorithm.sampling_params.max_new_tokens``, which
    is enough for one turn."""
    timeout_seconds: PositiveFloat = 600.0
    """Time of an episode; one that takes longer ends, and is rewarded as it stands."""
    max_episodes: PositiveInt = 512
    """Episodes that each process plays at a time."""
    retries: NonNegativeInt = 1
    """How often an episode is played anew whose workflow raised, before the run fails."""
    chat_template: str | None = None
    """File of a chat template (Jinja2) that takes the place of the tokenizer's."""

    @property
    def tool_configs(self) -> dict[str, ToolConfig]:
        """The tools that the model may call, by name."""
        return {}

    def required_files(self) -> dict[str, str]:
        """Return the template."""
        return {} if self.chat_template is None else {"chat_template": self.chat_template}


@dataclass(frozen=True, kw_only=True)
class RLVRConfig(AgentConfig):
    """``workflow: rlvr`` (also ``vision_rlvr``): one completion of the prompt and its images, as without a section."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnConfig(AgentConfig):
    """``workflow: multi_turn``: a function of yours responds to each reply."""

    respond: str = "rlinf.agents.workflows.multi_turn:try_again"
    """Where it is: ``package.module:function``; called with the reply and the row, it returns the next message of the
    user, or ends the episode with a number or None. The default ends it with 1 at a reply that is the reference, and
    has the model try again otherwise."""


@dataclass(frozen=True, kw_only=True)
class ToolsConfig(AgentConfig):
    """``workflow: tools``: the model calls tools until it replies without a call."""

    tools: dict[str, ToolConfig] = field(default_factory=dict)
    """Tools by the names under which the model calls them."""

    @property
    def tool_configs(self) -> dict[str, ToolConfig]:
        """See ``AgentConfig``."""
        return self.tools


@dataclass(frozen=True, kw_only=True)
class SearchConfig(ToolsConfig):
    """``workflow: search``: the model searches by Search-R1's tags, with the one tool of ``tools``."""


@dataclass(frozen=True, kw_only=True)
class DelegateConfig(ToolsConfig):
    """``workflow: delegate``: a main agent hands tasks to sub-agents, which are the same model and call ``tools``.

    ``max_turns`` is that of the main agent.
    """

    max_agents: PositiveInt = 8
    """Sub-agents of an episode."""
    worker_turns: PositiveInt = 8
    """Completions of a sub-agent."""
    worker_prompt: str = "{task}"
    """The message that a sub-agent begins with; ``{task}`` is what the main agent has written."""
    worker_timeout_seconds: PositiveFloat = 300.0
    """Time of a sub-agent; the main agent reads that it is over."""
    max_result_tokens: PositiveInt = 512
    """Tokens of a sub-agent's reply that the main agent reads: of a longer one, head and tail are kept."""


@dataclass(frozen=True, kw_only=True)
class ProgramConfig(AgentConfig):
    """``workflow: program``: a program of yours that speaks the OpenAI protocol, once per episode.

    It is given the address of a server and an API key, as ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``; each of its
    requests is a turn.
    """

    command: list[str] = field(default_factory=list)
    """The program and its arguments, ``python`` for the interpreter of the run; it reads the row as one JSON object
    from its standard input."""
    function: str | None = None
    """In place of a command: ``package.module:function``, called with the row, ``base_url`` and ``api_key``; plain or
    ``async``. It may return a number that judges the episode."""
    max_episodes: PositiveInt = 16
    """Episodes, hence programs, that each process plays at a time."""


@dataclass(frozen=True, kw_only=True)
class SessionsConfig(AgentConfig):
    """``workflow: sessions``: live clients of applications that run elsewhere, and say later how good responses were.

    ``max_turns`` and ``max_context_tokens`` are those of a session.
    """

    api_key: str
    """The application's key: the API key of requests that are sessions of one turn each, and what opens others.
    ``${oc.env:NAME}`` takes it from the environment."""
    host: str = "127.0.0.1"
    """Address to listen on; ``0.0.0.0`` for clients on other machines."""
    port: NonNegativeInt = 8300
    """Port to listen on; 0 chooses a free one, which the log names."""
    idle_seconds: PositiveFloat = 900.0
    """Time without a request after which a session ends."""
    feedback_seconds: PositiveFloat = 900.0
    """Time that a session which has ended waits for feedback; without any it is not trained on."""
    max_token_age: NonNegativeInt = 4
    """A session that has ended is trained on if its oldest token was sampled by weights at most this many versions
    before the newest ones that have sampled anything."""


tools: Registry[Any] = Registry("tool", config=ToolConfig)
"""By ``tool_type``; ``rlinf.agents.tools.base.Tool`` is the contract."""
tools.register("calculator", "rlinf.agents.tools.calculator:CalculatorTool", config=CalculatorToolConfig)
tools.register("function", "rlinf.agents.tools.function:FunctionTool", config=FunctionToolConfig)
tools.register("mcp", "rlinf.agents.tools.mcp:McpTool", config=McpToolConfig)
tools.register("python", "rlinf.agents.tools.python:PythonTool", config=PythonToolConfig)
tools.register("retrieval", "rlinf.agents.tools.retrieval:RetrievalTool", config=RetrievalToolConfig)

ONE_REQUEST_WORKFLOWS = frozenset({"rlvr", "vision_rlvr"})
"""Workflows that need not be played: they do what an engine does with the request for a group's responses."""

workflows: Registry[Any] = Registry("workflow", config=AgentConfig)
"""By ``agent.workflow``; ``rlinf.agents.workflow.RolloutWorkflow`` is the contract."""
workflows.register("delegate", "rlinf.agents.workflows.delegate:DelegateWorkflow", config=DelegateConfig)
workflows.register("multi_turn", "rlinf.agents.workflows.multi_turn:MultiTurnWorkflow", config=MultiTurnConfig)
workflows.register("program", "rlinf.agents.workflows.program:ProgramWorkflow", config=ProgramConfig)
workflows.register("rlvr", "rlinf.agents.workflows.rlvr:RLVRWorkflow", config=RLVRConfig)
workflows.register("search", "rlinf.agents.workflows.search_loop:SearchWorkflow", config=SearchConfig)
workflows.register("sessions", "rlinf.agents.workflows.sessions:SessionsWorkflow", config=SessionsConfig)
workflows.register("vision_rlvr", "rlinf.agents.workflows.rlvr:RLVRWorkflow", config=RLVRConfig)
workflows.register("tools", "rlinf.agents.workflows.tool_loop:ToolsWorkflow", config=ToolsConfig)
