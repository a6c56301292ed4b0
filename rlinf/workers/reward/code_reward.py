"""``reward_type: code``: whether a program passes its tests."""

from __future__ import annotations

import collections
import json
import secrets
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rlinf.algorithms.rewards.base import ON_CPU, MeasuredReward, RewardContext, TextReward
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
from rlinf.config.schema.reward import CodeRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError
from rlinf.utils.logging import get_logger
from rlinf.utils.sandbox import LimitName, Outcome, Sandbox, SandboxLimits

_HARNESS = Path(__file__).with_name("code_harness.py")
_LIMITS: dict[LimitName, str] = {
    "timeout": "timeouts",
    "memory": "memory_exceeded",
    "output": "output_exceeded",
    "processes": "processes_exceeded",
}
_FAILURES = (*_LIMITS.values(), "wrong")
_WATCHED_PROGRAMS = 128
"""Programs after each of which it is looked at whether many of them exceeded a limit."""
_FREQUENT = 0.1
"""Share of programs from which on that is worth a warning."""
_log = get_logger("workers.reward.code")


class CodeReward(TextReward):
    """Runs the last ``python`` block of each answer against the tests in its reference, in a sandbox.

    What a program prints or returns is compared out here, where it has no hand in it. Code that asserts runs in the
    program's own process: a program made to deceive can pretend to have passed it.

    Each reward comes with metrics, 0 or 1: ``timeouts`` (the program used up its time), ``memory_exceeded``,
    ``output_exceeded``, ``processes_exceeded``, and ``wrong`` where it failed a test within its limits.

    Args:
        cfg: Its keys.
        context: See ``Reward``.

    Raises:
        RewardError: Programs cannot be isolated here, and ``allow_unsandboxed`` is false; or the sandbox does not work.
    """

    cfg: CodeRewardConfig

    def __init__(self, cfg: CodeRewardConfig, context: RewardContext = ON_CPU) -> None:
        super().__init__(cfg, context)
        self._sandbox = _make_sandbox(cfg)
        self._harness = _HARNESS.read_text(encoding="utf-8")
        self._threads = ThreadPoolExecutor(cfg.max_programs, thread_name_prefix="reward-code")
        self._watch = _LimitWatch(cfg)

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``."""
        return list(self._threads.map(self._score, queries))

    def close(self) -> None:
        """See ``Reward``."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._sandbox.close()

    def _score(self, query: RewardQuery) -> MeasuredReward:
        tests = parse_tests(query.reference)[: self.cfg.max_tests]
        program = last_program(query.response)
        failures: set[str] = set()
        passed = 0.0
        if program is not None and len(program) <= self.cfg.max_program_chars:
            passed = self._passed(program, tests, failures) / len(tests)
            self._watch.note(failures)
        share = passed if self.cfg.score == "fraction" else float(passed == 1)
        reward = self.cfg.incorrect_reward + share * (self.cfg.correct_reward - self.cfg.incorrect_reward)
        return MeasuredReward(reward, {name: float(name in failures) for name in _FAILURES})

    def _passed(self, program: str, tests: Sequence[CodeTest], failures: set[str]) -> int:
        """Return how many tests pass, or fewer if all are needed and one has failed; add why others failed."""
        inner = [test for test in tests if not isinstance(test, StdinTest)]
        passed = self._run_inner(program, inner, failures) if inner else 0
        if passed < len(inner) and self.cfg.score == "all":
            return 0
        for test in tests:
            if isinstance(test, StdinTest):
                right = self._run_stdin(program, test, failures)
                passed += right
                if not right and self.cfg.score == "all":
                    return 0
        return passed

    def _run_stdin(self, program: str, test: StdinTest, failures: set[str]) -> bool:
        outcome = self._sandbox.run({"main.py": program}, test.stdin)
        right = outcome.exit_code == 0 and same_output(outcome.output.decode("utf-8", "replace"), test.expected)
        if not right:
            failures.add(_failure(outcome, outcome.errors.rpartition(b"\n")[0].rpartition(b"\n")[2]))
        return right

    def _run_inner(self, program: str, tests: Sequence[CallTest | AssertTest], failures: set[str]) -> int:
        token = secrets.token_hex(16)
        calls = [
            {"code": test.code} if isinstance(test, AssertTest) else {"call": [test.function, test.arguments]}
            for test in tests
        ]
        files = {"main.py": self._harness, "program.py": program}
        outcome = self._sandbox.run(files, json.dumps({"token": token, "tests": calls}) + "\n")
        passed, errors = set(), set()
        for result in _lines_after(token, outcome.output):
            number = result.get("test")
            if isinstance(number, int) and 0 <= number < len(tests) and "value" in result:
                test = tests[number]
                if isinstance(test, AssertTest) or same_value(result["value"], test.expected):
                    passed.add(number)
            errors.add(str(result.get("error")))
        if len(passed) < len(tests):
            failures.add(_failure(outcome, b"MemoryError" if "MemoryError" in errors else b""))
        return len(passed)


class _LimitWatch:
    """Logs when many programs are ended for their limits: the limits may be too tight, or the machine too small."""

    def __init__(self, cfg: CodeRewardConfig) -> None:
        self._cfg = cfg
        self._lock = threading.Lock()
        self._programs = 0
        self._failures: collections.Counter[str] = collections.Counter()

    def note(self, failures: set[str]) -> None:
        """Count a program, and why tests of it failed."""
        with self._lock:
            self._programs += 1
            self._failures.update(failures - {"wrong"})
            if self._programs < _WATCHED_PROGRAMS:
                return
            programs, counts = self._programs, dict(self._failures)
            self._programs = 0
            self._failures.clear()
        if sum(counts.values()) >= _FREQUENT * programs:
            _log.warning(
                "Of the last %d programs, these exceeded a limit: %s. See whether correct programs are among them; "
                "timeout_seconds=%g (processor time), wall_timeout_seconds, memory_bytes=%d, max_output_bytes=%d and "
                "max_processes=%d of reward_type=code bound them.",
                programs,
                ", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
                self._cfg.timeout_seconds,
                self._cfg.memory_bytes,
                self._cfg.max_output_bytes,
                self._cfg.max_processes,
            )


def _failure(outcome: Outcome, last_error: bytes) -> str:
    """Return the metric that a failed run counts for."""
    if outcome.killed_for is not None:
        return _LIMITS[outcome.killed_for]
    return _LIMITS["memory"] if b"MemoryError" in last_error else "wrong"


def _lines_after(token: str, output: bytes) -> list[dict[str, Any]]:
    results = []
    for line in output.split(b"\n"):
        start, _, text = line.partition(b" ")
        if start == token.encode():
            try:
                results.append(json.loads(text))
            except (ValueError, RecursionError):  # cut off with the output, or nested beyond what can be read
                continue
    return results


def _make_sandbox(cfg: CodeRewardConfig) -> Sandbox:
    limits = SandboxLimits(
        timeout_seconds=cfg.timeout_seconds,
        wall_seconds=cfg.wall_timeout_seconds,
        memory_bytes=cfg.memory_bytes,
        output_bytes=cfg.max_output_bytes,
        processes=cfg.max_processes,
    )
    try:
        return Sandbox(limits)
    except RewardError as error:
        if not cfg.allow_unsandboxed:
            raise RewardError(
                f"{error} To run programs with the rights of this process, set allow_unsandboxed: true."
            ) from error
        _log.warning("%s Programs run with the rights of this process, as allow_unsandboxed says.", error)
        return Sandbox(limits, isolate=False)
