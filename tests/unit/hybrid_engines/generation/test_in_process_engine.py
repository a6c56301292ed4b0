"""What the base of stepping engines does when its thread fails, ends, or was never started."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from driven_engine import MAX_CONTEXT_TOKENS, PROMPT

from rlinf.config.schema.generation import HFGenerationConfig
from rlinf.data.messages.generation import GenerationRequest, SamplingParams
from rlinf.errors import EngineError
from rlinf.hybrid_engines.generation.hf import HFModelRunner
from rlinf.hybrid_engines.generation.in_process_engine import InProcessEngine
from rlinf.hybrid_engines.generation.model_runner import SampledToken
from rlinf.hybrid_engines.weights.bucket import WeightUpdate
from tests.unit.hybrid_engines.packing import pack_weights


class FailingBackend(HFModelRunner):
    """Fails after so many steps."""

    steps_left = 5

    def step(self) -> Iterable[SampledToken]:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise RuntimeError("the device is gone")
        return super().step()


def make(backend_class: type[HFModelRunner], folder: Path) -> InProcessEngine:
    backend = backend_class(
        HFGenerationConfig(rollout_backend="hf", max_running_requests=4),
        model_path=folder,
        device=torch.device("cpu"),
        precision="fp32",
        max_context_tokens=MAX_CONTEXT_TOKENS,
    )
    return InProcessEngine(backend, name="hf", model_path=folder, seed=0, max_context_tokens=MAX_CONTEXT_TOKENS)


def request(name: str, **params: object) -> GenerationRequest:
    return GenerationRequest(request_id=name, prompt_ids=PROMPT, params=SamplingParams(**params))  # type: ignore[arg-type]


def test_a_failure_of_the_thread_ends_all_requests_and_later_calls(tiny_model: Path) -> None:
    async def fail() -> None:
        engine = make(FailingBackend, tiny_model)
        await engine.start()
        tasks = [engine.generate(request(str(index), max_new_tokens=50)) for index in range(10)]
        # One waits for the others to end, which they never do.
        results = await asyncio.wait_for(
            asyncio.gather(*tasks, engine.pause("wait"), return_exceptions=True), timeout=60
        )
        for error in results:
            assert isinstance(error, EngineError)
            assert "the device is gone" in str(error)
            assert isinstance(error.__cause__, RuntimeError)
        for call in (engine.health(), engine.stats(), engine.abort(), engine.generate(request("late"))):
            with pytest.raises(EngineError, match="device is gone"):
                await call
        await engine.close()

    asyncio.run(fail())


def test_an_unusable_bucket_ends_the_engine_rather_than_its_caller_alone(tiny_model: Path) -> None:
    class Refusing(HFModelRunner):
        def load_weights(self, weights: object) -> None:
            raise RuntimeError("out of memory")

    async def fail() -> None:
        engine = make(Refusing, tiny_model)
        await engine.start()
        weights = engine._scheduler.model_runner._model.named_parameters()  # type: ignore[attr-defined]
        manifest, buckets = pack_weights(weights, version=0, bucket_bytes=1 << 30)
        await engine.begin_update(manifest)
        with pytest.raises(EngineError, match="out of memory"):
            await engine.load_bucket(0, buckets[0])
        with pytest.raises(EngineError, match="out of memory"):
            await engine.health()
        await engine.close()

    asyncio.run(fail())


def test_parameters_are_views_of_buckets_that_last(tiny_model: Path) -> None:
    runner = HFModelRunner(
        HFGenerationConfig(rollout_backend="hf", max_running_requests=4),
        model_path=tiny_model,
        device=torch.device("cpu"),
        precision="fp32",
        max_context_tokens=MAX_CONTEXT_TOKENS,
    )
    runner.load()
    parameters = dict(runner._model.named_parameters())
    for version, (is_lasting, scale) in enumerate([(True, 0.0), (False, 1.0), (True, 2.0)]):
        weights = {name: torch.full_like(parameter, scale) for name, parameter in parameters.items()}
        manifest, buckets = pack_weights(weights.items(), version=version, bucket_bytes=1 << 30)
        runner.begin_update(replace(manifest, is_lasting=is_lasting))
        update = WeightUpdate(manifest, current_version=-1)
        runner.load_weights(update.take(0, buckets[0]))
        runner.commit()
        begin = buckets[0].data_ptr()
        for name, parameter in runner._model.named_parameters():
            assert parameter is parameters[name]
            assert torch.equal(parameter, weights[name])
            assert (begin <= parameter.data_ptr() < begin + buckets[0].nbytes) == is_lasting
    state = runner._model.state_dict()
    embeddings, head = state["model.embed_tokens.weight"], state["lm_head.weight"]
    assert (embeddings.data_ptr() == head.data_ptr()) == runner._model.config.tie_word_embeddings
    half = {name: weight.to(torch.bfloat16) for name, weight in weights.items()}
    manifest, buckets = pack_weights(half.items(), version=9, bucket_bytes=1 << 30)
    runner.begin_update(replace(manifest, is_lasting=True))
    runner.load_weights(WeightUpdate(manifest, current_version=-1).take(0, buckets[0]))
    assert {parameter.dtype for parameter in parameters.values()} == {torch.float32}


def test_closing_aborts_what_is_in_flight(tiny_model: Path) -> None:
    async def close() -> None:
        engine = make(HFModelRunner, tiny_model)
        await engine.start()
        tasks = [asyncio.ensure_future(engine.generate(request(str(i), max_new_tokens=240))) for i in range(6)]
        await engine.stats()
        await engine.close()
        for task in tasks:
            assert (await task).completions[0].finish_reason == "abort"
        with pytest.raises(EngineError, match="closed"):
            await engine.generate(request("late"))
        await engine.close()

    asyncio.run(close())


def test_an_engine_serves_one_event_loop_after_another(tiny_model: Path) -> None:
    engine = make(HFModelRunner, tiny_model)
    asyncio.run(engine.start())

    async def abandon() -> None:
        asyncio.ensure_future(engine.generate(request("left behind", max_new_tokens=100)))
        await engine.stats()

    asyncio.run(abandon())
    result = asyncio.run(engine.generate(request("next", max_new_tokens=3, ignore_eos=True)))
    assert len(result.completions[0].token_ids) == 3
    asyncio.run(engine.close())


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    async def start() -> None:
        engine = make(HFModelRunner, tmp_path)
        with pytest.raises(EngineError, match=r"config\.json"):
            await engine.start()
        await engine.close()

    asyncio.run(start())


def test_calls_before_the_start_are_refused(tiny_model: Path) -> None:
    engine = make(HFModelRunner, tiny_model)
    for call in (lambda: engine.health(), lambda: engine.generate(request("early"))):
        with pytest.raises(EngineError, match="start"):
            asyncio.run(call())


def test_long_prompts_are_computed_in_several_passes(tiny_model: Path) -> None:
    """More prompt tokens than one pass takes, and more sequences than there are slots."""

    async def generate() -> None:
        engine = make(HFModelRunner, tiny_model)
        await engine.start()
        requests = [
            GenerationRequest(
                request_id=str(index),
                prompt_ids=(*PROMPT, *[index % 90 + 5] * (200 + index % 7)),
                params=SamplingParams(temperature=0.0, max_new_tokens=2, ignore_eos=True),
            )
            for index in range(60)
        ]
        crowd = await asyncio.gather(*map(engine.generate, requests))
        alone = [await engine.generate(each) for each in requests[::10]]
        for together, single in zip(crowd[::10], alone, strict=True):
            assert together.completions[0].logprobs == pytest.approx(single.completions[0].logprobs, abs=1e-4)
        await engine.close()

    asyncio.run(generate())
