"""``reward_type: math``: whether an answer equals the reference, as mathematics."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlinf.algorithms.rewards.base import ON_CPU, RewardContext, TextReward
from rlinf.algorithms.rewards.math_answers import Claim, find_claim, same_at_sight, solutions
from rlinf.config.schema.reward import MathRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.utils.logging import get_logger
from rlinf.utils.optional import require
from rlinf.workers.reward.grader_pool import GraderPool

_GRADER = Path(__file__).with_name("math_grader.py")
_log = get_logger("workers.reward.math")


class MathReward(TextReward):
    r"""Compares what the last ``\boxed`` of an answer holds, or its end, with the reference, through ``math-verify``.

    Comparing happens in processes of their own, because some expressions never end; an answer that takes longer
    than ``timeout_seconds``, or that cannot be parsed, counts as wrong.

    Args:
        cfg: Its keys.
        context: See ``Reward``.

    Raises:
        MissingPackageError: ``math-verify`` is not installed.
    """

    cfg: MathRewardConfig

    def __init__(self, cfg: MathRewardConfig, context: RewardContext = ON_CPU) -> None:
        super().__init__(cfg, context)
        require("math_verify", needed_by="reward_type=math")
        self.num_given_up = 0
        self._pool = GraderPool(_GRADER, num_processes=cfg.num_processes, timeout_seconds=cfg.timeout_seconds)
        self._threads = ThreadPoolExecutor(cfg.num_processes, thread_name_prefix="reward-math")

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``."""
        return list(self._threads.map(self._judge, queries))

    def close(self) -> None:
        """See ``Reward``."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._pool.close()

    def _judge(self, query: RewardQuery) -> float:
        accepted = solutions(query.reference, self.cfg.reference_format)
        claim = find_claim(query.response, require_boxed=self.cfg.require_boxed)
        if claim is None or len(claim.text) > self.cfg.max_answer_chars:
            return self.cfg.incorrect_reward
        right = any(self._is_right(claim, solution) for solution in accepted)
        return self.cfg.correct_reward if right else self.cfg.incorrect_reward

    def _is_right(self, claim: Claim, solution: str) -> bool:
        at_sight = same_at_sight(claim, solution)
        if at_sight is not None:
            return at_sight
        text = f"\\boxed{{{claim.text}}}" if claim.boxed else claim.text
        verdict = self._pool.query({"solution": solution, "answer": text})
        if verdict is None:
            self._note_given_up(claim, solution)
        return verdict is not None and verdict.get("equal") is True

    def _note_given_up(self, claim: Claim, solution: str) -> None:
        self.num_given_up += 1
        if self.num_given_up == 1:
            _log.warning(
                "Gave up comparing %r with %r after %g s; it counts as wrong; further ones are not logged.",
                claim.text[:100],
                solution[:100],
                self.cfg.timeout_seconds,
            )
