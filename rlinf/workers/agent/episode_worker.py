"""The worker that plays episodes: a reward rank that also runs a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rlinf.agents.episode import Episode, play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits, GenerationClient
from rlinf.agents.episode_groups import make_group
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import RolloutWorkflow, WorkflowContext
from rlinf.config.registries import workflows
from rlinf.config.schema.agent import AgentConfig
from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.datasets.prompts import load_tokenizer
from rlinf.data.messages.generation import SamplingParams
from rlinf.data.messages.responses import Prompt, ResponseGroup, RewardedGroup
from rlinf.errors import AgentError, EngineError, WorkerError
from rlinf.utils.seeding import derive_seed
from rlinf.workers.agent.engine_client import EngineClient
from rlinf.workers.reward.response_client import ResponseClient
from rlinf.workers.reward.reward_worker import RewardWorker


class EpisodeWorker(RewardWorker):
    """Plays the episodes of a recipe with a section ``agent``.

    It is a rank of the reward group, which it then also scores them in, or of a group of its own.

    Args:
        cfg: The recipe.
    """

    cfg: ReasoningConfig
    section: AgentConfig
    workflow: RolloutWorkflow

    def __init__(self, cfg: ReasoningConfig) -> None:
        super().__init__(cfg)
        assert cfg.agent is not None
        self.section = cfg.agent
        self.engines = EngineClient(cfg.rollout.group_name)
        self.responses = ResponseClient(cfg.reward.group_name)
        self.limits = EpisodeLimits(max_turns=cfg.agent.max_turns, max_context_tokens=cfg.max_context_tokens)
        self.tokenizer: Any = None
        self.template: ChatTemplate | None = None
        self._slots: asyncio.Semaphore | None = None
        self._playing: dict[tuple[str, int], asyncio.Task[ResponseGroup]] = {}

    def init_worker(self) -> None:
        """Build tools, workflow and a reward rank's rewards, and check that they work with the model's chat template.

        Raises:
            AgentError: They do not.
        """
        if not self.cfg.places_agent:
            super().init_worker()
        section = self.section
        self.tokenizer = load_tokenizer(self.cfg.actor.model.model_path)
        tools = ToolBox(section.tool_configs, self.tokenizer)
        self.at_shutdown(tools.close)
        if self.tokenizer.chat_template is not None or section.chat_template is not None:
            self.template = ChatTemplate(self.tokenizer, section.chat_template)
        context = WorkflowContext(template=self.template, tools=tools)
        self.workflow = workflows.get(section.workflow)(section, context)
        self.workflow.check()

    async def generate(
        self, prompt: Prompt, *, group_id: int, params: SamplingParams, split: str
    ) -> RewardedGroup | None:
        """Play the episodes of a group, and send them to the rank that scores them; see ``GenerationWorker``.

        Args:
            prompt: The row.
            group_id: Number of the prompt within the run.
            params: How to sample, and how many episodes.
            split: ``train`` or ``eval``; names the random streams.

        Returns:
            The responses without their tokens, if they are rewarded at once; None where ``abort`` ended them, too.

        Raises:
            AgentError: An episode failed, also when it was played anew.
        """
        task = asyncio.ensure_future(self._play_group(prompt, group_id, params, split))
        older = self._playing.get((split, group_id))
        if older is not None:  # the driver has submitted it again
            older.cancel()
        self._playing[split, group_id] = task
        await asyncio.wait({task})
        if self._playing.get((split, group_id)) is task:
            del self._playing[split, group_id]
        return None if task.cancelled() else await self.responses.put(split, task.result())

    async def end_service(self) -> None:
        """End what the workflow serves, before engines end."""
        await self.workflow.close()

    async def abort(self, group_ids: Sequence[int], *, split: str) -> None:
        """End episodes that are not needed: their ``generate`` returns without a result.

        Args:
            group_ids: Of their prompts; those that have ended meanwhile are passed over.
            split: As it was given to ``generate``.
        """
        for group_id in group_ids:
            task = self._playing.get((split, group_id))
            if task is not None:
                task.cancel()

    async def _play_group(self, prompt: Prompt, group_id: int, params: SamplingParams, split: str) -> ResponseGroup:
        seed = derive_seed(self.cfg.actor.seed, "answers", split, group_id)
        client = self.engines.at(group_id, joins=self.workflow.is_one_request)
        tasks = [
            asyncio.ensure_future(self._play(prompt, client, index, params, seed=seed, name=f"{split}-{group_id}"))
            for index in range(params.n)
        ]
        try:
            episodes = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return make_group(prompt, group_id, episodes, self.tokenizer)

    async def _play(
        self, prompt: Prompt, client: GenerationClient, index: int, params: SamplingParams, *, seed: int, name: str
    ) -> Episode:
        """Play an episode, anew where something other than the model is to blame."""
        for attempt in range(self.section.retries + 1):
            engine = EpisodeEngine(
                prompt,
                client,
                params=params,
                limits=self.limits,
                seed=seed,
                index=index,
                name=f"{name}-{index}-{attempt}",
                template=self.template,
            )
            if self._slots is None:  # made where it is used: in the event loop
                self._slots = asyncio.Semaphore(self.section.max_episodes)
            try:
                async with self._slots:
                    return await play_episode(self.workflow, engine, timeout_seconds=self.workflow.timeout_seconds)
            except (WorkerError, EngineError):
                raise
            except Exception as error:  # noqa: BLE001 - the boundary around a workflow, which may be a user's code
                self.log_warning(f"Episode {name}-{index} failed in attempt {attempt + 1}: {error!r}")
                failure = error
        raise AgentError(
            f"agent.workflow={self.section.workflow}: episode {index} of group {name} (row {prompt.index}) failed "
            f"{self.section.retries + 1} times: {type(failure).__name__}: {failure}. It is no reward of 0: correct the "
            "workflow, the tool or the service."
        ) from failure
