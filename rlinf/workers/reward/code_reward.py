"""``reward_type: code``: whether a program passes its tests."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rlinf.algorithms.rewards.base import TextReward
from rlinf.algorithms.rewards.code_checks import (
    AssertTest,
    CallTest,
    CodeTest,
    StdinTest,
    last_program,
    parse_tests,
    same_output,
    same_value,
)
from rlinf.config.schema.text_reward import CodeRewardConfig
from rlinf.data.answers import RewardQuery
from rlinf.errors import RewardError
from rlinf.utils.logging import get_logger
from rlinf.workers.reward.sandbox import Sandbox, SandboxLimits

_HARNESS = Path(__file__).with_name("code_harness.py")
_log = get_logger("workers.reward.code")


class CodeReward(TextReward):
    """Runs the last ``python`` block of each answer against the tests in its reference, in a sandbox.

    What a program prints or returns is compared out here, where it has no hand in it. Code that asserts runs in the
    program's own process: a program made to deceive can pretend to have passed it.

    Args:
        cfg: Its keys.

    Raises:
        RewardError: Programs cannot be isolated here, and ``allow_unsandboxed`` is false.
    """

    cfg: CodeRewardConfig

    def __init__(self, cfg: CodeRewardConfig) -> None:
        super().__init__(cfg)
        self._sandbox = _make_sandbox(cfg)
        self._harness = _HARNESS.read_text(encoding="utf-8")
        self._threads = ThreadPoolExecutor(cfg.max_programs, thread_name_prefix="reward-code")

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``TextReward``."""
        return list(self._threads.map(self._judge, queries))

    def close(self) -> None:
        """See ``TextReward``."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._sandbox.close()

    def _judge(self, query: RewardQuery) -> float:
        tests = parse_tests(query.reference)[: self.cfg.max_tests]
        program = last_program(query.response)
        if program is None or len(program) > self.cfg.max_program_chars:
            return self.cfg.incorrect_reward
        passed = self._passed(program, tests) / len(tests)
        share = passed if self.cfg.score == "fraction" else float(passed == 1)
        return self.cfg.incorrect_reward + share * (self.cfg.correct_reward - self.cfg.incorrect_reward)

    def _passed(self, program: str, tests: Sequence[CodeTest]) -> int:
        """Return how many tests pass, or fewer if all are needed and one has failed."""
        inner = [test for test in tests if not isinstance(test, StdinTest)]
        passed = self._run_inner(program, inner) if inner else 0
        if passed < len(inner) and self.cfg.score == "all":
            return 0
        for test in tests:
            if isinstance(test, StdinTest):
                right = self._run_stdin(program, test)
                passed += right
                if not right and self.cfg.score == "all":
                    return 0
        return passed

    def _run_stdin(self, program: str, test: StdinTest) -> bool:
        outcome = self._sandbox.run({"main.py": program}, test.stdin)
        return outcome.exit_code == 0 and same_output(outcome.output.decode("utf-8", "replace"), test.expected)

    def _run_inner(self, program: str, tests: Sequence[CallTest | AssertTest]) -> int:
        token = secrets.token_hex(16)
        asked = [
            {"code": test.code} if isinstance(test, AssertTest) else {"call": [test.function, test.arguments]}
            for test in tests
        ]
        files = {"main.py": self._harness, "program.py": program}
        outcome = self._sandbox.run(files, json.dumps({"token": token, "tests": asked}) + "\n")
        passed = set()
        for told in _lines_after(token, outcome.output):
            number = told.get("test")
            if isinstance(number, int) and 0 <= number < len(tests) and "value" in told:
                test = tests[number]
                if isinstance(test, AssertTest) or same_value(told["value"], test.expected):
                    passed.add(number)
        return len(passed)


def _lines_after(token: str, output: bytes) -> list[dict[str, Any]]:
    told = []
    for line in output.split(b"\n"):
        start, _, text = line.partition(b" ")
        if start == token.encode():
            try:
                told.append(json.loads(text))
            except (ValueError, RecursionError):  # cut off with the output, or nested beyond what can be read
                continue
    return told


def _make_sandbox(cfg: CodeRewardConfig) -> Sandbox:
    limits = SandboxLimits(
        timeout_seconds=cfg.timeout_seconds,
        memory_bytes=cfg.memory_bytes,
        output_bytes=cfg.max_output_bytes,
        processes=cfg.max_processes,
    )
    sandbox = Sandbox(limits)
    try:
        sandbox.run({"main.py": ""})
    except RewardError as error:
        sandbox.close()
        if not cfg.allow_unsandboxed:
            raise RewardError(
                f"{error} To run programs with the rights of this process, set allow_unsandboxed: true."
            ) from error
        _log.warning("%s Programs run with the rights of this process, as allow_unsandboxed says.", error)
        sandbox = Sandbox(limits, isolate=False)
    return sandbox
