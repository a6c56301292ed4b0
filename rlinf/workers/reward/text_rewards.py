"""All rewards of a recipe for language models, asked at once and off the event loop."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.base import MeasuredReward, TextReward
from rlinf.config.schema.text_reward import TextRewardsConfig
from rlinf.data.answers import Answer, RewardQuery
from rlinf.errors import RewardError, RLinfError
from rlinf.utils.closing import close_all


class WeightedTextRewards:
    """The weighted sum of several rewards of text.

    Each reward has threads of its own, so that a slow one holds up neither the others nor whoever generates meanwhile.

    Args:
        cfg: The ``reward`` section.
        device: Where those that have a model compute; the CPU unless given.
    """

    def __init__(self, cfg: TextRewardsConfig, device: torch.device | None = None) -> None:
        self.terms = dict(cfg.rewards)
        self.rewards: dict[str, TextReward] = {}
        self._threads: dict[str, ThreadPoolExecutor] = {}
        try:
            for name, term in self.terms.items():
                reward = get_reward_class(term.reward_type)(term)
                self.rewards[name] = reward
                reward.place(device or torch.device("cpu"))
                self._threads[name] = ThreadPoolExecutor(cfg.max_concurrency, thread_name_prefix=f"reward-{name}")
        except BaseException:
            self.close()
            raise

    async def score(self, queries: Sequence[RewardQuery]) -> list[Mapping[str, float]]:
        """Judge a batch of answers by all rewards at once.

        Args:
            queries: The answers.

        Returns:
            What each answer earned by each reward, unweighted, in their order.

        Raises:
            RewardError: A reward failed, gave another number of rewards than there are answers, or one that is not
                finite; the message names its path in the recipe.
        """
        if not queries:
            return []
        values = await asyncio.gather(*(self._ask(name, queries) for name in self.rewards))
        by_name = dict(zip(self.rewards, values, strict=True))
        return [{name: column[row] for name, column in by_name.items()} for row in range(len(queries))]

    def total(self, earned: Mapping[str, float]) -> float:
        """Return the weighted sum of what one answer earned.

        Args:
            earned: Each reward's, as ``score`` gives it.
        """
        return sum(self.terms[name].weight * value for name, value in earned.items())

    def rewarded(self, answer: Answer, earned: Mapping[str, float]) -> Answer:
        """Return a response with its rewards and what they measured.

        Args:
            answer: The response.
            earned: Each reward's, as ``score`` gives it.
        """
        measured = {name: value for name, value in earned.items() if isinstance(value, MeasuredReward)}
        return dataclasses.replace(
            answer,
            reward=self.total(earned),
            reward_terms={name: float(value) for name, value in earned.items()},
            reward_metrics={f"{name}_{key}": x for name, value in measured.items() for key, x in value.metrics.items()},
        )

    def close(self) -> None:
        """Free what the rewards hold; what they are still judging is not waited for."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        close_all(reward.close for reward in self.rewards.values())

    async def _ask(self, name: str, queries: Sequence[RewardQuery]) -> list[float]:
        loop = asyncio.get_running_loop()
        try:
            values = await loop.run_in_executor(self._threads[name], self.rewards[name], queries)
        except RLinfError as error:
            raise RewardError(f"{self._where(name)}: {error}") from error
        except Exception as error:  # a reward may be anybody's code
            raise RewardError(
                f"{self._where(name)} raised {type(error).__name__}: {error}. Correct the reward, or what it is asked."
            ) from error
        return self._checked(name, values, len(queries))

    def _checked(self, name: str, values: Sequence[float], count: int) -> list[float]:
        if len(values) != count:
            raise RewardError(
                f"{self._where(name)} returned {len(values)} rewards for {count} answers; expected one for each. "
                "Correct the reward."
            )
        rewards = [value if isinstance(value, MeasuredReward) else float(value) for value in values]
        for row, value in enumerate(rewards):
            if not math.isfinite(value):
                raise RewardError(
                    f"{self._where(name)} returned {value} for answer {row} of {count}; expected finite numbers. "
                    "Correct the reward, or look at what it is shown."
                )
        return rewards

    def _where(self, name: str) -> str:
        return f"reward.rewards.{name} (reward_type={self.terms[name].reward_type})"
