"""A tiny model on disk, and every generation engine that this environment can run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driven_engine import MAX_CONTEXT_TOKENS, DrivenEngine, make_engine

from examples.reasoning.make_tiny_model import VOCAB_SIZE, make_tiny_model
from rlinf.config.schema.generation import EngineServersConfig
from tests.unit.hybrid_engines.serving.served_engines import ServerThread


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that is sure enough of its tokens for differences to show."""
    folder = tmp_path_factory.mktemp("tiny_model")
    make_tiny_model(folder, seed=3, initializer_range=0.08, max_context_tokens=MAX_CONTEXT_TOKENS)
    add_fragments(folder / "tokenizer.json")
    return folder


def add_fragments(file: Path) -> None:
    """Name the tokens that the tokenizer leaves unnamed: the end of one two-byte character and the start of the next.

    Two of them after one another hold a character that neither does.
    """
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    names = tokenizer["model"]["vocab"]
    # Byte-level tokenizers write these bytes as the characters of the same numbers.
    fragments = [f"{chr(last)}\u00c3" for last in range(0xAE, 0xC0)]
    for index, name in zip(range(len(names), VOCAB_SIZE), fragments, strict=False):
        names[name] = index
    file.write_text(json.dumps(tokenizer), encoding="utf-8")


ENGINES = [
    pytest.param("hf"),
    pytest.param("hf-gpu", marks=pytest.mark.gpu),
    # All cases again over HTTP; what servers add has fast tests of its own.
    pytest.param("server", marks=pytest.mark.slow),
    pytest.param("vllm", marks=pytest.mark.vllm),
    pytest.param("sglang", marks=pytest.mark.sglang),
    # With captured graphs, and the engine's own way to sleep.
    pytest.param("vllm-gpu", marks=[pytest.mark.gpu, pytest.mark.vllm]),
    pytest.param("sglang-gpu", marks=[pytest.mark.gpu, pytest.mark.sglang]),
]


@pytest.fixture(scope="session", params=ENGINES)
def shared_engine(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[DrivenEngine]:
    """Return an engine that all tests share, as some take half a minute to start."""
    with contextlib.ExitStack() as stack:
        name, on_gpu, _ = request.param.partition("-gpu")
        options: dict[str, Any] = {"device": "cuda" if on_gpu else "cpu"}
        if name == "server":
            thread = ServerThread(make_engine("hf", tiny_model))
            stack.callback(thread.close)
            options["server"] = EngineServersConfig(base_urls=[thread.url])
        driven = DrivenEngine(make_engine(name, tiny_model, **options), tiny_model)
        stack.callback(driven.close)
        driven.run(driven.engine.start(), timeout=280)
        yield driven


@pytest.fixture
def driven(shared_engine: DrivenEngine) -> Iterator[DrivenEngine]:
    """Return the shared engine, and bring it back into order afterwards."""
    yield shared_engine
    shared_engine.restore()
