"""``reward_type: overlong``: responses near the limit are punished."""

from __future__ import annotations

import pytest
from scored_responses import judge

from rlinf.config.schema.reward import OverlongRewardConfig


@pytest.mark.parametrize(("length", "reward"), [(0, 0), (80, 0), (81, -0.05), (90, -0.5), (100, -1), (1000, -1)])
def test_punishment_begins_with_the_buffer_and_ends_at_the_limit(length: int, reward: float) -> None:
    cfg = OverlongRewardConfig(reward_type="overlong", max_tokens=100, buffer_tokens=20)
    assert judge(cfg, "", num_tokens=length) == pytest.approx(reward)
