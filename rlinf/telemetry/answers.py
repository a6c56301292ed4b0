"""What became of prompts: tables of samples, and the metrics of a batch or an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from rlinf.data.messages.answers import Answer
from rlinf.utils.files import write_atomic

_ROUNDING = 1e-9
"""Beyond what adding up rewards in double precision loses, and below any difference that a recipe can mean."""


def write_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Write one JSON line per answer: prompt, answer, rewards, length and the versions that drew it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(json.dumps(_row(answer), ensure_ascii=False) + "\n" for answer in answers))


def answer_metrics(answers: Sequence[Answer]) -> dict[str, float]:
    """Return the means of a step's answers, under ``rollout/``."""
    count = len(answers)
    columns = [{**answer.reward_terms, **answer.reward_metrics} for answer in answers]
    names = dict.fromkeys(name for column in columns for name in column)
    # A reward need not measure every response: what it did not measure counts as 0.
    terms = {f"rollout/reward/{name}": math.fsum(column.get(name, 0.0) for column in columns) / count for name in names}
    return {
        "rollout/reward": math.fsum(answer.reward for answer in answers) / count,
        **terms,
        "rollout/response_length": sum(len(answer.token_ids) for answer in answers) / count,
        "rollout/prompt_length": sum(len(answer.prompt.token_ids) for answer in answers) / count,
        "rollout/truncated": sum(answer.finish_reason == "length" for answer in answers) / count,
    }


def evaluation_metrics(
    groups: Sequence[Sequence[Answer]],
    *,
    correct_reward: float = 1.0,
    pass_at: Sequence[int] = (),
    prefix: str = "eval",
) -> dict[str, float]:
    """Return what an evaluation found.

    ``accuracy`` is the share of right answers and ``avg@n`` the same under the name that says how many were sampled for
    each prompt; ``pass@k`` is the unbiased estimate of Chen et al., arXiv 2107.03374, Eq. 1.

    Args:
        groups: The answers to each prompt, equally many each.
        correct_reward: An answer counts as right from this reward on, see ``is_correct``.
        pass_at: The k of ``pass@k``; empty takes 1 and the number of answers to a prompt.
        prefix: Of the metrics' names.
    """
    size = len(groups[0])
    right = [sum(is_correct(answer.reward, correct_reward) for answer in group) for group in groups]
    answers = [answer for group in groups for answer in group]
    metrics = {
        f"{prefix}/accuracy": sum(right) / len(answers),
        f"{prefix}/reward": math.fsum(answer.reward for answer in answers) / len(answers),
        f"{prefix}/response_length": sum(len(answer.token_ids) for answer in answers) / len(answers),
    }
    if size > 1:
        metrics[f"{prefix}/avg@{size}"] = metrics[f"{prefix}/accuracy"]
        for k in sorted(set(pass_at) or {1, size}):
            metrics[f"{prefix}/pass@{k}"] = math.fsum(pass_at_k(size, count, k) for count in right) / len(groups)
    return metrics


def is_correct(reward: float, correct_reward: float) -> bool:
    """Return whether a response counts as correct: its reward reaches a threshold, up to rounding.

    A weighted sum such as 0.7 + 0.2 + 0.1 is a little less than 1.

    Args:
        reward: Of the response.
        correct_reward: The threshold.
    """
    return reward >= correct_reward or math.isclose(reward, correct_reward, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """Return the probability that one of ``k`` responses sampled without replacement is right."""
    if num_samples - num_right < k:
        return 1.0
    return 1.0 - math.comb(num_samples - num_right, k) / math.comb(num_samples, k)


def _row(answer: Answer) -> dict[str, object]:
    return {
        "group": answer.group_id,
        "member": answer.member,
        "prompt": answer.prompt.text,
        "answer": answer.text,
        "reference": str(answer.prompt.reference),
        "reward": answer.reward,
        "reward_terms": dict(answer.reward_terms),
        "reward_metrics": dict(answer.reward_metrics),
        "num_tokens": len(answer.token_ids),
        "finish_reason": answer.finish_reason,
        "versions": [min(answer.versions), max(answer.versions)],
    }
