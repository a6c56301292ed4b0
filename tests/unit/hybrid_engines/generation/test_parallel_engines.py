"""Engines that are spread over several processes compute, update and show the weights of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from driven_engine import DrivenEngine, make_engine

from rlinf.data.messages.generation import SamplingParams
from tests.unit.hybrid_engines.generation.test_engine_conformance import TOLERANCE, error_of

SIZES = {"vllm-tp2": (2, 1), "vllm-pp2": (1, 2), "sglang-tp2": (2, 1)}
"""Tensor-parallel ranks and pipeline stages, by the backend and a name."""
MARKS = {"vllm": pytest.mark.vllm, "sglang": pytest.mark.sglang}
PARAMS = (
    SamplingParams(temperature=1.0, max_new_tokens=24, ignore_eos=True),
    SamplingParams(temperature=0.7, top_k=12, seed=5, max_new_tokens=24, ignore_eos=True),
)


@pytest.fixture(params=[pytest.param(name, marks=MARKS[name.partition("-")[0]]) for name in sorted(SIZES)])
def parallel(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[DrivenEngine]:
    """Return an engine of two processes."""
    tensor, stages = SIZES[request.param]
    options = {"tensor_parallel_size": tensor, "pipeline_parallel_size": stages}
    driven = DrivenEngine(make_engine(request.param.partition("-")[0], tiny_model, **options), tiny_model)
    driven.run(driven.engine.start(), timeout=200)
    yield driven
    driven.close()


@pytest.mark.slow
def test_an_engine_of_two_processes_is_as_good_as_one(parallel: DrivenEngine) -> None:
    for seed in range(3):
        for params in PARAMS:
            completion = parallel.sequence(**dataclasses.asdict(params))
            assert set(completion.versions) == {parallel.engine.version}
            assert error_of(parallel, completion, params) < TOLERANCE
        parallel.update(seed)
    weights = dict(parallel.model.named_parameters())
    read = parallel.run(parallel.engine.read_weights(list(weights)))
    assert read is not None
    for name, weight in weights.items():
        assert torch.equal(read[name], weight.detach()), name
