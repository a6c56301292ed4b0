"""What tokens cost on their way from engines to the actor: the driver's CPU and memory, and memcpy next to it.

A step is that of a reasoning recipe without a model: ``BatchFiller`` and ``RolloutPool`` submit prompts, synthetic
engines return responses that lie ready, a reward of no work scores them, and actor ranks fetch them all. The workers
are the real ones, but for the engine and the tokenizer, whose work is not what is measured.

``driver_us_per_token`` and ``driver_bytes_per_token`` (the most that Python holds at a time) aim at 0.01 and 1.
``data_plane_vs_memcpy`` is the CPU time of all workers against copying as many bytes (13 a token) once, and ``copies``
the copies that a token takes at least: to the reward rank, and from there to each actor rank.

``data_plane`` says where the workers' time goes. A step with responses of one token has the same calls, records and
threads, and next to no tokens: ``us_per_group`` is its cost for each group of responses, ``of_groups`` that cost per
token of the whole step, and ``of_tokens`` the rest. ``lists`` is the part of it that makes Python lists, which the
tokenizer takes.

``tuples``, for comparison: the same responses as Python objects, passed from engine to reward to actor by the driver.

    python benchmarks/token_path.py --output benchmarks/results/token_path.json
    python benchmarks/token_path.py --quick
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.datasets.prompts import PromptSampler
from rlinf.data.messages.generation import Completion, GenerationRequest, GenerationResult
from rlinf.data.messages.responses import Prompt
from rlinf.placement import NodePlacementStrategy
from rlinf.runners.rollout_pool import RolloutPool
from rlinf.runners.step_batches import BatchFiller
from rlinf.scheduler import Cluster, Worker, WorkerGroup, wait_all
from rlinf.workers.actor.actor_worker import ActorWorker
from rlinf.workers.reward.reward_worker import RewardWorker
from rlinf.workers.rollout.generation_worker import GenerationWorker

REPO = Path(__file__).resolve().parents[1]
GROUP_SIZE, PROMPT_TOKENS = 16, 256
TOKEN_BYTES = 13
MANY_STEPS = 1_000_000


@dataclass(frozen=True)
class Case:
    """Sizes of a step."""

    groups: int
    response_tokens: int
    engines: int
    actors: int

    @property
    def tokens(self) -> int:
        """Tokens that the step generates."""
        return self.groups * GROUP_SIZE * self.response_tokens

    def __str__(self) -> str:
        return f"{self.tokens / 2**20:g} M tokens, {self.engines} engines, {self.actors} actors"


def load(case: Case) -> ReasoningConfig:
    """Return the recipe of a case."""
    overrides = [
        f"data.rollout_batch_size={case.groups}",
        f"algorithm.group_size={GROUP_SIZE}",
        f"actor.global_batch_size={case.groups * GROUP_SIZE}",
        f"algorithm.sampling_params.max_new_tokens={case.response_tokens}",
        f"runner.max_tokens_per_mbs={2 * case.response_tokens}",
        "~reward.rewards.math",
        f"+reward.rewards.long={{reward_type: overlong, max_tokens: {case.response_tokens}, buffer_tokens: 1}}",
    ]
    cfg = validate_cfg(load_recipe("tiny_math_grpo", overrides))
    assert isinstance(cfg, ReasoningConfig)
    return cfg


class ReadyEngine:
    """Returns responses that lie ready."""

    def __init__(self, length: int) -> None:
        generator = np.random.default_rng(0)
        self.completion = Completion(
            token_ids=generator.integers(0, 150_000, length, np.int32),  # type: ignore[arg-type]
            logprobs=-generator.random(length, np.float32),  # type: ignore[arg-type]
            versions=np.zeros(length, np.int32),  # type: ignore[arg-type]
            finish_reason="length",
        )

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Return the same response ``n`` times."""
        return GenerationResult(request_id=request.request_id, completions=(self.completion,) * request.params.n)


