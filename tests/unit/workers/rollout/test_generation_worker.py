"""What the rollout worker of language models asks its engine, makes of the results, and does with new weights."""

import asyncio
import dataclasses
import weakref
from typing import Any, NoReturn

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.messages.generation import Completion, GenerationResult, SamplingParams
from rlinf.data.messages.responses import Prompt, Response
from rlinf.errors import CommTimeoutError, WeightSyncError
from rlinf.workers.rollout import generation_worker
from rlinf.workers.rollout.generation_worker import GenerationWorker
from rlinf.workers.streams import WEIGHTS
from tests.unit.hybrid_engines.packing import pack_weights
from tests.unit.workers.post_office import PostOffice

PROMPT = Prompt(index=3, token_ids=(5, 6), text="ab")
WEIGHTS_OF_MODEL = {"a": torch.arange(6.0), "b": torch.ones(3), "c": torch.full((2, 2), 4.0)}


class RecordingEngine:
    """Notes what is asked of it; weights that it loads come out scaled."""

    def __init__(self, scale: float = 1.0) -> None:
        self.requests, self.calls, self.weights = [], [], {}
        self.is_synced, self.scale = False, scale
        self.full_logprobs = None

    async def generate(self, request: Prompt) -> GenerationResult:
        self.requests.append(request)
        completions = tuple(
            Completion(
                token_ids=(member, 8),
                logprobs=(-1.0, -2.0),
                full_logprobs=self.full_logprobs,
                versions=(4, 5),
                finish_reason="length",
            )
            for member in range(request.params.n)
        )
        return GenerationResult(request_id=request.request_id, completions=completions)

    async def abort(self, request_ids: list[str]) -> None:
        self.calls.append(("abort", *request_ids))

    async def pause(self, mode: str) -> None:
        self.calls.append(("pause", mode))

    async def begin_update(self, manifest: Any) -> None:
        self.calls.append(("begin", manifest.version))
        self.manifest = manifest

    async def load_bucket(self, index: int, bucket: Any) -> None:
        self.calls.append(("load", index))
        for entry in self.manifest.entries:
            if entry.bucket == index:
                view = bucket[entry.offset :].view(torch.float32)[: torch.Size(entry.shape).numel()]
                self.weights[entry.name] = view.view(entry.shape) * self.scale

    async def commit(self) -> None:
        self.calls.append(("commit",))

    async def resume(self) -> None:
        self.calls.append(("resume",))

    async def read_weights(self, names: list[str]) -> dict[Any, Any]:
        return {name: self.weights[name] for name in names}


class Store:
    """Notes what is put into it."""

    def __init__(self) -> None:
        self.groups = []

    async def put(self, split: str, group: Any) -> str:
        self.groups.append((split, group))
        return f"rewarded {group.group_id}"


class Tokenizer:
    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return "".join(chr(ord("a") + token) for token in token_ids)


@pytest.fixture
def office() -> PostOffice:
    return PostOffice()


@pytest.fixture
def worker(office: PostOffice) -> Any:
    cfg = validate_cfg(load_recipe("tiny_math_grpo", ["rollout.validate_weight=true"]))
    worker = office.wire(GenerationWorker, cfg, group="RolloutGroup")
    worker.engine, worker.tokenizer, worker.responses = RecordingEngine(), Tokenizer(), Store()
    return worker


def ask(worker: Any, group_id: int = 0, split: str = "train", **params: float) -> Any:
    """Return the group that is sent on."""
    asyncio.run(worker.generate(PROMPT, group_id=group_id, params=SamplingParams(**params), split=split))
    found_split, group = worker.responses.groups[-1]
    assert found_split == split
    return group


def publish(office: PostOffice, *, version: int, weights: Any = None) -> int:
    manifest, buckets = pack_weights((weights or WEIGHTS_OF_MODEL).items(), version=version, bucket_bytes=64)
    assert len(buckets) > 1
    for message in (manifest, *buckets):
        office.post(("ActorGroup", 0), ("RolloutGroup", 0), WEIGHTS, message)
    return len(buckets)


def test_the_reward_rank_gets_what_the_engine_has_generated(worker: Any) -> None:
    group = ask(worker, group_id=9, n=2)
    first = Response(
        group_id=9,
        index=0,
        num_tokens=2,
        num_prompt_tokens=2,
        finish_reason="length",
        oldest_version=4,
        newest_version=5,
    )
    assert group.batch.responses == (first, dataclasses.replace(first, index=1))
    assert (group.prompt, group.group_id, group.texts) == (PROMPT, 9, ("ai", "bi"))
    batch = group.batch
    assert batch.prompt_ids == (PROMPT.token_ids,) * 2
    columns = {
        "token_ids": ([0, 8, 1, 8], torch.int32),
        "logprobs": ([-1.0, -2.0] * 2, torch.float32),
        "versions": ([4, 5] * 2, torch.int32),
        "loss_mask": ([True] * 4, torch.bool),
    }
    for name, (expected, dtype) in columns.items():
        column = getattr(batch, name)
        assert (column.tolist(), column.dtype) == (expected, dtype), name
    assert batch.trainer_logprobs is None
    (request,) = worker.engine.requests
    assert request.prompt_ids == PROMPT.token_ids


def test_the_rewards_that_come_at_once_are_returned(worker: Any) -> None:
    found = asyncio.run(worker.generate(PROMPT, group_id=9, params=SamplingParams(), split="train"))
    assert found == "rewarded 9"


