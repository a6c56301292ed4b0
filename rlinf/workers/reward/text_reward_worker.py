"""The reward worker of language models: judges answers while others are generated."""

from __future__ import annotations

import torch

from rlinf.config.schema.root import LanguageConfig
from rlinf.data.answers import Answer, RewardQuery
from rlinf.scheduler import Worker
from rlinf.workers.reward.text_rewards import WeightedTextRewards


class TextRewardWorker(Worker):
    """One rank of the reward group.

    Args:
        cfg: The recipe; it has a section ``reward``.
    """

    def __init__(self, cfg: LanguageConfig) -> None:
        super().__init__()
        assert cfg.reward is not None
        self.section = cfg.reward
        self.rewards: WeightedTextRewards

    async def init_worker(self) -> None:
        """Build the rewards."""
        self.rewards = WeightedTextRewards(self.section, torch.device(self.device))
        self.at_shutdown(self.rewards.close)

    async def score(self, answers: list[Answer]) -> list[Answer]:
        """Judge answers.

        Args:
            answers: Any number.

        Returns:
            The same, with what they have earned.
        """
        earned = await self.rewards.score([_query(answer) for answer in answers])
        return [self.rewards.rewarded(answer, terms) for answer, terms in zip(answers, earned, strict=True)]


def _query(answer: Answer) -> RewardQuery:
    return RewardQuery(
        prompt=answer.prompt.text,
        response=answer.text,
        reference=answer.prompt.reference,
        metadata=answer.prompt.metadata,
        num_tokens=len(answer.token_ids),
        finish_reason=answer.finish_reason,
    )
