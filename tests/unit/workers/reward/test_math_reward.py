"""Answers compared as mathematics, in processes that may be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlinf.algorithms.rewards import get_reward_class
from rlinf.config.schema.reward import MathRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError
from rlinf.workers.reward.grader_pool import GraderPool

ECHO = """
import json, os, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("do") == "sleep": time.sleep(600)
    if asked.get("do") == "die": os._exit(7)
    if asked.get("do") == "babble": print("[no json", flush=True)
    print(json.dumps({"pid": os.getpid(), "variables": len([n for n in os.environ if n == "SECRET"])}), flush=True)
"""


@pytest.fixture
def make_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.setenv("SECRET", "x")
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    pools = []

    def make(timeout_seconds: float = 60.0) -> Any:
        pools.append(GraderPool(script, num_processes=1, timeout_seconds=timeout_seconds))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def test_a_process_is_kept_while_it_answers_and_told_no_secrets(make_pool: Callable[..., Any]) -> None:
    pool = make_pool()
    first, second = pool.query({}), pool.query({})
    assert first == second
    assert first["variables"] == 0
    assert first["pid"] != os.getpid()


@pytest.mark.parametrize("fault", ["sleep", "die", "babble"])
def test_a_process_that_fails_is_replaced(make_pool: Callable[..., Any], fault: str) -> None:
    pool = make_pool(timeout_seconds=2.0 if fault == "sleep" else 60.0)
    before = pool.query({})["pid"]
    assert pool.query({"do": fault}) is None
    assert pool.query({})["pid"] != before
    assert not Path(f"/proc/{before}").exists()


def test_a_script_that_does_not_start_is_named(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit(3)")
    with pytest.raises(RewardError, match=r"broken\.py did not start.*3"):
        GraderPool(script, num_processes=1, timeout_seconds=1.0).query({})


@pytest.fixture(scope="module")
def judge() -> Iterator[Callable[..., Any]]:
    pytest.importorskip("math_verify", reason="needs math-verify; run: pip install 'rlinf[reasoning]'")
    made = {}

    def make(*pairs: Any, **keys: str) -> Any:
        cfg = MathRewardConfig(**{"reward_type": "math", "timeout_seconds": 60.0, "num_processes": 1, **keys})
        reward = made.setdefault(str(cfg), get_reward_class("math")(cfg))
        return reward([RewardQuery(prompt="", response=text, reference=reference) for text, reference in pairs])

    yield make
    for reward in made.values():
        reward.close()


def test_answers_are_compared_as_mathematics(judge: Callable[..., Any]) -> None:
    right = [
        (r"\boxed{\frac{1}{2}}", "0.5"),
        (r"\boxed{1 + x}", "x+1"),
        (r"\boxed{\{2, 1\}}", r"\{1, 2\}"),
        (r"thus $x = \sqrt{4}$.", 2),
        ("I get 10/2", "5"),
        (r"\boxed{46}", ["45", "46"]),
        (r"\boxed{\text{east}}", r"\text{east}"),
    ]
    wrong = [(r"\boxed{\frac{1}{3}}", "0.5"), (r"\boxed{x}", "y"), ("nothing", "5"), ("", "5"), (r"\boxed{}", "5")]
    assert judge(*right, *wrong) == [1.0] * len(right) + [0.0] * len(wrong)


def test_what_is_asked_for_decides(judge: Callable[..., Any]) -> None:
    values = {"correct_reward": 2.0, "incorrect_reward": -1.0, "require_boxed": True, "max_answer_chars": 5}
    cases = [(r"\boxed{3}", "3"), ("3", "3"), (r"\boxed{000003}", "3"), (r"\boxed{4}", "3")]
    assert judge(*cases, **values) == [2.0, -1.0, -1.0, -1.0]
    assert judge(("so 42", "40 + 2\n#### 42"), ("so 40", "40 + 2\n#### 42"), reference_format="gsm8k") == [1.0, 0.0]


def test_what_takes_for_ever_is_given_up() -> None:
    pytest.importorskip("math_verify", reason="needs math-verify; run: pip install 'rlinf[reasoning]'")
    reward = get_reward_class("math")(MathRewardConfig(reward_type="math", timeout_seconds=1.5, num_processes=1))
    endless = RewardQuery(prompt="", response=r"\boxed{10^{10^{10}}}", reference="5")
    assert reward([endless]) == [0.0]
    assert reward.num_given_up == 1
    reward.close()


def test_the_grader_cannot_reach_beyond_itself(tmp_path: Path) -> None:
    """Even if a parser took text for code: the hook of the grader forbids it."""
    code = (
        "import sys, os; sys.path.insert(0, sys.argv[1])\n"
        "import math_grader, socket, subprocess, shutil\n"
        "math_grader.confine()\n"
        "mark = sys.argv[2]\n"
        "for act in (lambda: open(mark, 'w'), lambda: os.system('touch ' + mark), lambda: os.remove(sys.argv[1]),\n"
        "            lambda: socket.socket(), lambda: subprocess.run(['touch', mark]), lambda: os.fork(),\n"
        "            lambda: os.open(mark, os.O_CREAT | os.O_WRONLY), lambda: os.kill(os.getppid(), 0)):\n"
        "    try: act()\n"
        "    except PermissionError: continue\n"
        "    os.write(1, b'ESCAPED')\n"
        "open(os.path.join(sys.argv[1], 'math_grader.py')).close()\n"
    )
    folder = Path(sys.modules["rlinf.workers.reward"].__file__).parent
    mark = tmp_path / "mark"
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(mark)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
    assert not mark.exists()
