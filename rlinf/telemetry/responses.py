"""Results of prompts: tables of samples, and the metrics of a batch or an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import chain

from rlinf.data.messages.responses import Prompt, Response, ResponseGroup, RewardedGroup

_ROUNDING = 1e-9
"""Beyond what adding up rewards in double precision loses, and below any difference that a recipe can mean."""


def sample_rows(group: ResponseGroup) -> str:
    """Return one JSON line per response: prompt, response, rewards, length and the versions that sampled it.

    Of an episode with chats it also holds the messages.
    """
    prompt, responses = group.prompt, group.batch.responses
    transcripts = group.transcripts or ((),) * len(responses)
    rows = (
        _row(prompt, text, response) | ({"messages": messages} if messages else {})
        for response, text, messages in zip(responses, group.texts, transcripts, strict=True)
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def response_metrics(groups: Sequence[RewardedGroup]) -> dict[str, float]:
    """Return the means of a step's responses, under ``rollout/``."""
    count = sum(map(len, groups))
    names = dict.fromkeys(name for group in groups for name in group.scores)
    # A reward need not measure every response: what it did not measure counts as 0.
    scores = {name: chain(*(group.scores.get(name, ()) for group in groups)) for name in names}
    return {
        "rollout/reward": math.fsum(chain.from_iterable(group.rewards for group in groups)) / count,
        **{f"rollout/reward/{name}": math.fsum(column) / count for name, column in scores.items()},
        "rollout/response_length": sum(sum(group.num_tokens) for group in groups) / count,
        "rollout/prompt_length": sum(group.num_prompt_tokens * len(group) for group in groups) / count,
        "rollout/truncated": sum(group.finish_reasons.count("length") for group in groups) / count,
        **{f"rollout/{name}": mean for name, mean in _episode_means(groups).items()},
    }


def _is_of_policy(name: str) -> bool:
    """Return whether a count of episodes says what the policy did, rather than how long that took here."""
    return name == "turns" or (name.startswith("tool/") and not name.endswith("_seconds"))


def _episode_means(groups: Sequence[RewardedGroup]) -> dict[str, float]:
    """Return the means of what was counted while episodes were played; a tool that one did not call counts as 0."""
    count = sum(map(len, groups))
    names = dict.fromkeys(name for group in groups for name in group.episode_sums)
    return {name: math.fsum(group.episode_sums.get(name, 0.0) for group in groups) / count for name in names}


def evaluation_metrics(
    groups: Sequence[RewardedGroup],
    *,
    correct_reward: float = 1.0,
    pass_at: Sequence[int] = (),
    prefix: str = "eval",
) -> dict[str, float]:
    """Return what an evaluation found.

    ``accuracy`` is the share of correct responses, ``avg@n`` the same under a name that says how many were sampled for
    each prompt; ``pass@k`` is the unbiased estimate of Chen et al., arXiv 2107.03374, Eq. 1. Of episodes, ``turns`` and
    what was counted of tools, ``tool/invalid_calls`` for one, are means, too. Rewards of turns make no response
    correct.

    Args:
        groups: The responses to each prompt, equally many each.
        correct_reward: A response counts as correct from this reward on, see ``is_correct``.
        pass_at: The k of ``pass@k``; empty takes 1 and the number of responses to a prompt.
        prefix: Of the metrics' names.
    """
    size = len(groups[0])
    right = [sum(is_correct(reward, correct_reward) for reward in group.outcomes or group.rewards) for group in groups]
    count = sum(map(len, groups))
    metrics = {
        f"{prefix}/accuracy": sum(right) / count,
        f"{prefix}/reward": math.fsum(chain.from_iterable(group.rewards for group in groups)) / count,
        f"{prefix}/response_length": sum(sum(group.num_tokens) for group in groups) / count,
        **{f"{prefix}/{name}": mean for name, mean in _episode_means(groups).items() if _is_of_policy(name)},
    }
    if size > 1:
        metrics[f"{prefix}/avg@{size}"] = metrics[f"{prefix}/accuracy"]
        for k in sorted(set(pass_at) or {1, size}):
            metrics[f"{prefix}/pass@{k}"] = math.fsum(pass_at_k(size, found, k) for found in right) / len(groups)
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
