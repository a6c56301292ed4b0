"""Measures of ``agents.py`` that need training, or the workers of a run: P2, P4, P5 and P7."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from agent_episodes import NUM_EPISODES, NUM_TURNS, TURN_TOKENS, RecordedClient, make_episodes, more, ratio, started
from reasoning_peers import MODES, Case, load_rlinf, make_inputs, run_rlinf

from examples.reasoning.make_tiny_model import make_tiny_model, make_tokenizer
from rlinf.agents.episode import Episode
from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.episode_groups import make_group
from rlinf.agents.recorder import TokenTree
from rlinf.agents.template import ChatTemplate
from rlinf.config import load_recipe, validate_cfg
from rlinf.data.messages.generation import Completion, SamplingParams
from rlinf.data.messages.responses import Prompt, ResponseBatch
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.runners.launch import launch_groups
from rlinf.scheduler import Cluster, wait_all
from rlinf.workers.actor.text_learner import TextLearner

STEP = Case(128, 4, num_prompts=32, max_numbers=2, answer_tokens=8)
"""A step of tiny math, with half of the prompts."""
TOOL_SECONDS, SLOW_FACTOR, SLOW_SHARE = 0.05, 20, 0.05
CALLING = "workflow: multi_turn, max_turns: 2, max_context_tokens: 512"
RUNS: dict[str, tuple[str, ...]] = {
    "without a workflow": (),
    "rlvr": ("+agent={workflow: rlvr}",),
    "equal tools": (f"+agent={{{CALLING}, respond: 'agent_steps:call'}}", "data.apply_chat_template=true"),
    "slow tools": (f"+agent={{{CALLING}, respond: 'agent_steps:call_slowly'}}", "data.apply_chat_template=true"),
}
"""Runs of one size by name, with what the recipe says of agents."""
ORDERS: dict[str, tuple[str, ...]] = {
    "in order": (),
    "ahead": MODES["asynchronous"],
    "carried over": (*MODES["asynchronous"], "algorithm.staleness_threshold=1", "algorithm.carry_over=0.5"),
}
"""Whether generation waits for the step before, or is up to two steps ahead; whether a step waits for all groups.

