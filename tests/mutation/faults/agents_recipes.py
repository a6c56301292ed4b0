"""Faults of recipes of agents: which workflows are played, and which keys have no effect then."""

from __future__ import annotations

from tests.mutation.fault import Fault

_CHECKS = "tests/unit/config/checks/test_agent_checks.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, tests, what)


FAULTS: list[Fault] = [
    _fault(
        "config/schema/root.py",
        "return self.agent is not None and self.agent.workflow not in ONE_REQUEST_WORKFLOWS",
        "return self.agent is not None",
        "a request of which an engine does all is played",
        _CHECKS,
    ),
    _fault(
        "config/schema/root.py",
        "turns = self.agent.max_turns if self.agent is not None and self.plays_episodes else 1",
        "turns = self.agent.max_turns if self.agent is not None else 1",
        "one request has the turns of an episode",
        _CHECKS,
    ),
    _fault(
        "config/checks/agent_checks.py",
        "if agent is not None and not check.cfg.plays_episodes:",
        "if False:",
        "keys of episodes are accepted where none is played",
        _CHECKS,
    ),
    _fault(
        "config/checks/language_checks.py",
        'workflow = cfg.agent.workflow if isinstance(cfg.agent, with_chats) else "rlvr"',
        'workflow = "rlvr"',
        "chats are given images that they do not carry",
        "tests/unit/config/checks/test_language_checks.py",
    ),
]
