"""P7 of ``agents.py``: episodes that call a tool, by the workflow ``tools`` and by verl's tool agent loop.

verl's loop runs in the process of the benchmark, and its client of generation servers is replaced by one that asks our
engine. The model has not learned to call tools: it samples as many tokens as a turn of the script has, and the turn of
the script takes their place on both sides.
"""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_episodes import ratio, started

from examples.reasoning.make_tiny_model import END, make_tiny_model, make_tokenizer
from rlinf.agents.episode import play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.calculator import CalculatorTool
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import WorkflowContext
from rlinf.agents.workflows.tool_loop import ToolsWorkflow
from rlinf.config.schema.agent import CalculatorToolConfig, ToolsConfig
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.data.messages.responses import Prompt
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine

NUM_EPISODES, NUM_CALLS = 64, 3
CALL = '<tool_call>{"name": "calculator", "arguments": {"expression": "12*34"}}</tool_call>'
TOOL = CalculatorToolConfig(tool_type="calculator")
PARAMETERS = {
    "type": "object",
    "properties": {"expression": {"type": "string", "description": "What to compute."}},
    "required": ["expression"],
}


class ScriptedSampler:
    """Samples as many tokens as the next turn of the script has, and returns the script's.

    Args:
        engine: Samples.
        tokenizer: Encodes the script.
    """

    def __init__(self, engine: GenerationEngine, tokenizer: Any) -> None:
        self._engine = engine
        self.turns = [tuple(tokenizer.encode(text + END, add_special_tokens=False)) for text in [CALL, "Done."]]
        self.num_tokens = 0
        self._num_requests = 0

    async def sample(self, prompt_ids: tuple[int, ...], turn: int, seed: int) -> Completion:
        """Return a turn of an episode."""
        tokens = self.turns[turn >= NUM_CALLS]
        self._num_requests += 1
        request = GenerationRequest(
            request_id=str(self._num_requests),
            prompt_ids=prompt_ids,
            params=SamplingParams(max_new_tokens=len(tokens), ignore_eos=True, seed=seed),
        )
        found = (await self._engine.generate(request)).completions[0]
        self.num_tokens += len(tokens)
        return Completion(token_ids=tokens, logprobs=found.logprobs, versions=found.versions, finish_reason="stop")