class Measured(Worker):
    """A worker that says what it has used."""

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads of the process."""
        return time.process_time()


@dataclass(frozen=True)
class TupleResponse:
    """A response as Python objects."""

    group_id: int
    index: int
    prompt: Prompt
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    reward: float = 0.0


class SyntheticRollout(GenerationWorker, Measured):
    """A rollout worker over an engine without a model."""

    async def init_worker(self) -> None:
        """Make the response."""
        self.set_length(self.cfg.algorithm.sampling_params.max_new_tokens)
        self.tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "")
        found = self.engine.completion  # type: ignore[attr-defined]
        columns = (found.token_ids, found.logprobs, found.versions)
        # As an engine has them: lists that end a generation, tuples in the message.
        self.columns = tuple(column.tolist() for column in columns)

    def set_length(self, tokens: int) -> None:
        """Make the response of another length."""
        self.engine = ReadyEngine(tokens)  # type: ignore[assignment]

    async def generate_tuples(self, prompt: Prompt, group_id: int) -> list[TupleResponse]:
        """Return responses as Python objects."""
        mask = (True,) * len(self.columns[0])
        ids, logprobs, versions = self.columns
        return [
            TupleResponse(group_id, index, prompt, tuple(ids), tuple(logprobs), tuple(versions), mask)
            for index in range(GROUP_SIZE)
        ]


class SyntheticReward(RewardWorker, Measured):
    """The reward worker."""

    async def score_tuples(self, responses: list[TupleResponse]) -> list[TupleResponse]:
        """Return the responses."""
        await asyncio.sleep(0)
        return responses


class SyntheticActor(ActorWorker, Measured):
    """The actor without a model."""

    def __init__(self, cfg: ReasoningConfig) -> None:
        Worker.__init__(self)
        self.cfg, self.batch, self.responses = cfg, None, None

    def take_tuples(self, responses: list[TupleResponse]) -> None:
        """Make tensors of responses, as a learner does."""
        self.batch = [
            [torch.tensor(column) for column in (r.token_ids, r.logprobs, r.versions, r.loss_mask)] for r in responses
        ]


class Bench:
    """The groups of a case, and the ways to make a step with them."""

    def __init__(self, case: Case, cluster: Cluster) -> None:
        self.case, self.cfg = case, load(case)
        names = self.cfg.group_names
        self.groups: dict[str, WorkerGroup[Any]] = {
            "rollout": SyntheticRollout.create_group(self.cfg),
            "reward": SyntheticReward.create_group(self.cfg),
            "actor": SyntheticActor.create_group(self.cfg),
        }
        sizes = {"rollout": case.engines, "reward": 1, "actor": case.actors}
        for name, group in self.groups.items():
            group.launch(cluster, NodePlacementStrategy([0] * sizes[name]), name=names[name], wait=False)
        for group in self.groups.values():
            group.wait_ready()
        wait_all(self.groups["rollout"].init_worker(), self.groups["reward"].init_worker())
        numbers = np.random.default_rng(1).integers(0, 150_000, (case.groups, PROMPT_TOKENS))
        self.prompts = [
            Prompt(index=index, token_ids=tuple(row.tolist()), text="?") for index, row in enumerate(numbers)
        ]
        sampler = PromptSampler(self.prompts, shuffle=False, seed=0)
        max_per_rank = max(2 * self.cfg.rollout.max_running_requests // GROUP_SIZE, 1)
        self.pool = RolloutPool(self.groups["rollout"], self.groups["reward"], max_per_rank=max_per_rank)
        self.filler = BatchFiller(self.cfg, self.pool, sampler)

    def arrays(self) -> object:
        """Make a step as the runner does; return what the driver holds of it."""
        batch = self.filler.fill(MANY_STEPS)
        self.groups["actor"].recv_responses(batch.group_ids).wait()
        self.pool.discard(batch.num_prompts)
        return batch

    def tuples(self) -> object:
        """Make a step whose responses the driver passes on."""
        rollout, reward, actor = (self.groups[name] for name in ("rollout", "reward", "actor"))
        ranks = self.case.engines
        calls = [
            rollout.execute_on(number % ranks).generate_tuples(prompt, number)
            for number, prompt in enumerate(self.prompts)
        ]
        scored = [reward.score_tuples(call.wait()[0]) for call in calls]
        responses = [response for call in scored for response in call.wait()[0]]
        actor.take_tuples(responses).wait()
        return responses

    def data_plane(self, per_token: float, turns: int) -> dict[str, float]:
        """Return the parts of the workers' CPU nanoseconds per token, whose sum is ``per_token``."""
        rollout, case = self.groups["rollout"], self.case
        rollout.set_length(1).wait()
        seconds = statistics.median([self.measure(self.arrays)["workers"] for _ in range(turns + 1)][1:])
        rollout.set_length(case.response_tokens).wait()
        of_groups = seconds / case.tokens * 1e9
        return {
            "us_per_group": seconds / case.groups * 1e6,
            "of_groups": of_groups,
            "of_tokens": per_token - of_groups,
            "lists": list_cpu(case.response_tokens) / case.response_tokens * 1e9,
        }

    def workers_cpu(self) -> float:
        """Return the CPU time of all workers so far."""
        return sum(sum(group.cpu_seconds().wait()) for group in self.groups.values())

    def measure(self, step: Callable[[], object]) -> dict[str, float]:
        """Make a step; return CPU seconds of the driver and of the workers, and seconds."""
        workers, driver, started = self.workers_cpu(), time.process_time(), time.perf_counter()
        kept = step()
        seconds, driver = time.perf_counter() - started, time.process_time() - driver
        del kept
        return {"driver": driver, "workers": self.workers_cpu() - workers, "seconds": seconds}

    def driver_bytes(self, step: Callable[[], object]) -> int:
        """Return the most memory that Python holds in the driver during a step, beyond what it held before."""
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        kept = step()
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        del kept
        return peak


