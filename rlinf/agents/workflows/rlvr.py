"""``workflow: rlvr``: one completion of the prompt, as in reasoning with verifiable rewards.

A recipe that names it asks engines for the responses of a group in one request, without playing. Workflows that derive
from it are played.
"""

from __future__ import annotations

from typing import ClassVar

from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.workflow import RolloutWorkflow
from rlinf.data.messages.responses import Prompt


class RLVRWorkflow(RolloutWorkflow):
    """Samples one completion."""

    is_one_request: ClassVar[bool] = True

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> None:
        """See ``RolloutWorkflow``."""
        await engine.agenerate(data.token_ids)
