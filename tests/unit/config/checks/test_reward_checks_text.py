"""The ``reward`` section of recipes for language models."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rlinf.algorithms.rewards import register_reward
from rlinf.algorithms.rewards.base import EmbodiedReward, TextReward
from rlinf.config.checks.recipe_check import Check
from rlinf.config.checks.reward_checks import check_text_rewards
from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.parse import Parser
from rlinf.config.problems import Problems
from rlinf.config.registries import rewards
from rlinf.config.schema.reward import EmbodiedRewardConfig, OverlongRewardConfig, TextRewardConfig, TextRewardsConfig
from rlinf.config.sections import explain_unknown, section_parsers


def parse(terms: dict[str, Any]) -> tuple[TextRewardsConfig | None, list[str]]:
    problems = Problems()
    parser = Parser(problems, section_parsers=section_parsers(), explain_unknown=explain_unknown)
    section = parser.section(TextRewardsConfig, {"rewards": terms}, "reward")
    if section is not None:
        check: Check[Any] = Check(None, WorldSizes(), problems)
        check_text_rewards(section, check)
    return section, problems.lines


def test_terms_become_their_dataclasses() -> None:
    section, problems = parse({"long": {"reward_type": "Overlong", "max_tokens": 8, "buffer_tokens": 2}})
    assert problems == []
    assert section is not None
    assert section.rewards == {"long": OverlongRewardConfig(reward_type="overlong", max_tokens=8, buffer_tokens=2)}


def test_a_reward_of_actions_is_told_what_is_allowed_here() -> None:
    _, (problem,) = parse({"it": {"reward_type": "env"}})
    assert problem.startswith("reward.rewards.it.reward_type: received 'env', a reward of another kind of recipe")
    assert "vqa" in problem
    assert "action_penalty" not in problem


def test_keys_of_other_rewards_name_rewards_of_text_only() -> None:
    _, (problem,) = parse({"it": {"reward_type": "vqa", "max_tokens": 3}})
    assert "reward.rewards.it.max_tokens: not used by reward_type=vqa (it belongs to reward_type=overlong" in problem
    _, (problem,) = parse({"it": {"reward_type": "vqa", "reward_mode": "terminal"}})
    assert problem.startswith("reward.rewards.it.reward_mode: unknown key")


def test_a_buffer_longer_than_the_answers_is_refused() -> None:
    _, (problem,) = parse({"long": {"reward_type": "overlong", "max_tokens": 8, "buffer_tokens": 9}})
    assert problem.startswith("reward.rewards.long.buffer_tokens: received 9; at most")


def test_without_a_weight_there_is_nothing_to_learn() -> None:
    _, (problem,) = parse({"it": {"reward_type": "vqa", "weight": 0.0}})
    assert problem.startswith("reward.rewards: received weights [0.0]")


@pytest.mark.parametrize(
    ("keys", "path", "words"),
    [
        ({}, "", "received neither url and model_path"),
        ({"url": "http://a/v1", "model": "m", "model_path": "."}, "", "received both url and model_path"),
        ({"url": "a:8000", "model": "m"}, ".url", "begins with http://"),
        ({"url": "http://a/v1"}, ".model", "missing; a server may have several"),
        ({"url": "http://a/v1", "model": "m", "precision": "bf16"}, ".precision", "not used with a url"),
        ({"model_path": ".", "timeout_seconds": 3.0}, ".timeout_seconds", "not used with a model_path"),
        (
            {"model_path": ".", "engine": {"rollout_backend": "hf", "enable_offload": True}},
            ".engine.enable_offload",
            "not used by a judge",
        ),
        (
            {"model_path": ".", "engine": {"rollout_backend": "hf"}, "max_running_requests": 2},
            ".max_running_requests",
            "which has its own",
        ),
        (
            {"model_path": ".", "engine": {"rollout_backend": "vllm", "tensor_parallel_size": 2}},
            ".engine",
            "needs 2 devices, .* give its url",
        ),
        ({"model_path": ".", "engine": {"rollout_backend": "server"}}, ".engine", "hf, vllm or sglang"),
    ],
)
def test_a_judge_is_in_one_place(keys: dict[str, Any], path: str, words: str) -> None:
    _, problems = parse({"it": {"reward_type": "judge", **keys}})
    (found,) = [line for line in problems if line.startswith(f"reward.rewards.it{path}: ")]
    assert re.search(words, found)


def test_a_message_shows_no_secret() -> None:
    _, problems = parse({"it": {"reward_type": "judge", "url": "http://a/v1", "model": "m", "api_key": 4711}})
    (problem,) = problems
    assert problem.startswith("reward.rewards.it.api_key: received a hidden value (an integer); allowed: string")
    assert "4711" not in problem


def test_judges_that_fit_pass() -> None:
    fitting: dict[str, dict[str, Any]] = {
        "served": {"url": "http://a/v1", "model": "m", "timeout_seconds": 3.0},
        "here": {"model_path": ".", "precision": "bf16", "max_running_requests": 2},
        "fast": {"model_path": ".", "engine": {"rollout_backend": "vllm", "max_running_requests": 8}},
    }
    section, problems = parse({name: {"reward_type": "judge", **keys} for name, keys in fitting.items()})
    assert problems == []
    assert section is not None
    assert list(section.rewards) == list(fitting)


def test_plug_ins_belong_to_the_kind_of_their_class(monkeypatch: Any) -> None:
    monkeypatch.setattr(rewards, "_entries", dict(rewards._entries))

    @register_reward("shouting")
    class Shouting(TextReward):
        def __call__(self, queries: Any) -> list[float]:
            return [float(query.response.isupper()) for query in queries]

    @register_reward("standing")
    class Standing(EmbodiedReward):
        def __call__(self, request: Any) -> Any:
            return request.rewards

    assert rewards.configs.get("shouting") is TextRewardConfig
    assert rewards.configs.get("standing") is EmbodiedRewardConfig