def memcpy_cpu(num_bytes: int) -> float:
    """Return the CPU seconds of copying as many bytes, memory in use before; the median of five."""
    source, target = (np.ones(num_bytes, np.uint8) for _ in range(2))
    times = []
    for _ in range(5):
        started = time.process_time()
        np.copyto(target, source)
        times.append(time.process_time() - started)
    return statistics.median(times)


def list_cpu(tokens: int) -> float:
    """Return the CPU seconds of making a list of tokens; the median of five."""
    ids = torch.randint(0, 150_000, (GROUP_SIZE, tokens), dtype=torch.int32)
    times = []
    for _ in range(5):
        started = time.process_time()
        for row in ids:
            row.tolist()
        times.append((time.process_time() - started) / GROUP_SIZE)
    return statistics.median(times)


def run(case: Case, turns: int, *, with_tuples: bool) -> dict[str, Any]:
    """Measure a case: the contenders in turns, once to warm up."""
    with Cluster() as cluster:
        bench = Bench(case, cluster)
        steps: dict[str, Callable[[], object]] = {"arrays": bench.arrays}
        if with_tuples:
            steps["tuples"] = bench.tuples
        measured: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
        for turn in range(turns + 1):
            for name, step in steps.items():
                found = bench.measure(step)
                if turn:
                    measured[name].append(found)
        held = {name: bench.driver_bytes(step) for name, step in steps.items()}
        workers = statistics.median(turn["workers"] for turn in measured["arrays"])
        parts = bench.data_plane(workers / case.tokens * 1e9, turns)
    memcpy = memcpy_cpu(TOKEN_BYTES * case.tokens)
    report: dict[str, Any] = {"tokens": case.tokens, "copies": 1 + case.actors}
    for name, each in measured.items():
        middle = {key: statistics.median(turn[key] for turn in each) for key in each[0]}
        report[name] = {
            "driver_us_per_token": middle["driver"] / case.tokens * 1e6,
            "driver_bytes_per_token": held[name] / case.tokens,
            "driver_share_of_cpu": middle["driver"] / (middle["driver"] + middle["workers"]),
            "data_plane_ns_per_token": middle["workers"] / case.tokens * 1e9,
            "data_plane_vs_memcpy": middle["workers"] / memcpy,
            "tokens_per_second": case.tokens / middle["seconds"],
        }
    report["arrays"]["data_plane"] = parts
    if with_tuples:
        better = {key: report["tuples"][key] / report["arrays"][key] for key in report["tuples"]}
        report["tuples_vs_arrays"] = {key: better[key] for key in better if key != "tokens_per_second"}
    return report


def main() -> None:
    """Run the benchmark and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="measured steps of each contender")
    parser.add_argument("--quick", action="store_true", help="one small case, one turn")
    parser.add_argument("--output", type=Path, help="write the report to this file, too")
    args = parser.parse_args()
    # Ray gives its workers a low priority, which counts where the machine has other work to do.
    os.environ.setdefault("RAY_worker_niceness", "0")
    shapes = [(2, 256)] if args.quick else [(32, 2048), (256, 4096)]
    layouts = [(1, 1)] if args.quick else [(1, 1), (8, 1), (1, 4), (8, 4)]
    cases = [Case(groups, length, engines, actors) for groups, length in shapes for engines, actors in layouts]
    report: dict[str, Any] = {"machine": {"processor": platform.machine(), "cpus": os.cpu_count()}}
    for case in cases:
        turns = 1 if args.quick else args.turns
        with_tuples = case.tokens <= 1 << 20 and (case.engines, case.actors) == (1, 1)
        report[str(case)] = run(case, turns, with_tuples=with_tuples)
        print(json.dumps({str(case): report[str(case)]}, indent=2), flush=True)
    if args.output is not None:
        args.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