class _Client:
    """A ``GenerationClient`` for one episode."""

    def __init__(self, sampler: ScriptedSampler, seed: int) -> None:
        self._sampler, self._seed, self._turn = sampler, seed, 0

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``GenerationClient``."""
        turn, self._turn = self._turn, self._turn + 1
        return await self._sampler.sample(request.prompt_ids, turn, self._seed)


def make_rows() -> list[tuple[dict[str, str], ...]]:
    """Return the conversations that episodes begin with."""
    chance = random.Random(0)
    return [({"role": "user", "content": f"What is {chance.randrange(99)} times 34?"},) for _ in range(NUM_EPISODES)]


def ours(sampler: ScriptedSampler, tokenizer: Any) -> Callable[[], Any]:
    """Return what plays all episodes with the workflow ``tools``."""
    template = ChatTemplate(tokenizer)
    box = ToolBox({"calculator": TOOL}, tokenizer)
    config = ToolsConfig(workflow="tools", tools={"calculator": TOOL})
    workflow = ToolsWorkflow(config, WorkflowContext(template=template, tools=box))

    async def play(number: int, messages: Any) -> None:
        engine = EpisodeEngine(
            Prompt(index=number, token_ids=tuple(template.prompt(messages)), text="", messages=messages),
            _Client(sampler, number),
            params=SamplingParams(max_new_tokens=256),
            limits=EpisodeLimits(max_turns=NUM_CALLS + 1, max_context_tokens=1024),
            seed=number,
            template=template,
        )
        episode = await play_episode(workflow, engine, timeout_seconds=None)
        assert len(episode.trajectories[0].turns) == NUM_CALLS + 1

    async def play_all() -> None:
        await asyncio.gather(*(play(number, messages) for number, messages in enumerate(make_rows())))

    return play_all


def verl(sampler: ScriptedSampler, tokenizer: Any) -> Callable[[], Any]:
    """Return what plays all episodes with verl's ``ToolAgentLoop``."""
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
    from verl.tools.base_tool import BaseTool
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse
    from verl.workers.rollout.replica import TokenOutput

    class Calculator(BaseTool):  # type: ignore[misc]
        calculator = CalculatorTool("calculator", TOOL)

        async def execute(self, instance_id: str, parameters: Any, **kwargs: Any) -> Any:
            result = await self.calculator.call(parameters)
            return ToolResponse(text=result.text), 0.0, {}

    class Server:
        def __init__(self, seed: int) -> None:
            self.client = _Client(sampler, seed)

        async def generate(self, request_id: str, *, prompt_ids: list[int], **kwargs: Any) -> Any:
            request = GenerationRequest(request_id=request_id, prompt_ids=tuple(prompt_ids), params=SamplingParams())
            found = await self.client.generate(request)
            return TokenOutput(token_ids=list(found.token_ids), log_probs=list(found.logprobs))

    # It warns of each episode that this model's template has no builder of its own there.
    logging.getLogger("verl").setLevel(logging.ERROR)
    turns = {
        "max_user_turns": None,
        "max_assistant_turns": NUM_CALLS + 1,
        "max_parallel_calls": 1,
        "max_tool_response_length": 256,
        "tool_response_truncate_side": "middle",
        "format": "hermes",
    }
    rollout = {"multi_turn": turns, "prompt_length": 256, "response_length": 768, "full_determinism": False}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    function = {"name": "calculator", "description": "Computes.", "parameters": PARAMETERS}
    schema = OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})
    tools = [Calculator({}, schema)]

    async def play(number: int, messages: Any) -> None:
        loop = ToolAgentLoop(
            trainer_config=DictConfigWrap(config),
            server_manager=Server(number),
            tokenizer=tokenizer,
            processor=None,
            dataset_cls=object,
            data_config=DictConfigWrap(config.data),
            tools=ToolListWrap(tools),
        )
        output = await loop.run({}, raw_prompt=messages)
        assert output.num_turns == 2 * NUM_CALLS + 2, output.num_turns

    async def play_all() -> None:
        await asyncio.gather(*(play(number, messages) for number, messages in enumerate(make_rows())))

    return play_all


def measure_peers(rounds: int, folder: Path) -> dict[str, Any]:
    """Play the episodes with both, in turns; the seconds of this process's CPU stand beside."""
    tokenizer = make_tokenizer(roles=["tool"], tags=["<tool_call>", "</tool_call>"])
    model = make_tiny_model(folder, max_context_tokens=1024, tokenizer=tokenizer)

    async def measure() -> dict[str, Any]:
        async with started("hf", model, max_context_tokens=1024) as engine:
            sampler = ScriptedSampler(engine, tokenizer)
            sides = {"rlinf": ours(sampler, tokenizer), "verl": verl(sampler, tokenizer)}
            wall: dict[str, list[float]] = {side: [] for side in sides}
            cpu: dict[str, list[float]] = {side: [] for side in sides}
            for number in range(rounds + 1):
                for side, play in list(sides.items())[:: 1 if number % 2 else -1]:
                    before, begin, spent = sampler.num_tokens, time.perf_counter(), time.process_time()
                    await play()
                    if number:
                        tokens = sampler.num_tokens - before
                        wall[side].append(tokens / (time.perf_counter() - begin))
                        cpu[side].append(tokens / (time.process_time() - spent))
            return {
                "tokens_per_second": {side: statistics.median(found) for side, found in wall.items()},
                "speed_vs_verl": ratio(wall["rlinf"], wall["verl"]),
                "speed_vs_verl_cpu": ratio(cpu["rlinf"], cpu["verl"]),
                "rounds": {"tokens_per_second": wall, "tokens_per_cpu_second": cpu},
            }

    return asyncio.run(measure())
