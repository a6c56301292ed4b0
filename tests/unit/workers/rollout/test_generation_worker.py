"""What the rollout worker of language models asks its engine, makes of the results, and does with new weights."""

import asyncio

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.generation import SamplingConfig
from rlinf.data.messages.answers import Prompt
from rlinf.data.messages.generation import Completion, GenerationResult, SamplingParams
from rlinf.errors import WeightSyncError
from rlinf.workers.rollout.generation_worker import GenerationWorker, sampling_params
from rlinf.workers.streams import WEIGHTS
from tests.unit.hybrid_engines.packing import pack_weights
from tests.unit.workers.post_office import PostOffice

PROMPT = Prompt(index=3, token_ids=(5, 6), text="ab")
WEIGHTS_OF_MODEL = {"a": torch.arange(6.0), "b": torch.ones(3), "c": torch.full((2, 2), 4.0)}


class RecordingEngine:
    """Notes what is asked of it; weights that it loads come out scaled."""

    def __init__(self, scale=1.0):
        self.requests, self.calls, self.weights = [], [], {}
        self.is_synced, self.scale = False, scale
        self.full_logprobs = None

    async def generate(self, request):
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

    async def abort(self, request_ids):
        self.calls.append(("abort", *request_ids))

    async def pause(self, mode):
        self.calls.append(("pause", mode))

    async def begin_update(self, manifest):
        self.calls.append(("begin", manifest.version))
        self.manifest = manifest

    async def load_bucket(self, index, bucket):
        self.calls.append(("load", index))
        for entry in self.manifest.entries:
            if entry.bucket == index:
                view = bucket[entry.offset :].view(torch.float32)[: torch.Size(entry.shape).numel()]
                self.weights[entry.name] = view.view(entry.shape) * self.scale

    async def commit(self):
        self.calls.append(("commit",))

    async def resume(self):
        self.calls.append(("resume",))

    async def read_weights(self, names):
        return {name: self.weights[name] for name in names}


class Tokenizer:
    def decode(self, token_ids, *, skip_special_tokens):
        assert skip_special_tokens
        return "".join(chr(ord("a") + token) for token in token_ids)


@pytest.fixture
def office():
    return PostOffice()


@pytest.fixture
def worker(office):
    cfg = validate_cfg(load_recipe("tiny_math_grpo", ["rollout.validate_weight=true"]))
    worker = office.wire(GenerationWorker, cfg, 1, group="RolloutGroup")
    worker.engine, worker.tokenizer = RecordingEngine(), Tokenizer()
    return worker


def ask(worker, group_id=0, purpose="train", **params):
    return asyncio.run(worker.answer(PROMPT, group_id=group_id, params=SamplingParams(**params), purpose=purpose))


def publish(office, *, version, weights=None):
    manifest, buckets = pack_weights((weights or WEIGHTS_OF_MODEL).items(), version=version, bucket_bytes=64)
    assert len(buckets) > 1
    for message in (manifest, *buckets):
        office.post(("ActorGroup", 0), ("RolloutGroup", 0), WEIGHTS, message)
    return len(buckets)


def test_a_response_is_what_the_engine_has_generated(worker):
    first, second = ask(worker, group_id=9, n=2)
    assert [(r.group_id, r.member, r.token_ids) for r in (first, second)] == [(9, 0, (0, 8)), (9, 1, (1, 8))]
    assert first.prompt is PROMPT
    assert (first.logprobs, first.versions, first.loss_mask) == ((-1.0, -2.0), (4, 5), (True, True))
    assert (first.text, second.text, first.finish_reason) == ("ai", "bi", "length")
    (request,) = worker.engine.requests
    assert request.prompt_ids == PROMPT.token_ids


def test_training_compares_with_the_distribution_over_all_tokens(worker):
    worker.engine.full_logprobs = (-3.0, -4.0)
    assert ask(worker)[0].logprobs == (-3.0, -4.0)


def test_the_seed_belongs_to_the_prompt_and_to_its_purpose(worker):
    for group_id, purpose in ((1, "train"), (2, "train"), (1, "eval"), (1, "train")):
        ask(worker, group_id, purpose, temperature=0.5)
    seeds = [request.params.seed for request in worker.engine.requests]
    assert len(set(seeds[:3])) == 3
    assert seeds[3] == seeds[0]
    assert all(request.params.temperature == 0.5 for request in worker.engine.requests)
    names = [request.request_id for request in worker.engine.requests]
    asyncio.run(worker.abort([2], purpose="train"))
    assert worker.engine.calls == [("abort", names[1])]


def test_weights_are_loaded_bucket_by_bucket_while_requests_are_kept(worker, office):
    count = publish(office, version=2)
    asyncio.run(worker.sync_model_from_actor(version=2))
    loads = [("load", index) for index in range(count)]
    assert worker.engine.calls == [("pause", "keep"), ("begin", 2), *loads, ("commit",), ("resume",)]
    for name, expected in WEIGHTS_OF_MODEL.items():
        assert torch.equal(worker.engine.weights[name], expected)


@pytest.mark.parametrize("version", [1, 3])
def test_weights_of_another_version_than_the_one_expected_are_refused(worker, office, version):
    publish(office, version=version)
    with pytest.raises(WeightSyncError, match=f"version 2, received version {version}"):
        asyncio.run(worker.sync_model_from_actor(version=2))
    assert worker.engine.calls == []


def test_a_failed_update_does_not_leave_the_engine_paused(worker, office):
    async def fail():
        raise WeightSyncError("no")

    publish(office, version=2)
    worker.engine.commit = fail
    with pytest.raises(WeightSyncError):
        asyncio.run(worker.sync_model_from_actor(version=2))
    assert worker.engine.calls[-1] == ("resume",)


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_an_engine_whose_weights_differ_is_found_at_the_first_sync(worker, office, scale):
    worker.engine.scale = scale
    publish(office, version=2)
    with pytest.raises(WeightSyncError, match="differ from the actor's"):
        asyncio.run(worker.sync_model_from_actor(version=2))


def test_rounding_of_weights_is_no_difference_and_is_looked_at_once(worker, office):
    worker.engine.scale = 1.004
    for version in (2, 3):
        publish(office, version=version)
        asyncio.run(worker.sync_model_from_actor(version=version))
        worker.engine.scale = 2.0


SAMPLING = SamplingConfig(
    temperature=0.7,
    top_k=11,
    top_p=0.8,
    min_p=0.1,
    repetition_penalty=1.2,
    max_new_tokens=33,
    min_new_tokens=2,
    stop=["x", "yy"],
    stop_token_ids=[4, 5],
)


def test_every_sampling_key_reaches_the_engine():
    assert sampling_params(SAMPLING, n=6) == SamplingParams(
        temperature=0.7,
        top_k=11,
        top_p=0.8,
        min_p=0.1,
        repetition_penalty=1.2,
        max_new_tokens=33,
        min_new_tokens=2,
        stop=("x", "yy"),
        stop_token_ids=(4, 5),
        n=6,
    )


def test_greedy_sampling_leaves_nothing_out_and_keeps_the_rest():
    assert sampling_params(SAMPLING, n=1, greedy=True) == SamplingParams(
        temperature=0.0,
        repetition_penalty=1.2,
        max_new_tokens=33,
        min_new_tokens=2,
        stop=("x", "yy"),
        stop_token_ids=(4, 5),
    )
