"""A tiny model on disk, and every generation engine that this environment can run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from driven_engine import MAX_CONTEXT_TOKENS, DrivenEngine, make_engine

from examples.reasoning.make_tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that is sure enough of its tokens for differences to show."""
    folder = tmp_path_factory.mktemp("tiny_model")
    return make_tiny_model(folder, seed=3, initializer_range=0.08, max_context_tokens=MAX_CONTEXT_TOKENS)


ENGINES = [
    pytest.param("hf"),
    pytest.param("vllm", marks=pytest.mark.vllm),
    pytest.param("sglang", marks=pytest.mark.sglang),
]


@pytest.fixture(scope="session", params=ENGINES)
def shared_engine(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[DrivenEngine]:
    """Return an engine that all tests share, as some take half a minute to start."""
    driven = DrivenEngine(make_engine(request.param, tiny_model), tiny_model)
    driven.run(driven.engine.start(), timeout=280)
    yield driven
    driven.close()


@pytest.fixture
def driven(shared_engine: DrivenEngine) -> Iterator[DrivenEngine]:
    """Return the shared engine, and bring it back into order afterwards."""
    yield shared_engine
    shared_engine.restore()
