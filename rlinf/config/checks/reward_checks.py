"""Whether the rewards of the ``reward`` section can train anything."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.generation import ServerGenerationConfig
from rlinf.config.schema.reward import (
    ApiRewardConfig,
    JudgeRewardConfig,
    OverlongRewardConfig,
    RewardTermConfig,
    TextApiRewardConfig,
    TextRewardsConfig,
)
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.utils.urls import mask_url

_OF_ROLLOUTS = ("group_name", "model", "enable_offload", "validate_weight")
"""Keys of engines that serve a run's own model."""


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
        if isinstance(term, JudgeRewardConfig):
            _check_judge(f"reward.rewards.{name}", term, check)


def _check_judge(path: str, judge: JudgeRewardConfig, check: Check[RLinfConfig]) -> None:
    """A judge is a model of a server, or one of the reward ranks, each of which has one device."""
    if (judge.url is None) == (judge.model_path is None):
        check.problem(
            path,
            f"received {'neither' if judge.url is None else 'both'} url and model_path; a judge is behind one address, "
            "or in the reward ranks. Give one of them.",
        )
    elif judge.url is not None:
        check_address(f"{path}.url", judge.url, check)
        check.unused(judge, ("engine", "precision", "max_context_tokens"), path, "with a url")
        if judge.model is None:
            check.problem(f"{path}.model", "missing; a server may have several. Give the name that it lists.")
    else:
        check.unused(judge, ("model", "api_key", "timeout_seconds", "max_retries"), path, "with a model_path")
    if judge.engine is None:
        return
    check.unused(judge, ("max_running_requests",), path, f"with {path}.engine, which has its own")
    check.unused(judge.engine, _OF_ROLLOUTS, f"{path}.engine", "by a judge, which is never trained")
    if isinstance(judge.engine, ServerGenerationConfig):
        check.problem(f"{path}.engine", "serves a run's own model. Set rollout_backend to hf, vllm or sglang.")
    elif judge.engine.num_devices > 1:
        check.problem(
            f"{path}.engine",
            f"needs {judge.engine.num_devices} devices, and a rank of the reward group has one. Serve the model by "
            "itself, and give its url.",
        )


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
