"""Programs that are judged by running them."""

from __future__ import annotations

import pytest

from rlinf.algorithms.rewards import get_reward_class
from rlinf.config.schema.text_reward import CodeRewardConfig
from rlinf.data.answers import RewardQuery
from rlinf.errors import RewardError
from rlinf.workers.reward import code_reward
from rlinf.workers.reward.sandbox import Sandbox

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
PAIRS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}


def query(program, reference):
    return RewardQuery(prompt="", response=f"So:\n```python\n{program}\n```", reference=reference)


@pytest.fixture(scope="module")
def judge():
    made = []

    def make(*queries, **keys):
        made.append(get_reward_class("code")(CodeRewardConfig(**{"reward_type": "code", **keys})))
        return made[-1](queries)

    yield make
    for reward in made:
        reward.close()


def test_programs_earn_by_the_tests_they_pass(judge):
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


def test_a_program_that_only_ends_well_has_passed_nothing(judge):
    """Leaving before the asserts run, or printing that all is well, earns nothing."""
    asserts = ["assert f() == 1"]
    programs = ["raise SystemExit(0)", "import os; os._exit(0)", 'print(\'{"test": 0, "value": null}\')']
    assert judge(*[query(program, asserts) for program in programs]) == [0.0, 0.0, 0.0]


def test_references_without_tests_and_programs_beyond_bounds(judge):
    with pytest.raises(RewardError, match="holds no tests"):
        judge(query(ADD, None))
    assert judge(query(ADD, PAIRS), max_program_chars=10) == [0.0]
    assert judge(query("print(3)", PAIRS), max_tests=1) == [1.0]
    assert judge(query("print('3' + ' ' * 5000)", PAIRS), max_tests=1, max_output_bytes=1000) == [0.0]


def test_without_isolation_nothing_runs_unless_told_so(monkeypatch, tmp_path):
    """Isolation is made impossible by a mount point that does not exist."""
    make = Sandbox.__init__

    def broken(self, limits, *, isolate=True):
        make(self, limits, isolate=isolate)
        if isolate:
            self.close()

    monkeypatch.setattr(Sandbox, "__init__", broken)
    with pytest.raises(RewardError, match=r"mount.*No such file.*user namespaces.*allow_unsandboxed: true"):
        code_reward.CodeReward(CodeRewardConfig(reward_type="code"))
    reward = code_reward.CodeReward(CodeRewardConfig(reward_type="code", allow_unsandboxed=True))
    mark = tmp_path / "mark"
    assert reward([query(ADD + f"open({str(mark)!r}, 'w')", PAIRS)]) == [1.0]
    assert mark.exists()
    reward.close()
