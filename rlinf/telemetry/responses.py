"""Results of prompts: tables of samples, and the metrics of a batch or an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from rlinf.data.messages.responses import Prompt, Response, ResponseGroup

_ROUNDING = 1e-9
"""Beyond what adding up rewards in double precision loses, and below any difference that a recipe can mean."""


def sample_rows(group: ResponseGroup) -> str:
    """Return one JSON line per response: prompt, response, rewards, length and the versions that sampled it."""
    prompt, responses = group.prompt, group.batch.responses
    pairs = zip(responses, group.texts, strict=True)
    return "".join(json.dumps(_row(prompt, text, response), ensure_ascii=False) + "\n" for response, text in pairs)


def response_metrics(responses: Sequence[Response]) -> dict[str, float]:
    """Return the means of a step's responses, under ``rollout/``."""
    count = len(responses)
    columns = [{**response.reward_terms, **response.reward_metrics} for response in responses]
    names = dict.fromkeys(name for column in columns for name in column)
    # A reward need not measure every response: what it did not measure counts as 0.
    terms = {f"rollout/reward/{name}": math.fsum(column.get(name, 0.0) for column in columns) / count for name in names}
    return {
        "rollout/reward": math.fsum(response.reward for response in responses) / count,
        **terms,
        "rollout/response_length": sum(response.num_tokens for response in responses) / count,
        "rollout/prompt_length": sum(response.num_prompt_tokens for response in responses) / count,
        "rollout/truncated": sum(response.finish_reason == "length" for response in responses) / count,
    }


def evaluation_metrics(
    groups: Sequence[Sequence[Response]],
    *,
    correct_reward: float = 1.0,
    pass_at: Sequence[int] = (),
    prefix: str = "eval",
) -> dict[str, float]:
    """Return what an evaluation found.

    ``accuracy`` is the share of correct responses, ``avg@n`` the same under a name that says how many were sampled for
    each prompt; ``pass@k`` is the unbiased estimate of Chen et al., arXiv 2107.03374, Eq. 1.

    Args:
        groups: The responses to each prompt, equally many each.
        correct_reward: A response counts as correct from this reward on, see ``is_correct``.
        pass_at: The k of ``pass@k``; empty takes 1 and the number of responses to a prompt.
        prefix: Of the metrics' names.
    """
    size = len(groups[0])
    right = [sum(is_correct(response.reward, correct_reward) for response in group) for group in groups]
    responses = [response for group in groups for response in group]
    metrics = {
        f"{prefix}/accuracy": sum(right) / len(responses),
        f"{prefix}/reward": math.fsum(response.reward for response in responses) / len(responses),
        f"{prefix}/response_length": sum(response.num_tokens for response in responses) / len(responses),
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


def _row(prompt: Prompt, text: str, response: Response) -> dict[str, object]:
    return {
        "group": response.group_id,
        "member": response.index,
        "prompt": prompt.text,
        "answer": text,
        "reference": str(prompt.reference),
        "reward": response.reward,
        "reward_terms": dict(response.reward_terms),
        "reward_metrics": dict(response.reward_metrics),
        "num_tokens": response.num_tokens,
        "finish_reason": response.finish_reason,
        "versions": [response.oldest_version, response.newest_version],
    }
