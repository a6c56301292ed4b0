"""Faults of credit: which part of an episode of several agents has which advantage, and how much it counts."""

from __future__ import annotations

from tests.mutation.fault import Fault

_COLUMNS = "tests/unit/data/test_credit_columns.py"
_CREDIT = "tests/unit/workers/actor/test_agent_credit.py"
_SAMPLES = "tests/unit/workers/actor/test_text_samples.py"
_GROUPS = "tests/unit/agents/test_episode_groups.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, tests, what)


FAULTS: list[Fault] = [
    # Rewards of turns
    _fault(
        "agents/episode_groups.py",
        "if has_branches or has_agents or has_rewards else ()",
        "if has_branches or has_agents else ()",
        "rewards of an only branch have no turns",
        _GROUPS,
    ),
    _fault(
        "agents/episode_engine.py",
        "        self._last_turn = call.number\n",
        "        self._last_turn = self._num_turns - 1\n",
        "the turn of another agent is rewarded",
        "tests/unit/agents/test_episode_engine.py",
    ),
    _fault(
        "agents/recorder.py",
        "self._rewards[number] += value",
        "self._rewards[number] = value",
        "a second reward of a turn replaces the first",
        "tests/unit/agents/test_episode_engine.py",
    ),
    _fault(
        "agents/recorder.py",
        "        if not math.isfinite(value):\n",
        "        if False:\n",
        "a turn is rewarded with NaN",
        "tests/unit/agents/test_episode_engine.py",
    ),
    _fault(
        "agents/workflows/multi_turn.py",
        'message.pop("reward", None)',
        'message.get("reward")',
        "the template is given a reward",
        "tests/unit/agents/workflows/test_multi_turn.py",
    ),
    _fault(
        "data/credit_columns.py",
        "start + stop - 1 for _, stop",
        "start + stop - 1 for stop, _",
        "a turn's reward lies before it",
        _COLUMNS,
    ),
    _fault(
        "data/credit_columns.py",
        "[start + stop - 1 for",
        "[stop - 1 for",
        "rewards of turns lie in the first episode",
        _COLUMNS,
    ),
    _fault(
        "workers/actor/text_samples.py",
        "outcomes = torch.tensor([batch.responses[number].outcome for",
        "outcomes = torch.tensor([batch.responses[number].reward for",
        "rewards of turns count twice",
        _SAMPLES,
    ),
    _fault(
        "workers/actor/text_samples.py",
        "outcomes if turns is None else outcomes + torch.stack([own.sum() for own in turns])",
        "outcomes",
        "groups whose turns make the difference are left out",
        _SAMPLES,
    ),
    _fault(
        "telemetry/responses.py",
        "for reward in group.outcomes or group.rewards)",
        "for reward in group.rewards)",
        "rewards of turns make responses correct",
        "tests/unit/telemetry/test_responses.py",
    ),
    _fault(
        "workers/reward/reward_worker.py",
        "math.fsum((self.total(scores), *response.turn_rewards))",
        "self.total(scores)",
        "rewards of turns are no part of the total",
        "tests/unit/workers/reward/test_reward_worker.py",
    ),
    _fault(
        "data/credit_columns.py",
        'roles.append(agent.partition(".")[0])',
        "roles.append(agent)",
        "each sub-agent is compared with those of its number",
        _COLUMNS,
        _CREDIT,
    ),
    _fault(
        "data/credit_columns.py",
        'roles.append(agent.partition(".")[0])',
        'roles.append("")',
        "sub-agents are compared with main agents",
        _COLUMNS,
        _CREDIT,
    ),
    _fault(
        "data/credit_columns.py",
        "groups = [batch.responses[number].group_id for number in self.episodes]",
        "groups = [0 for _ in self.episodes]",
        "units of all groups are compared",
        _COLUMNS,
        _CREDIT,
    ),
    _fault(
        "data/credit_columns.py",
        "strict=True) if mask[where].any()]",
        "strict=True)]",
        "an agent that is left out takes a share of its episode's weight",
        _COLUMNS,
        _CREDIT,
    ),
    _fault(
        "data/credit_columns.py",
        "1.0 / max(units[number], 1)",
        "1.0",
        "an episode counts once for each of its agents",
        _COLUMNS,
        _CREDIT,
    ),
    _fault(
        "data/credit_columns.py",
        "spans.setdefault(agent, []).append(torch.arange(start, stop))",
        "spans.setdefault(agent or str(start), []).append(torch.arange(start, stop))",
        "each turn of a main agent is a unit: baselines count turns",
        _COLUMNS,
        _CREDIT,
    ),
    _fault(
        "data/credit_columns.py",
        "agents = response.turn_agents if by_agent else ()",
        "agents = response.turn_agents",
        "agents have credit of their own, whatever the recipe says",
        _CREDIT,
    ),
    _fault(
        "workers/actor/text_samples.py",
        'units = CreditColumns.of(batch, by_agent=algorithm.credit != "episode")',
        "units = columns",
        "agents that share an advantage are one sequence",
        _CREDIT,
    ),
    _fault(
        "workers/actor/text_samples.py",
        'columns = CreditColumns.of(batch, by_agent=algorithm.credit == "agent")',
        'columns = CreditColumns.of(batch, by_agent=algorithm.credit != "episode")',
        "agents that share credit have advantages of their own",
        _CREDIT,
    ),
    _fault(
        "workers/actor/text_samples.py",
        "sequence_ids=batch.local_sequence_ids,",
        "sequence_ids=batch.local_episode_ids,",
        "means over tokens are those of episodes",
        _CREDIT,
    ),
    _fault(
        "workers/actor/text_samples.py",
        "return len(set(self.episode_ids)) or len(self.responses)",
        "return len(self.responses)",
        "an episode takes an optimizer step for each of its branches",
        _CREDIT,
        _SAMPLES,
    ),
    _fault(
        "algorithms/aggregation.py",
        "if sequence_weights is not None:",
        "if False:",
        "weights of sequences have no effect",
        _CREDIT,
    ),
    _fault(
        "algorithms/aggregation.py",
        """        return masked_sum(loss, mask) / max(denominators.num_valid_tokens, 1) * scale
    if sequence_weights is not None:
        loss = loss * sequence_weights
""",
        """        weighted = loss if sequence_weights is None else loss * sequence_weights
        return masked_sum(weighted, mask) / max(denominators.num_valid_tokens, 1) * scale
    if sequence_weights is not None:
        loss = loss * sequence_weights
""",
        "means over tokens are weighted",
        _CREDIT,
    ),
    _fault(
        "algorithms/sequences.py",
        "return mask & (firsts[sequence_ids] == places)",
        "return mask & (firsts[0] == places)",
        "a metric of sequences counts the first one alone",
        "tests/unit/algorithms/test_sequences.py",
    ),
    _fault(
        "agents/episode_groups.py",
        "if has_branches or has_agents or has_rewards else ()",
        "if has_branches or has_rewards else ()",
        "agents that share a branch have no turns",
        _GROUPS,
    ),
    _fault(
        "agents/episode_groups.py",
        "key=lambda turn: turn.number)",
        "key=lambda turn: 0)",
        "agents come in the order of branches",
        _GROUPS,
    ),
    _fault(
        "workers/actor/step_dump.py",
        'for name in ("turn_agents", "turn_rewards")}',
        'for name in ("turn_rewards",)} | {"turn_agents": ()}',
        "a dumped step forgets agents",
        "tests/unit/workers/actor/test_step_dump.py",
    ),
    _fault(
        "config/checks/agent_checks.py",
        'if cfg.algorithm.credit != "episode" and not cfg.plays_episodes:',
        "if False:",
        "credit of agents without agents is accepted",
        "tests/unit/config/checks/test_agent_checks.py",
    ),
]