Of groups of eight, 34 in 100 have a response of ``SLOW_SHARE``: a step may leave as many to the next one, and some more
where there happen to be more; all others are as new as in order.
"""

FORKED_TURNS, SAMPLED, REWRITTEN, RESULT = 8, 32, 32, 16
"""Of an episode whose client rewrites every turn: turns, and tokens of a turn, of its text anew and of a result."""
FORKED_PROMPT, FORKED_EPISODES = 64, 16


async def call(reply: Any, prompt: Any) -> str | None:
    """Stand for a tool that takes its time after the first turn."""
    return await _call(reply, prompt, slow_share=0.0)


async def call_slowly(reply: Any, prompt: Any) -> str | None:
    """Stand for a tool that takes ``SLOW_FACTOR`` times as long for a few."""
    return await _call(reply, prompt, slow_share=SLOW_SHARE)


async def _call(reply: Any, prompt: Any, *, slow_share: float) -> str | None:
    if reply.turn:
        return None
    is_slow = random.Random(f"{prompt.index} {reply.text}").random() < slow_share
    await asyncio.sleep(TOOL_SECONDS * (SLOW_FACTOR if is_slow else 1))
    return "More."


def measure_run(name: str, order: str, steps: int, folder: Path) -> dict[str, float]:
    """Make a run of this process; return the seconds of a step and of its parts."""
    make_inputs(STEP, folder)
    found = run_rlinf(STEP, steps, folder, *RUNS[name], *ORDERS[order])
    return {key: found[key] for key in ("step_seconds", "step_cpu_seconds", "answering_seconds", "training_seconds")}


class _Engine:
    """The bare engine of this process, and the requests of episodes that were played with it once.

    Args:
        model: The model's folder.
        template: Renders the episodes.
    """

    def __init__(self, model: Path, template: ChatTemplate) -> None:
        self._loop = asyncio.new_event_loop()
        self._started = started("hf", model)
        self._engine = self._loop.run_until_complete(self._started.__aenter__())
        self._clients = [RecordedClient(self._engine) for _ in range(NUM_EPISODES)]
        self._loop.run_until_complete(self._play(template))

    async def _play(self, template: ChatTemplate) -> None:
        async def play(episode: EpisodeEngine) -> None:
            chat = episode.chat()
            while (said := more(await chat.reply(), None)) is not None:
                chat.say({"role": "user", "content": said})

        await asyncio.gather(*map(play, make_episodes(self._clients, template)))

    async def _repeat(self, client: RecordedClient) -> None:
        for request, _ in client.turns:
            await self._engine.generate(request)

    async def _repeat_all(self) -> None:
        await asyncio.gather(*map(self._repeat, self._clients))

    def repeat(self) -> None:
        """Complete all requests again, each when the one before it of its episode is complete."""
        self._loop.run_until_complete(self._repeat_all())

    def close(self) -> None:
        """End the engine."""
        self._loop.run_until_complete(self._started.__aexit__(None, None, None))
        self._loop.close()


def measure_workers(rounds: int, folder: Path) -> dict[str, Any]:
    """P7 where no peer runs: the episodes of P1 by the workers of a run, against the bare engine of this process."""
    case = Case(128, 4, num_prompts=8, max_numbers=2, answer_tokens=TURN_TOKENS)
    make_inputs(case, folder)
    agent = f"+agent={{workflow: multi_turn, max_turns: {NUM_TURNS}, max_context_tokens: 512"
    agent += ", respond: 'agent_episodes:more'}"
    cfg = load_rlinf(case, folder, agent, "data.apply_chat_template=true")
    template = ChatTemplate(make_tokenizer())
    prompts = [each.prompt for each in make_episodes([None] * case.num_prompts, template)]
    params = SamplingParams(max_new_tokens=TURN_TOKENS, ignore_eos=True, n=NUM_EPISODES // case.num_prompts, seed=0)
    engine = _Engine(folder / "model", template)
    numbers = iter(range(10**6))
    with Cluster(cfg.cluster.num_nodes, cfg.cluster) as cluster:
        _, groups = launch_groups(cfg, cluster)
        wait_all(*(group.init_worker() for group in groups.values()))
        agents = groups["reward"]

        def play() -> None:
            wait_all(*(agents.generate(p, group_id=next(numbers), params=params, split="eval") for p in prompts))
            wait_all(agents.clear("eval"))

        sides: dict[str, Callable[[], None]] = {"workers": play, "engine": engine.repeat}
        measured: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(rounds + 1):
            for side, run in list(sides.items())[:: 1 if number % 2 else -1]:
                begin = time.perf_counter()
                run()
                if number:
                    tokens = NUM_EPISODES * NUM_TURNS * TURN_TOKENS
                    measured[side].append(tokens / (time.perf_counter() - begin))
    engine.close()
    return {
        "tokens_per_second": {side: statistics.median(found) for side, found in measured.items()},
        "workers_vs_engine": ratio(measured["workers"], measured["engine"]),
        "rounds": measured,
    }


@dataclass(frozen=True)
class _Played:
    """Episodes as the actor gets them, with the tokens that differ among all contexts."""

    batch: ResponseBatch
    unique_tokens: int
    all_tokens: int


def _play_tokens(number: int, *, is_rewritten: bool) -> tuple[Episode, int]:
    """Return an episode of random tokens, and how many tokens it has: those in several contexts count once."""
    chance = random.Random(number)

    def some(count: int) -> list[int]:
        return [chance.randrange(4, 100) for _ in range(count)]

    tree = TokenTree()
    context, unique = some(FORKED_PROMPT), FORKED_PROMPT
    for turn in range(FORKED_TURNS):
        sampled = some(SAMPLED)
        completion = Completion(
            token_ids=tuple(sampled), logprobs=(-4.6,) * SAMPLED, versions=(0,) * SAMPLED, finish_reason="stop"
        )
        tree.commit(tree.begin(context), completion)
        is_last = turn == FORKED_TURNS - 1
        added = [] if is_last else [*(some(REWRITTEN) if is_rewritten else []), *some(RESULT)]
        context = [*context, *([] if is_rewritten else sampled), *added]
        unique += SAMPLED + len(added)
    trajectories = tree.trajectories()
    metrics = {"turns": float(FORKED_TURNS)}
    return Episode(trajectories=trajectories, status="done", outcome=None, transcript=(), metrics=metrics), unique


def _play_all(*, is_rewritten: bool, at_least: int = 0) -> _Played:
    """Play episodes: as many as make a step, or as have so many unique tokens."""
    template, prompt = ChatTemplate(make_tokenizer()), Prompt(index=0, token_ids=(1,), text="")
    episodes, unique = [], 0
    while (len(episodes) < FORKED_EPISODES) if not at_least else (unique < at_least or len(episodes) % 2):
        episode, count = _play_tokens(len(episodes), is_rewritten=is_rewritten)
        episodes.append(episode)
        unique += count
    groups = [
        make_group(prompt, begin // 2, episodes[begin : begin + 2], template.tokenizer).batch
        for begin in range(0, len(episodes), 2)
    ]
    batch = ResponseBatch.concat(groups)
    rewarded = tuple(dataclasses.replace(each, reward=float(each.index)) for each in batch.responses)
    contexts = sum(len(prompt_ids) for prompt_ids in batch.prompt_ids)
    return _Played(dataclasses.replace(batch, responses=rewarded), unique, contexts + len(batch.token_ids))


class _Trainer:
    """An actor's learner in this process, which makes steps with one batch."""

    def __init__(self, folder: Path, played: _Played, *, shares: bool) -> None:
        episodes = len(played.batch.responses)
        keys = (
            f"actor.model.model_path={folder}",
            "+agent={workflow: multi_turn, max_turns: 8, max_context_tokens: 1024}",
            "data.apply_chat_template=true",
            "algorithm.group_size=2",
            f"data.rollout_batch_size={episodes // 2}",
            f"actor.global_batch_size={episodes}",
            "runner.max_tokens_per_mbs=4096",
            f"runner.share_prompts={str(shares).lower()}",
        )
        cfg: Any = validate_cfg(load_recipe("tiny_math_grpo", list(keys)))
        torch.manual_seed(0)
        engine = FSDPEngine(
            get_model(cfg.actor.model),
            optim=cfg.actor.optim,
            fsdp=cfg.actor.fsdp_config,
            precision="fp32",
            device=torch.device("cpu"),
            rank=0,
            world_size=1,
        )
        self.learner, self.played, self.steps = TextLearner(engine, cfg=cfg), played, 0

    def seconds(self) -> tuple[float, float]:
        """Make a step; return its seconds and its CPU seconds."""
        self.steps += 1
        begin, cpu = time.perf_counter(), time.process_time()
        self.learner.compute_advantages(self.played.batch)
        self.learner.update(self.steps)
        return time.perf_counter() - begin, time.process_time() - cpu


