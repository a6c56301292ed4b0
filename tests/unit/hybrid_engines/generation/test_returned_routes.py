"""An engine says where its tokens went: where transformers sends them, whatever was batched, shared or held."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from driven_engine import DrivenEngine, make_engine

from rlinf.config.schema.generation import VLLMGenerationConfig
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.errors import EngineError
from rlinf.hybrid_engines.generation import vllm
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence
from rlinf.models.language.expert_routing import ExpertSizes
from tests.unit.models.tiny_experts import routes_of, save_tiny_experts

PROMPT = (5, 76, 6, 84, 40)
PROMPTS = (PROMPT, PROMPT, (9,), (4, 61, 62, 63, 64, 65, 66, 67))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_experts(tmp_path_factory.mktemp("experts"))


@pytest.fixture
def driven(folder: Path) -> Iterator[DrivenEngine]:
    """Return an engine with fewer slots than the tests have sequences."""
    engine = DrivenEngine(make_engine("hf", folder, returns_routes=True, max_running_requests=4), folder)
    engine.run(engine.engine.start())
    yield engine
    engine.close()


def assert_same(found: np.ndarray[Any, Any] | None, expected: np.ndarray[Any, Any]) -> None:
    """Compare routes; the order of a token's experts means nothing."""
    assert found is not None
    assert found.shape == expected.shape
    assert (np.sort(found) == np.sort(expected)).all()


def test_routes_are_those_of_the_whole_sequence(driven: DrivenEngine) -> None:
    requests = [
        driven.request(prompt, n=3, max_new_tokens=4 + 3 * number, ignore_eos=True)
        for number, prompt in enumerate(PROMPTS)
    ]
    for request, result in zip(requests, driven.generate(requests), strict=True):
        for completion in result.completions:
            assert completion.routes is not None
            assert completion.routes.dtype == np.uint8
            whole = [*request.prompt_ids, *completion.token_ids]
            assert_same(completion.routes, routes_of(driven.model, whole)[:-1])


def test_a_token_keeps_its_route_when_new_weights_compute_it_anew(driven: DrivenEngine) -> None:
    before = copy.deepcopy(driven.model)

    async def generate(request: GenerationRequest) -> Completion:
        task = asyncio.ensure_future(driven.engine.generate(request))
        while (await driven.engine.stats()).num_generated_tokens < 8:
            await asyncio.sleep(0.001)
        await driven.engine.pause("keep")
        await driven.load(*driven.new_weights(7))
        await driven.engine.resume()
        return (await task).completions[0]

    completion = driven.run(generate(driven.request(PROMPT, max_new_tokens=240, ignore_eos=True)))
    num_old = completion.versions.count(-1)
    assert 0 < num_old < len(completion.token_ids)
    whole = [*PROMPT, *completion.token_ids]
    old, new = routes_of(before, whole)[:-1], routes_of(driven.model, whole)[:-1]
    # The last token that the old weights sampled was first computed with the new ones.
    first_new = len(PROMPT) + num_old - 1
    assert (np.sort(old) != np.sort(new))[:first_new].any()
    assert_same(completion.routes, np.concatenate([old[:first_new], new[first_new:]]))


def test_an_engine_that_is_not_asked_returns_none(folder: Path) -> None:
    driven = DrivenEngine(make_engine("hf", folder), folder)
    driven.run(driven.engine.start())
    try:
        assert driven.sequence(max_new_tokens=2).routes is None
    finally:
        driven.close()


def test_a_model_without_experts_is_refused(tiny_model: Path) -> None:
    driven = DrivenEngine(make_engine("hf", tiny_model, returns_routes=True), tiny_model)
    try:
        with pytest.raises(EngineError, match=r"routing_replay=rollout.*qwen2.*Remove the key"):
            driven.run(driven.engine.start())
    finally:
        driven.close()


# ---------------------------------------------------------------------------------------------------------------- vllm


def runner_of(device: str = "cuda") -> vllm.VLLMModelRunner:
    return vllm.VLLMModelRunner(
        VLLMGenerationConfig(rollout_backend="vllm"),
        model_path=Path("model"),
        device=torch.device(device),
        precision="fp32",
        seed=1,
        max_context_tokens=64,
        returns_routes=True,
    )


def test_vllm_is_asked_for_routes_and_then_for_nothing_that_its_second_runner_cannot_do() -> None:
    runner = runner_of()
    assert runner._arguments["enable_return_routed_experts"] is True
    assert runner._arguments["logits_processors"] == []
    with pytest.raises(EngineError, match=r"top_k.*routing_replay=rollout.*rollout_backend: hf"):
        runner.check(GenerationRequest(request_id="r", prompt_ids=(1,), params=SamplingParams(top_k=3)))


def test_vllm_numbers_experts_from_0() -> None:
    sizes = ExpertSizes(num_layers=1, num_experts=300, num_chosen=2, is_normalised=True)
    found = vllm._numbered(np.array([[[0, 299]], [[255, 7]]], dtype=np.uint16), sizes)
    assert found is not None
    assert found.dtype == np.int32
    assert found.tolist() == [[[1, 300]], [[256, 8]]]
    assert vllm._numbered(None, sizes) is None


@pytest.mark.parametrize(
    ("device", "field", "runner", "reason"),
    [
        ("cpu", "enable_return_routed_experts", "1", "from GPUs alone"),
        ("cuda", "other", "1", "Update vLLM"),
        ("cuda", "enable_return_routed_experts", "0", "unset the variable"),
    ],
)
def test_a_vllm_that_returns_no_routes_is_refused(
    monkeypatch: pytest.MonkeyPatch, device: str, field: str, runner: str, reason: str
) -> None:
    from dataclasses import make_dataclass

    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    model_runner = runner_of(device)
    model_runner._vllm = SimpleNamespace(EngineArgs=make_dataclass("EngineArgs", [field]), __version__="0.1")
    with pytest.raises(EngineError, match=f"routing_replay=rollout.*{reason}"):
        model_runner._check_routes()


def test_each_step_of_vllm_brings_the_routes_of_the_tokens_before_the_sampled_one() -> None:
    runner = runner_of()
    runner._experts = ExpertSizes(num_layers=1, num_experts=8, num_chosen=2, is_normalised=True)
    sequence = TokenSequence(
        key=4, request_id="r", prompt_ids=(5, 6), params=SamplingParams(), limit=9, end_ids=frozenset(), seed=1
    )
    runner._sequences[4], runner._num_before[4] = sequence, 0
    steps = ([[[0, 7]], [[1, 2]]], [[[3, 4]]])

    def output(experts: list[list[list[int]]]) -> Any:
        logprobs = SimpleNamespace(logprobs=np.array([[-1.0]]))
        found = SimpleNamespace(
            request_id="4",
            finish_reason=None,
            new_token_ids=[9],
            new_logprobs=logprobs,
            routed_experts=np.array(experts, dtype=np.uint8),
        )
        return SimpleNamespace(outputs=[found])

    for experts in steps:
        core = SimpleNamespace(get_output=lambda experts=experts: output(experts))
        runner._engine = SimpleNamespace(engine_core=core)
        for _, token_id, logprob, full, routes in runner.step():
            assert routes is not None
            sequence.add_routes(routes)
            sequence.append(token_id, logprob, full, 0)
    sequence.finish_reason = "abort"
    routes = sequence.completion().routes
    assert routes is not None
    assert routes[:, 0].tolist() == [[1, 8], [2, 3], [4, 5]]
