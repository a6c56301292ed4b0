"""The ``agent`` section of reasoning recipes."""

from __future__ import annotations

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.agent import (
    CalculatorToolConfig,
    McpToolConfig,
    ProgramConfig,
    SearchConfig,
    SessionsConfig,
    ToolsConfig,
)
from rlinf.config.schema.root import ReasoningConfig
from rlinf.errors import ConfigError

TOOLS = "agent={workflow: tools, tools: {sum: {tool_type: calculator}}}"


def parsed(*overrides: str) -> ReasoningConfig:
    cfg = validate_cfg(load_recipe("tiny_retry_grpo", list(overrides)))
    assert isinstance(cfg, ReasoningConfig)
    return cfg


def problem(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parsed(*overrides)
    return str(caught.value)


def test_the_workflow_chooses_the_keys() -> None:
    agent = parsed(TOOLS).agent
    assert isinstance(agent, ToolsConfig)
    assert agent.tools == {"sum": CalculatorToolConfig(tool_type="calculator")}
    assert "agent.respond: not used by workflow=tools (it belongs to workflow=multi_turn" in problem(
        "agent={workflow: tools, respond: x}"
    )
    assert "agent.workflow: unknown workflow 'multiturn'. Did you mean 'multi_turn'?" in problem(
        "agent.workflow=multiturn"
    )
    assert "agent.tools.sum.url: not used by tool_type=calculator" in problem(TOOLS, "+agent.tools.sum.url=x")


@pytest.mark.parametrize("workflow", ["rlvr", "vision_rlvr"])
def test_what_one_request_does_is_not_played(workflow: str) -> None:
    others = ("reward.rewards.right.reward_type=math", "data.max_prompt_length=16")
    cfg = parsed("~agent", f"+agent={{workflow: {workflow}, max_context_tokens: 20}}", *others)
    assert (cfg.plays_episodes, cfg.max_context_tokens, cfg.max_own_tokens) == (False, 20, 8)
    assert parsed().plays_episodes
    unused = (
        "group_name: x",
        "max_turns: 2",
        "timeout_seconds: 5",
        "max_episodes: 3",
        "retries: 0",
        "chat_template: .",
    )
    found = problem("~agent", f"+agent={{workflow: {workflow}, {', '.join(unused)}}}", *others)
    for key in unused:
        assert f"agent.{key.partition(':')[0]}: received" in found
    assert f"not used by workflow={workflow}, whose episode is one request to an engine" in found
    alone = ("~agent", f"+agent={{workflow: {workflow}}}")
    assert f"with agent.workflow={workflow} nothing returns a number" in problem(*alone)
    placed = problem(*alone, *others, "+cluster.component_placement.agent=0")
    assert (
        f"Allowed for task_type=reasoning and agent.workflow={workflow}: actor, rollout, reward. Remove it." in placed
    )
    assert f"with agent.workflow={workflow} an episode has one agent" in problem(
        *alone, *others, "algorithm.credit=agent"
    )


def test_servers_and_searches() -> None:
    agent = parsed("agent={workflow: search, tools: {s: {tool_type: mcp, command: [python, a.py], tools: [b]}}}").agent
    assert isinstance(agent, SearchConfig)
    assert agent.tool_configs == {"s": McpToolConfig(tool_type="mcp", command=["python", "a.py"], tools=["b"])}


def test_sizes_of_episodes() -> None:
    cfg = parsed("agent.max_turns=3", "agent.max_context_tokens=20", "data.max_prompt_length=16")
    assert (cfg.max_context_tokens, cfg.max_sequence_tokens, cfg.max_own_tokens) == (20, 20, 20)
    cfg = parsed("agent.max_turns=3", "agent.max_context_tokens=99")
    assert (cfg.max_own_tokens, cfg.sequence_keys) == (24, "agent.max_context_tokens")
    cfg = parsed("agent.max_context_tokens=null")
    assert (cfg.max_context_tokens, cfg.max_own_tokens) == (24, 24)
    cfg = parsed("~agent", "reward.rewards.right.reward_type=math")
    assert (cfg.max_context_tokens, cfg.max_own_tokens) == (24, 8)
    assert cfg.sequence_keys.startswith("data.max_prompt_length")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["agent.max_context_tokens=16"], "agent.max_context_tokens: received 16; a prompt may have"),
        (["agent={workflow: tools}"], "agent.tools: missing; workflow=tools calls some"),
        (
            ["agent={workflow: tools, tools: {s: {tool_type: retrieval, url: localhost}}}"],
            "agent.tools.s.url: received 'localhost'; allowed: an address",
        ),
        (["agent={workflow: search}"], "agent.tools: missing; workflow=search calls some"),
        (
            ["agent={workflow: search, tools: {a: {tool_type: calculator}, b: {tool_type: calculator}}}"],
            "agent.tools: received a, b; workflow=search has one tool",
        ),
        (
            ["agent={workflow: tools, tools: {s: {tool_type: mcp}}}"],
            "agent.tools.s.command: received neither this nor url; tool_type=mcp has one server",
        ),
        (
            ["agent={workflow: tools, tools: {s: {tool_type: mcp, command: [a], url: 'http://a'}}}"],
            "agent.tools.s.command: received this and url",
        ),
        (
            ["agent={workflow: tools, tools: {s: {tool_type: mcp, url: localhost}}}"],
            "agent.tools.s.url: received 'localhost'; allowed: an address",
        ),
        (
            ["agent={workflow: delegate, worker_prompt: Work., tools: {c: {tool_type: calculator}}}"],
            "agent.worker_prompt: received 'Work.'; it says nothing of the task",
        ),
        (
            ["~agent", "reward.rewards.right.reward_type=math", "+algorithm.credit=agent"],
            "algorithm.credit: received agent; without a section agent an episode has one agent",
        ),
        (["~agent"], "reward.rewards.right.reward_type: received workflow; without a section agent"),
    ],
)
def test_what_cannot_work_is_named(overrides: list[str], expected: str) -> None:
    assert expected in problem(*overrides)


