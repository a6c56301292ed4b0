"""Whether the ``agent`` section fits the rest of a recipe."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.checks.reward_checks import check_address
from rlinf.config.schema.agent import (
    DelegateConfig,
    McpToolConfig,
    ProgramConfig,
    RetrievalToolConfig,
    SearchConfig,
    SessionsConfig,
    ToolsConfig,
)
from rlinf.config.schema.reward import WorkflowRewardConfig
from rlinf.config.schema.root import ReasoningConfig


def check_context(check: Check[ReasoningConfig]) -> None:
    """The longest prompt leaves room for a token."""
    agent, longest = check.cfg.agent, check.cfg.data.max_prompt_length
    if agent is None or agent.max_context_tokens is None or isinstance(agent, SessionsConfig):
        return
    if agent.max_context_tokens <= longest:
        check.problem(
            "agent.max_context_tokens",
            f"received {agent.max_context_tokens}; a prompt may have data.max_prompt_length {longest} tokens, and the "
            f"episode follows. Set it to {4 * longest}, say.",
        )


def check_tools(check: Check[ReasoningConfig]) -> None:
    """There are tools, and services have addresses."""
    agent = check.cfg.agent
    if isinstance(agent, ToolsConfig) and not agent.tools:
        check.problem(
            "agent.tools",
            f"missing; workflow={agent.workflow} calls some. Write calculator: {{tool_type: calculator}}, say, or "
            "choose another workflow.",
        )
    if isinstance(agent, DelegateConfig) and "{task}" not in agent.worker_prompt:
        check.problem(
            "agent.worker_prompt",
            f"received {agent.worker_prompt!r}; it says nothing of the task. Write {{task}} where the main agent's "
            "words belong.",
        )
    if isinstance(agent, SearchConfig) and len(agent.tools) > 1:
        check.problem(
            "agent.tools",
            f"received {', '.join(agent.tools)}; workflow=search has one tool, which takes a query. Keep one, or "
            "choose workflow=tools.",
        )
    for name, tool in ({} if agent is None else agent.tool_configs).items():
        if isinstance(tool, RetrievalToolConfig):
            check_address(f"agent.tools.{name}.url", tool.url, check)
        if isinstance(tool, McpToolConfig):
            _check_server(check, name, tool)


def _check_server(check: Check[ReasoningConfig], name: str, tool: McpToolConfig) -> None:
    if bool(tool.command) == (tool.url is not None):
        given = "this and url" if tool.command else "neither this nor url"
        check.problem(
            f"agent.tools.{name}.command",
            f"received {given}; tool_type=mcp has one server. Write command: [python, my_server.py], say.",
        )
    elif tool.url is not None:
        check_address(f"agent.tools.{name}.url", tool.url, check)


def check_program(check: Check[ReasoningConfig]) -> None:
    """A program is a command or a function."""
    agent = check.cfg.agent
    if isinstance(agent, ProgramConfig) and bool(agent.command) == (agent.function is not None):
        check.problem(
            "agent.command",
            f"received {'this and agent.function' if agent.command else 'neither this nor agent.function'}; "
            "workflow=program runs one of them. Write command: [python, my_agent.py], say.",
        )


def check_outcomes(check: Check[ReasoningConfig]) -> None:
    """A workflow judges only where there is one."""
    cfg = check.cfg
    for name, term in cfg.reward.rewards.items():
        if isinstance(term, WorkflowRewardConfig) and not cfg.plays_episodes:
            check.problem(
                f"reward.rewards.{name}.reward_type",
                f"received workflow; {_without_episodes(cfg)} nothing returns a number. Choose another workflow, or "
                "reward_type=math, say.",
            )


def check_sessions(check: Check[ReasoningConfig]) -> None:
    """Live clients ask when they like, once each, and are answered at any time."""
    cfg, agent, world = check.cfg, check.cfg.agent, check.world
    if not isinstance(agent, SessionsConfig):
        return
    ranks = world.agent if cfg.places_agent else world.reward
    needed = {
        "agent.api_key": (not agent.api_key, "it keeps strangers out. Write api_key: ${oc.env:AGENT_API_KEY}, say"),
        "algorithm.adv_type": (
            cfg.algorithm.advantage.compares_groups,
            "no two sessions ask the same. Choose adv_type=reinpp, which compares with the whole batch, or gae",
        ),
        "algorithm.group_size": (cfg.algorithm.group_size > 1, "no two sessions ask the same. Set group_size=1"),
        "data.train_data_paths": (bool(cfg.data.train_data_paths), "clients ask. Remove the key"),
        "runner.val_check_interval": (
            cfg.runner.val_check_interval > 0 or cfg.runner.only_eval,
            "nothing evaluates but clients. Set runner.val_check_interval=-1, runner.only_eval=false",
        ),
        "rollout.enable_offload": (cfg.rollout.enable_offload, "clients would wait for the training. Remove the key"),
        "cluster.component_placement": (
            ranks is not None and ranks > 1,
            f"one process serves all clients, and {ranks} are placed. Place reward, or agent by itself, on one",
        ),
    }
    for key, (is_wrong, reason) in needed.items():
        if is_wrong:
            check.problem(key, f"not possible with agent.workflow={agent.workflow}: {reason}.")


def check_credit(check: Check[ReasoningConfig]) -> None:
    """Agents have credit of their own only where there are several."""
    cfg = check.cfg
    if cfg.algorithm.credit != "episode" and not cfg.plays_episodes:
        check.problem(
            "algorithm.credit",
            f"received {cfg.algorithm.credit}; {_without_episodes(cfg)} an episode has one agent. Remove the key, or "
            "set agent.workflow=delegate, say.",
        )


def check_one_request(check: Check[ReasoningConfig]) -> None:
    """What is said of episodes has no effect where an engine's request is all there is."""
    agent = check.cfg.agent
    if agent is not None and not check.cfg.plays_episodes:
        names = ("group_name", "max_turns", "timeout_seconds", "max_episodes", "retries", "chat_template")
        check.unused(agent, names, "agent", f"by workflow={agent.workflow}, whose episode is one request to an engine")


def _without_episodes(cfg: ReasoningConfig) -> str:
    return "without a section agent" if cfg.agent is None else f"with agent.workflow={cfg.agent.workflow}"


RULES = (check_one_request, check_context, check_tools, check_program, check_outcomes, check_sessions, check_credit)
