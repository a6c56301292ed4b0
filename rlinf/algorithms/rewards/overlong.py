"""``reward_type: overlong``."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.algorithms.rewards.base import TextReward
from rlinf.config.schema.reward import OverlongRewardConfig
from rlinf.data.messages.responses import RewardQuery


class OverlongReward(TextReward):
    """The soft overlong punishment of DAPO (Yu et al., arXiv 2503.14476, Eq. 13).

    0 up to ``max_tokens - buffer_tokens``, then falling linearly to -1 at ``max_tokens``, -1 beyond.
    """

    cfg: OverlongRewardConfig

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``."""
        begin = self.cfg.max_tokens - self.cfg.buffer_tokens
        return [-min(max(query.num_tokens - begin, 0) / self.cfg.buffer_tokens, 1.0) for query in queries]