def test_a_program_is_a_command_or_a_function() -> None:
    agent = parsed("agent={workflow: program, command: [a, b]}").agent
    assert isinstance(agent, ProgramConfig)
    assert (agent.command, agent.max_episodes) == (["a", "b"], 16)
    assert "agent.command: received neither this nor agent.function" in problem("agent={workflow: program}")
    both = "agent={workflow: program, command: [a], function: 'a:b'}"
    assert "agent.command: received this and agent.function" in problem(both)


def test_agents_may_be_placed_by_themselves() -> None:
    assert parsed().group_names.keys() == {"actor", "rollout", "reward"}
    alone = "+cluster.component_placement.agent=0"
    assert parsed(alone).group_names["agent"] == "AgentGroup"
    assert "cluster.component_placement.agent: unknown component" in problem(
        alone, "~agent", "reward.rewards.right.reward_type=math"
    )


def test_live_clients_need_neither_prompts_nor_their_length() -> None:
    cfg = validate_cfg(load_recipe("tiny_online_reinpp", ["agent.max_context_tokens=16"]))
    assert isinstance(cfg, ReasoningConfig)
    assert isinstance(cfg.agent, SessionsConfig)
    assert not cfg.data.train_data_paths


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["agent.api_key=''"], "agent.api_key: not possible with agent.workflow=sessions"),
        (["algorithm.adv_type=grpo"], "algorithm.adv_type: not possible"),
        (["algorithm.group_size=2"], "algorithm.group_size: not possible"),
        (["+data.train_data_paths=[a.jsonl]"], "data.train_data_paths: not possible"),
        (["runner.val_check_interval=1"], "runner.val_check_interval: not possible"),
        (["+rollout.enable_offload=true"], "rollout.enable_offload: not possible"),
        (
            ["cluster.cpu_slots_per_node=2", "cluster.component_placement={actor: 0, rollout: 0, reward: 0-1}"],
            "cluster.component_placement: not possible with agent.workflow=sessions: one process serves all",
        ),
    ],
)
def test_what_live_clients_rule_out_is_named(overrides: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe("tiny_online_reinpp", overrides))
    assert expected in str(caught.value)
