"""In which order responses run, wait, come back and are returned: the queue of in-process engines over a toy model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.data.messages.generation import GenerationRequest, GenerationResult, SamplingParams
from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.generation.engine_scheduler import EngineScheduler
from rlinf.hybrid_engines.generation.executor_thread import ThreadFuture
from rlinf.hybrid_engines.generation.model_runner import ModelRunner, RunnerLimits, SampledToken
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence
from rlinf.hybrid_engines.weights.bucket import Manifest, plan_buckets

ROOM = 3


class ToyBackend(ModelRunner):
    """Samples a response's seed modulo 1000, again and again.

    Attributes:
        added: Requests of the responses taken up, in order.
        running: By key.
    """

    def __init__(self) -> None:
        self.added: list[str] = []
        self.running: dict[int, TokenSequence] = {}

    def load(self) -> RunnerLimits:
        return RunnerLimits(vocab_size=1000, max_running=ROOM)

    def add(self, sequences: Sequence[TokenSequence]) -> None:
        self.added += [sequence.request_id for sequence in sequences]
        self.running |= {sequence.key: sequence for sequence in sequences}

    def step(self) -> Iterable[SampledToken]:
        return [SampledToken(key, sequence.seed % 1000, -1.0, -2.0) for key, sequence in self.running.items()]

    def remove(self, keys: Sequence[int]) -> None:
        for key in keys:
            del self.running[key]

    def begin_update(self, manifest: Manifest) -> None: ...

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None: ...

    def commit(self) -> None: ...

    def sleep(self) -> bool:
        return True

    def wake(self) -> None: ...

    def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        return None

    def close(self) -> None: ...


class Served:
    """A schedule with what it has answered."""

    def __init__(self, folder: Path) -> None:
        self.model_runner = ToyBackend()
        self.schedule = EngineScheduler(self.model_runner, model_path=folder, seed=0, max_context_tokens=100)
        self.schedule.load()
        self.replies: dict[str, ThreadFuture[GenerationResult]] = {}

    def submit(self, name: str, **params: Any) -> None:
        sampling = SamplingParams(**{"max_new_tokens": 2, "ignore_eos": True, **params})
        self.replies[name] = ThreadFuture()
        request = GenerationRequest(request_id=name, prompt_ids=(5, 6), params=sampling)
        self.schedule.enter(request, self.replies[name])

    def run(self) -> None:
        while self.schedule.work():
            pass

    async def result(self, name: str) -> GenerationResult:
        return await asyncio.wait_for(self.replies[name], 5)


@pytest.fixture
def play(tiny_model: Path) -> Callable[..., None]:
    """Return a function that plays a scenario on an event loop, as replies belong to one."""

    def play(scenario: Callable[[Served], Any]) -> None:
        async def run() -> None:
            await scenario(Served(tiny_model))

        asyncio.run(run())

    return play


def test_what_an_update_interrupts_goes_on_first_and_in_its_order(play: Callable[..., None]) -> None:
    async def scenario(served: Served) -> None:
        for name in "abcde":
            served.submit(name)
        served.schedule.work()
        assert served.model_runner.added == ["a", "b", "c"]
        paused: ThreadFuture[None] = ThreadFuture()
        served.schedule.pause("keep", paused)
        served.schedule.begin_update(Manifest(version=4, entries=(), bucket_sizes=(), bucket_owners=()))
        assert not served.model_runner.running, "nothing keeps a cache of older weights"
        served.schedule.commit()
        served.schedule.resume()
        served.run()
        assert served.model_runner.added == ["a", "b", "c", "a", "b", "c", "d", "e"]
        assert (await served.result("a")).completions[0].versions == (-1, 4)
        assert (await served.result("e")).completions[0].versions == (4, 4)

    play(scenario)


def test_responses_are_returned_in_the_order_of_their_seeds(play: Callable[..., None]) -> None:
    async def scenario(served: Served) -> None:
        served.submit("all", n=4, seed=7)
        served.submit("again", n=4, seed=7)
        served.submit("fewer", n=2, seed=7)
        served.submit("other", n=4, seed=8)
        served.submit("later", n=2, seed=7, first_index=2)
        served.run()
        tokens = {name: [c.token_ids for c in (await served.result(name)).completions] for name in served.replies}
        assert len(set(tokens["all"])) == 4
        assert tokens["again"] == tokens["all"]
        assert tokens["fewer"] == tokens["all"][:2]
        assert tokens["later"] == tokens["all"][2:]
        assert not set(tokens["other"]) & set(tokens["all"])

    play(scenario)


def test_requests_without_a_seed_are_sampled_differently(play: Callable[..., None]) -> None:
    async def scenario(served: Served) -> None:
        served.submit("a", n=2)
        served.submit("b", n=2)
        served.run()
        tokens = [c.token_ids for name in "ab" for c in (await served.result(name)).completions]
        assert len(set(tokens)) == 4

    play(scenario)


def test_a_pause_that_aborts_ends_what_runs_and_what_waits(play: Callable[..., None]) -> None:
    async def scenario(served: Served) -> None:
        for name in "abcde":
            served.submit(name, max_new_tokens=9)
        served.schedule.work()
        paused: ThreadFuture[None] = ThreadFuture()
        served.schedule.pause("abort", paused)
        for name, count in zip("abcde", (1, 1, 1, 0, 0), strict=True):
            (completion,) = (await served.result(name)).completions
            assert (completion.finish_reason, len(completion.token_ids)) == ("abort", count)
        served.submit("later")
        assert not served.schedule.work()
        served.schedule.resume()
        served.run()
        assert (await served.result("later")).completions[0].finish_reason == "length"

    play(scenario)


def test_a_pause_that_waits_lets_everything_accepted_end_and_nothing_else(play: Callable[..., None]) -> None:
    async def scenario(served: Served) -> None:
        for name in "abcd":
            served.submit(name)
        paused: ThreadFuture[None] = ThreadFuture()
        served.schedule.pause("wait", paused)
        served.submit("later")
        served.run()
        await asyncio.wait_for(paused, 5)
        assert served.model_runner.added == ["a", "b", "c", "d"]
        served.schedule.resume()
        served.run()
        assert served.model_runner.added[-1] == "later"

    play(scenario)


def test_a_context_that_is_nearly_full_bounds_a_response(play: Callable[..., None]) -> None:
    async def scenario(served: Served) -> None:
        served.submit("long", max_new_tokens=500)
        served.run()
        (completion,) = (await served.result("long")).completions
        assert len(completion.token_ids) == 98
        assert completion.finish_reason == "length"
        assert served.schedule.stats().num_generated_tokens == 98

    play(scenario)


def test_an_update_of_some_weights_is_refused_before_all_have_been_sent(tiny_model: Path) -> None:
    served = Served(tiny_model)
    weights = [("a", torch.ones(2))]
    part = plan_buckets(weights, version=1, bucket_bytes=100, left_out=["b"])
    with pytest.raises(WeightSyncError, match="does not have the weights that stay as they are"):
        served.schedule.begin_update(part)
