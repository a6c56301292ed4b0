"""An engine driven from a test, and its expected sequences, computed with transformers one at a time."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import AutoModelForCausalLM

from rlinf.data.messages.generation import Completion, GenerationRequest, GenerationResult, SamplingParams
from rlinf.hybrid_engines.generation import generation_engines
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine
from rlinf.hybrid_engines.weights.bucket import Manifest
from tests.unit.hybrid_engines.packing import pack_weights

T = TypeVar("T")

MAX_CONTEXT_TOKENS = 256
END_ID = 1
PATIENCE_SECONDS = 60.0
PROMPT = (5, 76, 6, 84, 40, 41, 42)


class DrivenEngine:
    """An engine with an event loop of its own, and the weights that it should have.

    Args:
        engine: Not yet started.
        folder: The model that it loads.
    """

    def __init__(self, engine: GenerationEngine, folder: Path) -> None:
        self.engine = engine
        self.loop = asyncio.new_event_loop()
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        self.next_version = 0
        self._num_requests = 0

    def run(self, awaitable: Awaitable[T], timeout: float = 120) -> T:
        limit = None if math.isinf(timeout) else timeout
        return self.loop.run_until_complete(asyncio.wait_for(awaitable, limit))

    def request(self, prompt: Sequence[int] = PROMPT, **params: Any) -> GenerationRequest:
        self._num_requests += 1
        return GenerationRequest(
            request_id=f"request-{self._num_requests}", prompt_ids=tuple(prompt), params=SamplingParams(**params)
        )

    def generate(self, requests: Iterable[GenerationRequest]) -> list[GenerationResult]:
        return self.run(self._generate_all(list(requests)), timeout=math.inf)

    async def _generate_all(self, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
        """Wait while the engine makes progress, however slow the machine is."""
        results = asyncio.gather(*map(self.engine.generate, requests))
        num_tokens = -1
        while not (await asyncio.wait({results}, timeout=PATIENCE_SECONDS))[0]:
            before, num_tokens = num_tokens, (await self.engine.stats()).num_generated_tokens
            if num_tokens == before:
                results.cancel()
                raise TimeoutError(f"the engine has generated nothing for {PATIENCE_SECONDS} s")
        return results.result()

    def sequence(self, prompt: Sequence[int] = PROMPT, **params: Any) -> Completion:
        (result,) = self.generate([self.request(prompt, **params)])
        return result.completions[0]

    def new_weights(self, seed: int) -> tuple[Manifest, list[torch.Tensor]]:
        """Change the reference's weights, and return them as an update."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
        return self.present_weights()

    def present_weights(self) -> tuple[Manifest, list[torch.Tensor]]:
        version, self.next_version = self.next_version, self.next_version + 1
        manifest, buckets = pack_weights(self.model.named_parameters(), version=version, bucket_bytes=400_000)
        # Every other update may be used where it lies.
        return dataclasses.replace(manifest, is_lasting=version % 2 == 1), buckets

    async def load(self, manifest: Manifest, buckets: list[torch.Tensor]) -> None:
        await self.engine.begin_update(manifest)
        for index, bucket in enumerate(buckets):
            await self.engine.load_bucket(index, bucket)
        await self.engine.commit()

    def update(self, seed: int) -> None:
        self.run(self.load(*self.new_weights(seed)))

    def restore(self) -> None:
        """Bring the engine back into order, whatever a test has left."""

        async def all_of_it() -> None:
            await self.engine.abort()
            await self.engine.pause()
            await self.load(*self.present_weights())
            await self.engine.resume()

        self.run(all_of_it())

    def close(self) -> None:
        self.run(self.engine.close())
        self.loop.close()

    @torch.no_grad()
    def expected(
        self, completion: Completion, params: SamplingParams, prompt: Sequence[int] = PROMPT
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the log-probabilities that the sequence should come with: as sampled, and over the full vocabulary."""
        ids = torch.tensor([[*prompt, *completion.token_ids]])
        logits = self.model(ids).logits[0, len(prompt) - 1 : -1].double()
        for index in range(len(logits)):
            seen = ids[0, : len(prompt) + index].unique()
            part = logits[index, seen]
            penalty = params.repetition_penalty
            logits[index, seen] = torch.where(part > 0, part / penalty, part * penalty)
        full = (logits / (params.temperature or 1.0)).log_softmax(-1)
        kept = torch.stack([truncated(row, params) for row in full]).log_softmax(-1)
        index = ids[0, len(prompt) :, None]
        return kept.gather(1, index)[:, 0], full.gather(1, index)[:, 0]


def truncated(logprobs: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Leave out tokens one by one, as their documentation says."""
    if params.temperature == 0:
        return logprobs
    order = logprobs.argsort(descending=True).tolist()
    least = logprobs.max() + (math.log(params.min_p) if params.min_p else -math.inf)
    order = [token for token in order if logprobs[token] >= least]
    order = order[: params.top_k] if params.top_k > 0 else order
    mass = sum(logprobs[token].exp() for token in order)
    kept, reached = [], 0.0
    for token in order:
        if reached >= params.top_p:
            break
        kept.append(token)
        reached += float(logprobs[token].exp() / mass)
    result = torch.full_like(logprobs, -math.inf)
    result[kept] = logprobs[kept]
    return result


def make_engine(
    name: str, folder: Path, *, device: str = "cpu", returns_routes: bool = False, **options: Any
) -> GenerationEngine:
    """Build an engine in float32."""
    cfg = generation_engines.configs.get(name)(rollout_backend=name, **options)
    return generation_engines.get(name)(
        cfg,
        model_path=folder,
        device=torch.device(device),
        precision="fp32",
        seed=11,
        max_context_tokens=MAX_CONTEXT_TOKENS,
        **({"returns_routes": True} if returns_routes else {}),
    )
