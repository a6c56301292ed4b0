"""Weights that a training engine has trained in some layout, in a serving engine: equal log-probabilities."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rlinf.data.messages.generation import GenerationRequest, SamplingParams
from rlinf.placement.parallel import ParallelLayout
from tests.unit.hybrid_engines.generation.driven_engine import make_engine
from tests.unit.hybrid_engines.packing import pack_weights
from tests.unit.hybrid_engines.train.conformance import (
    LOGPROBS,
    Setting,
    Weighted,
    batches_of,
    prepared,
    save_model,
    stored_weights,
    train,
)
from tests.unit.hybrid_engines.train.rank_processes import run_ranks

TOLERANCE = 1e-4
TEMPERATURE = 0.8
"""The training engines' own, of ``conformance.call``."""
PROMPTS = [(5, 6, 7), (9, 8, 7, 6, 40, 41), (3,)]
LAYOUTS = {
    "fsdp2": {"layout": ParallelLayout(data=2), "sharded": True},
    "megatron-tp2": {"layout": ParallelLayout(data=1, tensor=2)},
}


def make_trained(setting: Setting, rank: int) -> Any:
    """Build the training engine of one rank."""
    if setting.sharded:
        from tests.unit.hybrid_engines.train.test_fsdp_conformance import make_engine as make_fsdp

        return make_fsdp(setting, rank)
    from tests.unit.hybrid_engines.train.megatron.megatron_engines import make_engine as make_megatron

    return make_megatron(setting, rank)


def learn(rank: int, setting: Setting, sequences: list[list[int]]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Make three optimizer steps; return the weights, and the log-probabilities of sequences under them."""
    engine = prepared(make_trained, setting, rank)
    train(engine, 3)
    weights = {name: tensor.clone() for name, tensor in engine.export_weights(dtype=torch.float32)}
    batches: list[Weighted] = batches_of([sequences])
    (logprobs,) = engine.forward(batches, LOGPROBS)
    return weights, logprobs


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an untied Qwen2 that vLLM's attention can serve: heads of 32."""
    folder = tmp_path_factory.mktemp("qwen2")
    torch.manual_seed(1)
    config = transformers.Qwen2Config(
        hidden_size=128,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=129,
        num_hidden_layers=4,
        tie_word_embeddings=False,
        max_position_embeddings=256,
        eos_token_id=1,
        bos_token_id=0,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


async def generate(
    backend: str, folder: Path, weights: dict[str, torch.Tensor], *, bucket_bytes: int = 100_000
) -> list[Any]:
    """Load weights into a new engine, and complete the prompts."""
    engine = make_engine(backend, folder)
    await engine.start()
    try:
        manifest, buckets = pack_weights(weights.items(), version=0, bucket_bytes=bucket_bytes)
        await engine.begin_update(manifest)
        for index, bucket in enumerate(buckets):
            await engine.load_bucket(index, bucket)
        await engine.commit()
        params = SamplingParams(temperature=TEMPERATURE, max_new_tokens=20, ignore_eos=True, seed=4)
        requests = [
            GenerationRequest(request_id=str(number), prompt_ids=prompt, params=params)
            for number, prompt in enumerate(PROMPTS)
        ]
        results = await asyncio.gather(*map(engine.generate, requests))
        return [result.completions[0] for result in results]
    finally:
        await engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("trained", sorted(LAYOUTS))
@pytest.mark.parametrize(
    "backend", [pytest.param("vllm", marks=pytest.mark.vllm), pytest.param("sglang", marks=pytest.mark.sglang), "hf"]
)
def test_a_trained_model_has_the_same_logprobs_in_the_engine(model: Path, backend: str, trained: str) -> None:
    if trained.startswith("megatron"):
        pytest.importorskip("megatron.core")
    setting = Setting(folder=model, optim={"lr": 1e-2, "lr_warmup_steps": 0}, **LAYOUTS[trained])
    weights, _ = run_ranks(2, learn, setting, [list(PROMPTS[0])])[0]
    completions = asyncio.run(generate(backend, model, weights))
    sequences = [[*prompt, *done.token_ids] for prompt, done in zip(PROMPTS, completions, strict=True)]
    again, logprobs = run_ranks(2, learn, setting, sequences)[0]
    assert all(torch.equal(again[name], weights[name]) for name in weights)
    start = 0
    for prompt, sequence, done in zip(PROMPTS, sequences, completions, strict=True):
        own = logprobs[start + len(prompt) : start + len(sequence)].double()
        assert float((own - torch.tensor(done.logprobs, dtype=torch.float64)).abs().max()) < TOLERANCE
        start += len(sequence)
    assert weights.keys()
    assert start == len(logprobs)


def test_experts_arrive_alike_in_buckets_of_any_size(tmp_path: Path) -> None:
    for name, seed in (("old", 1), ("new", 2)):
        save_model(tmp_path / name, tied=False, experts=True, seed=seed)
    weights = stored_weights(tmp_path / "new")
    # Of one tensor each, of some, and of all.
    found = [asyncio.run(generate("hf", tmp_path / "old", weights, bucket_bytes=size)) for size in (1, 50_000, 1 << 30)]
    for few, several, one in zip(*found, strict=True):
        assert few.token_ids == several.token_ids == one.token_ids
        assert few.logprobs == several.logprobs == one.logprobs
    sequences = [[*prompt, *done.token_ids] for prompt, done in zip(PROMPTS, found[0], strict=True)]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "new", dtype=torch.float64, experts_implementation="eager"
    )
    for prompt, sequence, done in zip(PROMPTS, sequences, found[0], strict=True):
        ids = torch.tensor([sequence])
        with torch.no_grad():
            logprobs = (model(ids).logits[0, len(prompt) - 1 : -1] / TEMPERATURE).log_softmax(-1)
        own = logprobs.gather(1, ids[0, len(prompt) :, None])[:, 0]
        assert float((own - torch.tensor(done.logprobs, dtype=torch.float64)).abs().max()) < TOLERANCE
