"""Whether the rewards of the ``reward`` section can train anything."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.problems import Problems
from rlinf.config.schema.reward import (
    ApiRewardConfig,
    OverlongRewardConfig,
    RewardTermConfig,
    TextApiRewardConfig,
    TextRewardsConfig,
)
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.utils.urls import mask_url


def check_rewards(cfg: EmbodiedConfig, world: WorldSizes, problems: Problems) -> None:
    """There is something to learn from, and services have addresses."""
    del world
    if cfg.reward is None:
        return
    if cfg.runner.task_type != "embodied":
        problems.add(
            "reward", f"not used by task_type={cfg.runner.task_type}: nothing is rolled out. Remove the section."
        )
    _check_weights(cfg.reward.rewards, "{env: {reward_type: env}}", problems)
    for name, term in cfg.reward.rewards.items():
        if isinstance(term, ApiRewardConfig):
            _check_address(f"reward.rewards.{name}.url", term.url, problems)


def check_text_rewards(section: TextRewardsConfig, problems: Problems) -> None:
    """The same of a recipe for language models."""
    _check_weights(section.rewards, "{math: {reward_type: math}}", problems)
    for name, term in section.rewards.items():
        if isinstance(term, OverlongRewardConfig) and term.buffer_tokens > term.max_tokens:
            problems.add(
                f"reward.rewards.{name}.buffer_tokens",
                f"received {term.buffer_tokens}; at most reward.rewards.{name}.max_tokens {term.max_tokens}, or even "
                "empty answers would be punished. Lower it.",
            )
        if isinstance(term, TextApiRewardConfig):
            _check_address(f"reward.rewards.{name}.url", term.url, problems)


def _check_weights(rewards: Mapping[str, RewardTermConfig], example: str, problems: Problems) -> None:
    if not any(term.weight for term in rewards.values()):
        problems.add(
            "reward.rewards",
            f"received weights {[term.weight for term in rewards.values()]}; nothing would be learned. "
            f"Add a reward with a weight, for example {example}, or remove the section.",
        )


def _check_address(path: str, url: str, problems: Problems) -> None:
    if urlsplit(url).scheme not in {"http", "https"}:
        problems.add(
            path,
            f"received '{mask_url(url)}'; allowed: an address that begins with http:// or https://. Write "
            "http://localhost:8000/score, say.",
        )


RULES = (check_rewards,)
