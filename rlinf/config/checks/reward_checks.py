"""Whether the rewards of the ``reward`` section can train anything."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.reward import (
    ApiRewardConfig,
    OverlongRewardConfig,
    RewardTermConfig,
    TextApiRewardConfig,
    TextRewardsConfig,
)
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.utils.urls import mask_url


def check_rewards(check: Check[EmbodiedConfig]) -> None:
    """There is something to learn from, and services have addresses."""
    cfg = check.cfg
    if cfg.reward is None:
        return
    if cfg.runner.task_type != "embodied":
        check.problem(
            "reward", f"not used by task_type={cfg.runner.task_type}: nothing is rolled out. Remove the section."
        )
    _check_weights(cfg.reward.rewards, "{env: {reward_type: env}}", check)
    for name, term in cfg.reward.rewards.items():
        if isinstance(term, ApiRewardConfig):
            check_address(f"reward.rewards.{name}.url", term.url, check)


def check_text_rewards(section: TextRewardsConfig, check: Check[RLinfConfig]) -> None:
    """The same of a recipe for language models."""
    _check_weights(section.rewards, "{math: {reward_type: math}}", check)
    for name, term in section.rewards.items():
        if isinstance(term, OverlongRewardConfig) and term.buffer_tokens > term.max_tokens:
            check.problem(
                f"reward.rewards.{name}.buffer_tokens",
                f"received {term.buffer_tokens}; at most reward.rewards.{name}.max_tokens {term.max_tokens}, or even "
                "empty answers would be punished. Lower it.",
            )
        if isinstance(term, TextApiRewardConfig):
            check_address(f"reward.rewards.{name}.url", term.url, check)


def _check_weights(rewards: Mapping[str, RewardTermConfig], example: str, check: Check[RLinfConfig]) -> None:
    if not any(term.weight for term in rewards.values()):
        check.problem(
            "reward.rewards",
            f"received weights {[term.weight for term in rewards.values()]}; nothing would be learned. "
            f"Add a reward with a weight, for example {example}, or remove the section.",
        )


def check_address(path: str, url: str, check: Check[RLinfConfig]) -> None:
    """An address is one of HTTP.

    Args:
        path: Of the key, for messages.
        url: The address.
        check: Takes the problem.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        check.problem(
            path,
            f"received '{mask_url(url)}'; allowed: an address that begins with http:// or https://. Write "
            "http://localhost:8000/score, say.",
        )


RULES = (check_rewards,)
