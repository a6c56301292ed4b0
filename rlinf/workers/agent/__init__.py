"""Workers that play episodes of agents. Imports what ``rlinf.workers`` may.

What an episode is, and how one is played, is in ``rlinf.agents``; here it meets engines and rewards.
"""

from __future__ import annotations