def measure_forks(rounds: int, folder: Path) -> dict[str, Any]:
    """P4: a training step on histories that a client rewrites, against one with as many tokens and no forks.

    Both have turns of the same length behind contexts of the same length; ``unshared`` computes every context anew.
    """
    make_tiny_model(folder, max_context_tokens=1024)
    forked = _play_all(is_rewritten=True)
    plain = _play_all(is_rewritten=False, at_least=forked.unique_tokens)
    trainers = {
        "forked": _Trainer(folder, forked, shares=True),
        "plain": _Trainer(folder, plain, shares=True),
        "unshared": _Trainer(folder, forked, shares=False),
    }
    wall: dict[str, list[float]] = {name: [] for name in trainers}
    cpu: dict[str, list[float]] = {name: [] for name in trainers}
    for number in range(rounds + 1):
        for name, trainer in list(trainers.items())[:: 1 if number % 2 else -1]:
            seconds, cpu_seconds = trainer.seconds()
            if number:
                # Of a token: the steps have nearly, not quite, as many.
                wall[name].append(seconds / trainer.played.unique_tokens)
                cpu[name].append(cpu_seconds / trainer.played.unique_tokens)
    return {
        "unique_tokens": {name: trainer.played.unique_tokens for name, trainer in trainers.items()},
        "all_tokens": {name: trainer.played.all_tokens for name, trainer in trainers.items()},
        "microseconds_per_unique_token": {name: statistics.median(found) * 1e6 for name, found in wall.items()},
        "forked_vs_plain": ratio(wall["forked"], wall["plain"]),
        "forked_vs_plain_cpu": ratio(cpu["forked"], cpu["plain"]),
        "gain_of_sharing": ratio(wall["unshared"], wall["forked"]),
        "gain_of_sharing_cpu": ratio(cpu["unshared"], cpu["forked"]),
    }
