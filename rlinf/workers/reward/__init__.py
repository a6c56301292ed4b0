"""Workers that reward what policies do, and the rewards that need a model or the network.

Imports what ``rlinf.workers`` may. A reward is one file here, derived from ``EmbodiedReward`` or ``TextReward``, with
its dataclass and its registration in ``rlinf.config.schema.reward`` or ``text_reward``; one that is a mere rule goes to
``rlinf.algorithms.rewards``.
"""

from __future__ import annotations