def test_training_compares_with_the_distribution_over_all_tokens(worker: Any) -> None:
    worker.engine.full_logprobs = (-3.0, -4.0)
    assert ask(worker).batch.logprobs.tolist() == [-3.0, -4.0]


def test_the_seed_belongs_to_the_prompt_and_to_its_split(worker: Any) -> None:
    for group_id, split in ((1, "train"), (2, "train"), (1, "eval"), (1, "train")):
        ask(worker, group_id, split, temperature=0.5)
    seeds = [request.params.seed for request in worker.engine.requests]
    assert len(set(seeds[:3])) == 3
    assert seeds[3] == seeds[0]
    assert all(request.params.temperature == 0.5 for request in worker.engine.requests)
    names = [request.request_id for request in worker.engine.requests]
    asyncio.run(worker.abort([2], split="train"))
    assert worker.engine.calls == [("abort", names[1])]


def test_weights_are_loaded_bucket_by_bucket_while_requests_are_kept(worker: Any, office: PostOffice) -> None:
    count = publish(office, version=2)
    asyncio.run(worker.sync_model_from_actor(version=2))
    loads = [("load", index) for index in range(count)]
    assert worker.engine.calls == [("pause", "keep"), ("begin", 2), *loads, ("commit",), ("resume",)]
    for name, expected in WEIGHTS_OF_MODEL.items():
        assert torch.equal(worker.engine.weights[name], expected)


@pytest.mark.parametrize("version", [1, 3])
def test_weights_of_another_version_than_the_one_expected_are_refused(
    worker: Any, office: PostOffice, version: int
) -> None:
    publish(office, version=version)
    with pytest.raises(WeightSyncError, match=f"version 2, received version {version}"):
        asyncio.run(worker.sync_model_from_actor(version=2))
    assert worker.engine.calls == []


def test_a_failed_update_does_not_leave_the_engine_paused(worker: Any, office: PostOffice) -> None:
    async def fail() -> NoReturn:
        raise WeightSyncError("no")

    publish(office, version=2)
    worker.engine.commit = fail
    with pytest.raises(WeightSyncError):
        asyncio.run(worker.sync_model_from_actor(version=2))
    assert worker.engine.calls[-1] == ("resume",)


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_an_engine_whose_weights_differ_is_found_at_the_first_sync(
    worker: Any, office: PostOffice, scale: float
) -> None:
    worker.engine.scale = scale
    publish(office, version=2)
    with pytest.raises(WeightSyncError, match="differ from the actor's"):
        asyncio.run(worker.sync_model_from_actor(version=2))


def test_the_engine_generates_until_all_weights_are_there_and_checked(
    worker: Any, office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "0.05")
    publish(office, version=2)
    waiting = office.messages[("ActorGroup", 0), ("RolloutGroup", 0), WEIGHTS]
    last = waiting.pop()
    with pytest.raises(CommTimeoutError):
        asyncio.run(worker.sync_model_from_actor(version=2))
    office.waiting.clear()
    publish(office, version=3)
    waiting[-1] = last
    with pytest.raises(WeightSyncError, match="checksum"):
        asyncio.run(worker.sync_model_from_actor(version=3))
    assert worker.engine.calls == []
    assert worker.pop_execution_times() == {}


def test_the_pause_is_measured_and_what_has_been_loaded_is_given_up(worker: Any, office: PostOffice) -> None:
    held: list[Any] = []

    async def load_bucket(index: int, bucket: torch.Tensor) -> None:
        held.append(weakref.ref(bucket))
        assert [ref() is not None for ref in held] == [False] * index + [True]

    worker.engine.load_bucket = load_bucket
    worker.section = dataclasses.replace(worker.section, validate_weight=False)
    assert publish(office, version=2) == len(office.messages[("ActorGroup", 0), ("RolloutGroup", 0), WEIGHTS]) - 1
    asyncio.run(worker.sync_model_from_actor(version=2))
    assert worker.pop_execution_times().keys() == {"pause_seconds"}


def test_rounding_of_weights_is_no_difference_and_is_looked_at_once(worker: Any, office: PostOffice) -> None:
    worker.engine.scale = 1.004
    for version in (2, 3):
        publish(office, version=version)
        asyncio.run(worker.sync_model_from_actor(version=version))
        worker.engine.scale = 2.0


@pytest.mark.parametrize(("replay", "asked"), [("rollout", True), ("recompute", False), ("none", False)])
def test_the_engine_is_asked_for_routes_if_they_are_replayed(
    monkeypatch: pytest.MonkeyPatch, office: PostOffice, replay: str, asked: bool
) -> None:
    class Built(Exception):  # noqa: N818 - no error
        pass

    def build(*_: Any, returns_routes: bool, **__: Any) -> NoReturn:
        raise Built(returns_routes)

    monkeypatch.setattr(generation_worker, "build_engine", build)
    monkeypatch.setattr(generation_worker, "load_tokenizer", lambda path: path)
    cfg = validate_cfg(load_recipe("tiny_math_grpo", [f"actor.routing_replay={replay}"]))
    worker: Any = office.wire(GenerationWorker, cfg, group="RolloutGroup")
    with pytest.raises(Built) as caught:
        asyncio.run(worker.init_worker())
    assert caught.value.args == (asked,)
