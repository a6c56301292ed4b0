"""Whether the rewards of the ``reward`` section teach anything."""

from __future__ import annotations

from urllib.parse import urlsplit

from rlinf.config.checks.sizes import WorldSizes
from rlinf.config.problems import Problems
from rlinf.config.schema.reward import ApiRewardConfig
from rlinf.config.schema.root import RLinfConfig


def check_rewards(cfg: RLinfConfig, world: WorldSizes, problems: Problems) -> None:
    """There is something to learn from, and services have addresses."""
    del world
    if cfg.reward is None:
        return
    if cfg.runner.task_type != "embodied":
        problems.add(
            "reward", f"not used by task_type={cfg.runner.task_type}: nothing is rolled out. Remove the section."
        )
    rewards = cfg.reward.rewards
    if not any(term.weight for term in rewards.values()):
        problems.add(
            "reward.rewards",
            f"received weights {[term.weight for term in rewards.values()]}; nothing would be learned. "
            "Add a reward with a weight, for example {env: {reward_type: env}}, or remove the section.",
        )
    for name, term in rewards.items():
        if isinstance(term, ApiRewardConfig) and urlsplit(term.url).scheme not in {"http", "https"}:
            problems.add(
                f"reward.rewards.{name}.url",
                f"received '{term.url}'; allowed: an address that begins with http:// or https://. Write "
                "http://localhost:8000/score, say.",
            )


RULES = (check_rewards,)
