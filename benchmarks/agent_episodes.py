"""Measures of ``agents.py`` that need an engine and no training: P1, P3, P6 and P8."""

from __future__ import annotations

import asyncio
import gc
import pickle
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from aiohttp import web

from examples.reasoning.make_tiny_model import make_tokenizer
from rlinf.agents.episode import play_episode
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.episode_groups import make_group
from rlinf.agents.server.agent_server import AgentServer
from rlinf.agents.template import ChatTemplate
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.agents.workflow import WorkflowContext
from rlinf.agents.workflows.multi_turn import MultiTurnWorkflow
from rlinf.config.schema.agent import MultiTurnConfig
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.data.messages.responses import Prompt, ResponseGroup, RewardedGroup
from rlinf.hybrid_engines.generation import generation_engines
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine
from rlinf.utils.event_loop import new_event_loop

NUM_EPISODES, NUM_TURNS, TURN_TOKENS = 64, 4, 32
VARIED_TOKENS = tuple(range(TURN_TOKENS // 2, TURN_TOKENS + TURN_TOKENS // 2 + 1))
"""Of the turns of episodes whose requests do not end all at once, as an engine meets them."""
MAX_CONTEXT_TOKENS = 512
BLOCK_TOKENS = 16
"""Tokens of a block of a prefix cache."""
SERVED_TOKENS, SERVED_REQUESTS = 32, 32
"""Of a completion, and of an episode, where the server's CPU time is measured."""
NUM_CONNECTIONS = 16
QUESTION = "What is the sum of these two numbers? " * 5

CLIENT = """
import asyncio, json, sys
import aiohttp
url, question, turns, per_session, *keys = sys.argv[1:]
async def play(http, key):
    messages = [{"role": "user", "content": question}]
    for _ in range(int(turns)):
        body = {"model": "m", "messages": messages}
        async with http.post(url, json=body, headers={"Authorization": "Bearer " + key}) as response:
            assert response.status == 200, await response.text()
            found = await response.json()
        if "choices" in found and per_session == "1":
            messages = [*messages, found["choices"][0]["message"], {"role": "user", "content": "More."}]
async def main():
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        print("ready", flush=True)
        sys.stdin.readline()
        await asyncio.gather(*(play(http, key) for key in keys))
        print("done", flush=True)
asyncio.run(main())
"""


def more(reply: Any, prompt: Any) -> str | None:
    """Respond at once, and end the episode with its last turn."""
    del prompt
    return "More." if reply.turn + 1 < NUM_TURNS else None


class RecordedClient:
    """Samples with an engine of this process, and keeps requests with their completions.

    Args:
        engine: The engine.
    """

    def __init__(self, engine: GenerationEngine) -> None:
        self._engine = engine
        self.turns: list[tuple[GenerationRequest, Completion]] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``GenerationClient``."""
        completion = (await self._engine.generate(request)).completions[0]
        self.turns.append((request, completion))
        return completion


class InstantClient:
    """Completes at once."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``GenerationClient``."""
        del request
        count = SERVED_TOKENS
        return Completion(
            token_ids=(20,) * count, logprobs=(-0.5,) * count, versions=(0,) * count, finish_reason="length"
        )


@asynccontextmanager
async def started(
    name: str, model: Path, *, max_context_tokens: int = MAX_CONTEXT_TOKENS
) -> AsyncIterator[GenerationEngine]:
    """Start an engine of this process."""
    engine = generation_engines.get(name)(
        generation_engines.configs.get(name)(rollout_backend=name, max_running_requests=NUM_EPISODES),
        model_path=model,
        device=torch.device("cpu"),
        precision="fp32",
        seed=0,
        max_context_tokens=max_context_tokens,
    )
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def make_episodes(
    clients: Sequence[Any], template: ChatTemplate, *, turn_tokens: Sequence[int] = (TURN_TOKENS,)
) -> list[EpisodeEngine]:
    """Return an episode for each client.

    Args:
        clients: One of each episode.
        template: Of its prompt.
        turn_tokens: How long its completions are, of the episodes in turn.
    """
    chance = random.Random(0)
    episodes = []
    for number, client in enumerate(clients):
        count = turn_tokens[number % len(turn_tokens)]
        messages = ({"role": "user", "content": f"{chance.randrange(10**6)} {QUESTION[:76]}"},)
        ids = tuple(template.prompt(messages))
        episodes.append(
            EpisodeEngine(
                Prompt(index=number, token_ids=ids, text="", messages=messages),
                client,
                params=SamplingParams(max_new_tokens=count, ignore_eos=True),
                limits=EpisodeLimits(max_turns=NUM_TURNS, max_context_tokens=MAX_CONTEXT_TOKENS),
                seed=number,
                name=f"episode-{number}",
                template=template,
            )
        )
    return episodes


class Contest:
    """The same episodes by a workflow, over HTTP and by the bare engine, on one engine.

    Args:
        engine: Samples for all of them.
    """

    def __init__(self, engine: GenerationEngine) -> None:
        self.engine = engine
        self.template = ChatTemplate(make_tokenizer())
        self.recorded: list[RecordedClient] = []
        self.forks = 0.0
        context = WorkflowContext(template=self.template, tools=ToolBox({}, self.template.tokenizer))
        config = MultiTurnConfig(workflow="multi_turn", respond=f"{__name__}:{more.__name__}")
        self.workflow = MultiTurnWorkflow(config, context)

    async def seconds_by_workflow(self) -> tuple[float, float]:
        """Play the episodes in this process; return how long they take, and its CPU time for them.

        Their rows are there before, as those of a run are, which reads its data once.
        """
        self.recorded = [RecordedClient(self.engine) for _ in range(NUM_EPISODES)]
        engines = make_episodes(self.recorded, self.template, turn_tokens=VARIED_TOKENS)
        return await _seconds_of(*(play_episode(self.workflow, each, timeout_seconds=None) for each in engines))

    async def seconds_by_engine(self) -> tuple[float, float]:
        """Return the same for the bare engine: it gets the prompts of the last episodes, turn by turn of each."""

        async def repeat(client: RecordedClient) -> None:
            for request, _ in client.turns:
                await self.engine.generate(request)

        return await _seconds_of(*map(repeat, self.recorded))

    async def seconds_by_http(self) -> tuple[float, float]:
        """Return the same for a client in a process of its own, which has been started."""
        clients = [RecordedClient(self.engine) for _ in range(NUM_EPISODES)]
        engines = make_episodes(clients, self.template, turn_tokens=VARIED_TOKENS)
        server = AgentServer(self.template)
        await server.start()
        try:
            async with AsyncExitStack() as stack:
                sessions = [await stack.enter_async_context(server.open(each)) for each in engines]
                keys = [session.key for session in sessions]
                question = str(engines[0].prompt.messages[0]["content"])
                found = await _seconds_of_client(server.base_url, question, NUM_TURNS, keys, with_history=True)
            self.forks = float(sum(sum(each.recorder.forks().values()) for each in engines))
            return found
        finally:
            await server.close()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Await a coroutine in an event loop like those of workers."""
    loop = new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def _seconds_of(*played: Coroutine[Any, Any, Any]) -> tuple[float, float]:
    begin, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*played)
    return time.perf_counter() - begin, time.process_time() - cpu


async def _seconds_of_client(
    url: str, question: str, turns: int, keys: Sequence[str], *, with_history: bool
) -> tuple[float, float]:
    """Run a client; return the seconds of its requests, and this process's CPU time for them."""
    arguments = [f"{url}/chat/completions", question, str(turns), str(int(with_history)), *keys]
    pipe = asyncio.subprocess.PIPE
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, *arguments, stdin=pipe, stdout=pipe)
    assert client.stdout is not None
    assert client.stdin is not None
    assert await client.stdout.readline() == b"ready\n"
    begin, cpu = time.perf_counter(), time.process_time()
    client.stdin.write(b"\n")
    assert await client.stdout.readline() == b"done\n"
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    assert await client.wait() == 0
    return seconds, cpu


def measure_tokens(rounds: int, model: Path, name: str) -> dict[str, Any]:
    """P1, P8 and a part of P3: tokens per second of a workflow, over HTTP and of the bare engine."""
    tokens = NUM_TURNS * sum(VARIED_TOKENS[number % len(VARIED_TOKENS)] for number in range(NUM_EPISODES))

    async def measure() -> dict[str, Any]:
        async with started(name, model) as engine:
            contest = Contest(engine)
            gc.collect()
            gc.freeze()  # as workers do
            sides: dict[str, Callable[[], Any]] = {
                "workflow": contest.seconds_by_workflow,
                "engine": contest.seconds_by_engine,
                "http": contest.seconds_by_http,
            }
            measured: dict[str, list[float]] = {side: [] for side in sides}
            by_cpu: dict[str, list[float]] = {side: [] for side in sides}
            for number in range(rounds + 1):
                order = list(sides.items())
                # The first round warms up; the bare engine repeats what a workflow has played.
                for side, play in order if number % 2 == 0 else reversed(order):
                    seconds, cpu = await play()
                    if number:
                        measured[side].append(tokens / seconds)
                        by_cpu[side].append(tokens / cpu)
            return {
                "tokens_per_second": {side: statistics.median(found) for side, found in measured.items()},
                "workflow_vs_engine": ratio(measured["workflow"], measured["engine"]),
                "workflow_vs_engine_cpu": ratio(by_cpu["workflow"], by_cpu["engine"]),
                "http_vs_workflow": ratio(measured["http"], measured["workflow"]),
                "http_vs_workflow_cpu": ratio(by_cpu["http"], by_cpu["workflow"]),
                "http_forks": contest.forks,
                "prefix_share": prefix_share(contest.recorded),
                "rounds": {"tokens_per_second": measured, "tokens_per_cpu_second": by_cpu},
            }

    return run(measure())


def prefix_share(clients: Sequence[RecordedClient]) -> float:
    """P8: of the full blocks that an engine holds of a turn, the share that the prompt of the next begins with."""
    held, found = 0, 0
    for client in clients:
        for (request, completion), (following, _) in zip(client.turns, client.turns[1:], strict=False):
            known = (*request.prompt_ids, *completion.token_ids)
            prompt = following.prompt_ids
            common = next((i for i, (a, b) in enumerate(zip(known, prompt, strict=False)) if a != b), len(known))
            held += len(known) // BLOCK_TOKENS
            found += min(common, len(prompt)) // BLOCK_TOKENS
    return found / held


def measure_server(rounds: int, num_requests: int) -> dict[str, Any]:
    """P3: CPU milliseconds of the serving process per request, next to a server of the same package that does nothing.

    They are reading, chat template, encoding, recording and writing: the engine completes at once.
    """
    served: list[float] = []
    bare: list[float] = []
    for number in range(rounds):
        order = [(served, of_agent_server), (bare, of_bare_server)]
        for found, measure in order if number % 2 else reversed(order):
            found.append(run(measure(num_requests)))
    return {
        "server_milliseconds_per_request": served,
        "bare_milliseconds_per_request": bare,
        "median": statistics.median(served),
    }


async def milliseconds(base_url: str, key: str) -> float:
    """Return the CPU time of this process for one of the requests that a client sends over its connections."""
    turns = SERVED_REQUESTS // NUM_CONNECTIONS
    _, cpu = await _seconds_of_client(base_url, QUESTION, turns, [key] * NUM_CONNECTIONS, with_history=False)
    return cpu / SERVED_REQUESTS * 1e3


async def of_agent_server(num_requests: int) -> float:
    """Serve episodes one after the other; return the CPU time of a request."""
    template = ChatTemplate(make_tokenizer())
    server = AgentServer(template)
    await server.start()
    found = []
    try:
        for _ in range(num_requests // SERVED_REQUESTS):
            engine = EpisodeEngine(
                Prompt(index=0, token_ids=(1,), text=""),
                InstantClient(),
                params=SamplingParams(max_new_tokens=SERVED_TOKENS),
                limits=EpisodeLimits(max_turns=SERVED_REQUESTS, max_context_tokens=4096),
                seed=0,
                template=template,
            )
            async with server.open(engine) as session:
                found.append(await milliseconds(server.base_url, session.key))
    finally:
        await server.close()
    return statistics.median(found)


async def of_bare_server(num_requests: int) -> float:
    """Serve what does nothing but read and write JSON; return the CPU time of a request."""

    async def reply(request: web.Request) -> web.Response:
        return web.json_response({"received": await request.json()})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", reply)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return statistics.median([await milliseconds(url, "key") for _ in range(num_requests // SERVED_REQUESTS)])
    finally:
        await runner.cleanup()


class LongClient:
    """Completes at once, with many tokens."""

    tokens = 512

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``GenerationClient``."""
        del request
        count = self.tokens
        return Completion(
            token_ids=tuple(range(4, 100)) * 5 + (20,) * (count - 480),
            logprobs=tuple(-0.5 - index / 999 for index in range(count)),
            versions=(0,) * count,
            finish_reason="length",
        )


def measure_messages(rounds: int) -> dict[str, Any]:
    """P6: what a token of an episode costs on its way: in the process that plays it, and in the driver."""
    template = ChatTemplate(make_tokenizer())
    engines = make_episodes([LongClient() for _ in range(16)], template)
    for each in engines:
        each._limits = EpisodeLimits(max_turns=NUM_TURNS, max_context_tokens=10**6)
    context = WorkflowContext(template=template, tools=ToolBox({}, template.tokenizer))
    workflow = MultiTurnWorkflow(MultiTurnConfig(workflow="multi_turn", respond=f"{__name__}:{more.__name__}"), context)

    async def play() -> ResponseGroup:
        episodes = [await play_episode(workflow, each, timeout_seconds=None) for each in engines]
        return make_group(engines[0].prompt, 0, episodes, template.tokenizer)

    group = run(play())
    rewarded = RewardedGroup.of(group.batch.responses)
    columns = (group.batch.token_ids, group.batch.logprobs, group.batch.versions, group.batch.loss_mask)
    objects = [tuple(column.tolist()) for column in columns]
    tokens = len(group.batch.token_ids)
    contenders = {"driver": rewarded, "episode_worker": group, "python_objects": objects}
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, message in contenders.items():
            begin = time.process_time()
            for _ in range(10):
                pickle.loads(pickle.dumps(message, protocol=5))
            measured[name].append((time.process_time() - begin) / 10 / tokens * 1e6)
    report: dict[str, Any] = {"tokens": tokens}
    for name, message in contenders.items():
        report[f"{name}_microseconds_per_token"] = statistics.median(measured[name])
        report[f"{name}_bytes_per_token"] = held_bytes(message) / tokens
    return report


def held_bytes(message: Any) -> int:
    """Return the memory that Python holds of a message that has been received; that of tensors counts, too."""
    data = pickle.dumps(message, protocol=5)
    tracemalloc.start()
    kept = pickle.loads(data)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    if isinstance(kept, ResponseGroup):
        batch = kept.batch
        held += sum(column.nbytes for column in (batch.token_ids, batch.logprobs, batch.versions, batch.loss_mask))
    return held


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """Return the median over rounds of the quotient within a round."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))
