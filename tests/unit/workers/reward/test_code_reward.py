"""Programs that are judged by running them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlinf.algorithms.rewards import get_reward_class
from rlinf.config.schema.reward import CodeRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError
from rlinf.utils.sandbox import Sandbox
from rlinf.workers.reward import code_reward

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
PAIRS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}


def query(program: str, reference: list[str] | dict[str, Any] | None) -> RewardQuery:
    return RewardQuery(prompt="", response=f"So:\n```python\n{program}\n```", reference=reference)


@pytest.fixture(scope="module")
def judge() -> Iterator[Callable[..., Any]]:
    made = []

    def make(*queries: RewardQuery, **keys: str | float) -> Any:
        made.append(get_reward_class("code")(CodeRewardConfig(**{"reward_type": "code", **keys})))
        return made[-1](queries)

    yield make
    for reward in made:
        reward.close()


def test_programs_earn_by_the_tests_they_pass(judge: Callable[..., Any]) -> None:
    function, method = (
        "def f(a, b):\n    return (a, b)",
        "class Solution:\n    def f(self, a, b):\n        return [a, b]",
    )
    calls = {"fn_name": "f", "inputs": [[1, 2], [3, 4]], "outputs": [[1, 2], [3, 4]]}
    queries = [
        query(ADD, PAIRS),
        query(ADD.replace("+", "-"), PAIRS),
        query("print(3)", PAIRS),
        query(function, calls),
        query("print('noise')\n" + method, calls),
        query(function, ["assert f(1, 2) == (1, 2)", "assert f(1, 2)[0] == 2"]),
        query(function, {"test": "def check(c):\n    assert c(1, 2) == (1, 2)", "entry_point": "f"}),
        query("def f(a, b): return [a, b] if a == 1 else exit()", calls),
        query("no python", calls),
        RewardQuery(prompt="", response="no program", reference=calls),
    ]
    assert judge(*queries, score="fraction") == [1.0, 0.0, 0.5, 1.0, 1.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    right, half = judge(queries[0], queries[2], correct_reward=2.0, incorrect_reward=-1.0)
    assert (right, half) == (2.0, -1.0)


def test_a_program_that_only_ends_well_has_passed_nothing(judge: Callable[..., Any]) -> None:
    """Leaving before the asserts run, or printing that all is well, earns nothing."""
    asserts = ["assert f() == 1"]
    programs = ["raise SystemExit(0)", "import os; os._exit(0)", 'print(\'{"test": 0, "value": null}\')']
    assert judge(*[query(program, asserts) for program in programs]) == [0.0, 0.0, 0.0]


def test_references_without_tests_and_programs_beyond_bounds(judge: Callable[..., Any]) -> None:
    with pytest.raises(RewardError, match="holds no tests"):
        judge(query(ADD, None))
    assert judge(query(ADD, PAIRS), max_program_chars=10) == [0.0]
    assert judge(query("print(3)", PAIRS), max_tests=1) == [1.0]
    assert judge(query("print('3' + ' ' * 5000)", PAIRS), max_tests=1, max_output_bytes=1000) == [0.0]


def test_without_isolation_nothing_runs_unless_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Isolation is made impossible by a mount point that does not exist."""
    plan = Sandbox._plan

    def broken(self: object, work: Path, cpu_seconds: float) -> dict[str, Any]:
        return plan(self, work, cpu_seconds) | {"root": "/nonexistent"}

    monkeypatch.setattr(Sandbox, "_plan", broken)
    with pytest.raises(RewardError, match=r"mount.*No such file.*user namespaces.*allow_unsandboxed: true"):
        code_reward.CodeReward(CodeRewardConfig(reward_type="code"))
    reward = code_reward.CodeReward(CodeRewardConfig(reward_type="code", allow_unsandboxed=True))
    mark = tmp_path / "mark"
    assert reward([query(ADD + f"open({str(mark)!r}, 'w')", PAIRS)]) == [1.0]
    assert mark.exists()
    reward.close()


def test_each_reward_says_why_a_program_failed(judge: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    calls = {"fn_name": "f", "inputs": [[1]], "outputs": [[1]]}
    programs = {
        "timeouts": query("while True: pass", PAIRS),
        "memory_exceeded": query("held = bytearray(2 << 30)", PAIRS),
        "output_exceeded": query("print('x' * 5000)", PAIRS),
        "wrong": query("print(5)", PAIRS),
        "memory_exceeded in a call": query("def f(x): return len(bytearray(2 << 30))", calls),
        "wrong in a call": query("def f(x): return 2", calls),
        "": query(ADD, PAIRS),
        " no program": RewardQuery(prompt="", response="none", reference=PAIRS),
    }
    rewards = judge(*programs.values(), timeout_seconds=1.0, max_output_bytes=1000)
    failures = [{name for name, value in reward.metrics.items() if value} for reward in rewards]
    assert failures == [{name.partition(" ")[0]} - {""} for name in programs]
    assert set(rewards[0].metrics) >= {"timeouts", "memory_exceeded", "output_exceeded", "processes_exceeded", "wrong"}


def test_programs_that_often_exceed_limits_are_logged(
    judge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(code_reward, "_WATCHED_PROGRAMS", 4)
    monkeypatch.setattr(code_reward._log, "propagate", True)
    failing, right = query("print('x' * 5000)", PAIRS), query(ADD, PAIRS)
    judge(*[right] * 4, max_output_bytes=1000, max_programs=1)
    assert caplog.text == ""
    judge(failing, right, right, right, max_output_bytes=1000, max_programs=1)
    assert "last 4 programs" in caplog.text
    assert "output_exceeded 1" in caplog.text
