"""Workflows of end-to-end tests; a run loads them as a plug-in."""

from __future__ import annotations

from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.workflow import RolloutWorkflow
from rlinf.agents.workflows.rlvr import RLVRWorkflow
from rlinf.config.registries import workflows
from rlinf.config.schema.agent import AgentConfig
from rlinf.data.messages.responses import Prompt


class Rewriting(RolloutWorkflow):
    """Takes two turns, forgets the first token of the second, and goes on from there."""

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> None:
        """See ``RolloutWorkflow``."""
        first = await engine.agenerate(data.token_ids)
        context = [*data.token_ids, *first.token_ids, *data.token_ids]
        second = await engine.agenerate(context)
        await engine.agenerate([*context, data.token_ids[0], *second.token_ids[1:], *data.token_ids])


def register() -> None:
    """Register them."""
    workflows.register("rewriting", Rewriting, config=AgentConfig)
    workflows.register("played_rlvr", RLVRWorkflow, config=AgentConfig)
