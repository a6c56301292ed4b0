"""The rollout worker of language models: a generation engine whose weights are replaced while it generates."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from rlinf.config.schema.root import LanguageConfig
from rlinf.data.datasets.prompts import load_tokenizer
from rlinf.data.messages.generation import Completion, EngineStats, GenerationRequest, SamplingParams
from rlinf.data.messages.responses import Prompt, ResponseBatch, ResponseGroup, RewardedGroup
from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.generation.from_recipe import build_engine
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.hybrid_engines.weights.adapters import AdapterMerger
from rlinf.hybrid_engines.weights.bucket import Manifest, entries_of, view_entry
from rlinf.scheduler import Worker
from rlinf.utils.seeding import derive_seed
from rlinf.workers.reward.response_client import ResponseClient
from rlinf.workers.weight_inbox import WeightInbox
from rlinf.workers.weight_syncer import make_weight_syncer

_TOLERANCE = 1e-2
"""Relative difference of a weight's norm that bfloat16 rounding explains."""


class GenerationWorker(Worker):
    """One generation engine.

    Args:
        cfg: The recipe; it has a section ``rollout``.
    """

    def __init__(self, cfg: LanguageConfig) -> None:
        super().__init__()
        assert cfg.rollout is not None
        assert cfg.reward is not None
        self.cfg, self.section = cfg, cfg.rollout
        self.inbox = WeightInbox(make_weight_syncer(self, cfg.weight_syncer), cfg.actor.group_name)
        self.engine: GenerationEngine
        self.responses = ResponseClient(cfg.reward.group_name)
        self.tokenizer: Any = None
        self.merger: AdapterMerger | None = None
        if cfg.actor.model.is_lora:
            self.merger = AdapterMerger(
                cfg.actor.model,
                bucket_bytes=cfg.weight_syncer.bucket.bucket_size,
                dtype=DTYPES[cfg.engine_precision],
            )
        self.has_validated = False

    async def init_worker(self) -> None:
        """Start the engine; its weights come from the actor."""
        self.tokenizer = load_tokenizer(self.cfg.actor.model.model_path)
        self.engine = await asyncio.to_thread(
            build_engine,
            self.cfg,
            device=torch.device(self.device),
            rank=self._rank,
            returns_routes=self.cfg.actor.routing_replay == "rollout",
        )
        self.at_shutdown(lambda: asyncio.run(self.engine.close()))
        await self.engine.start()

    async def generate(
        self, prompt: Prompt, *, group_id: int, params: SamplingParams, split: str
    ) -> RewardedGroup | None:
        """Generate ``params.n`` responses to a prompt, and send them to the reward rank that scores them.

        Args:
            prompt: The prompt.
            group_id: Number of the prompt within the run.
            params: How to sample; the seed is derived from the prompt's number, so that a request which is submitted
                again samples the same.
            split: ``train`` or ``eval``; names the random streams.

        Returns:
            The responses without their tokens, if they are rewarded at once; see ``RewardWorker.put_responses``.

        Raises:
            WorkerDiedError: The reward rank is gone.
        """
        seed = derive_seed(self.cfg.actor.seed, "answers", split, group_id)
        request = GenerationRequest(
            request_id=_request_id(split, group_id),
            prompt_ids=prompt.token_ids,
            images=prompt.images,
            params=dataclasses.replace(params, seed=seed),
        )
        result = await self.engine.generate(request)
        return await self.responses.put(split, self._to_group(prompt, group_id, result.completions))

    async def complete(self, *requests: GenerationRequest) -> list[Completion]:
        """Return the one response to each request of episodes, which are recorded where they are played.

        Raises:
            EngineError: The engine cannot complete one.
        """
        return [result.completions[0] for result in await asyncio.gather(*map(self.engine.generate, requests))]

    async def abort_requests(self, request_ids: Sequence[str]) -> None:
        """End requests of ``complete``; those that have ended meanwhile are passed over."""
        await self.engine.abort(request_ids)

    async def abort(self, group_ids: Sequence[int], *, split: str) -> None:
        """End responses that are not needed: their ``generate`` returns with the tokens so far.

        Args:
            group_ids: Of their prompts; those that have ended meanwhile are passed over.
            split: As it was given to ``generate``.
        """
        await self.engine.abort([_request_id(split, group_id) for group_id in group_ids])

    async def sync_model_from_actor(self, *, version: int) -> None:
        """Receive weights from the actor and load them, all or nothing; requests in flight go on with them.

        The engine generates while they are received and checked, and is paused while they are loaded.

        Args:
            version: The version to receive.

        Raises:
            WeightSyncError: Another version came, a bucket is damaged or missing, or (``rollout.validate_weight``) the
                engine's weights differ from the actor's afterwards.
        """
        manifest, buckets = await asyncio.to_thread(self.inbox.take, version)
        if self.merger is not None:
            manifest, buckets = await asyncio.to_thread(self._merge, self.merger, manifest, buckets)
        sample: dict[str, float] = {}
        if self.section.validate_weight and not self.has_validated:
            for index, bucket in enumerate(buckets):
                sample |= _norms(manifest, index, bucket)
        with self.worker_timer("pause_seconds"):
            await self.engine.pause("keep")
            try:
                await self._load(manifest, buckets)
            finally:
                await self.engine.resume()
        if sample:
            await self._validate(sample)

    async def sleep(self) -> None:
        """Give back the engine's memory for the time that the actor trains."""
        await self.engine.sleep()

    async def wake(self) -> None:
        """Take the memory again; weights must follow."""
        await self.engine.wake()

    async def stats(self) -> EngineStats:
        """Return what the engine is doing."""
        return await self.engine.stats()

    def _to_group(self, prompt: Prompt, group_id: int, completions: Sequence[Completion]) -> ResponseGroup:
        batch = ResponseBatch.of(prompt, group_id, completions)
        token_ids = (ids.tolist() for ids in batch.split(batch.token_ids))
        texts = tuple(self.tokenizer.decode(ids, skip_special_tokens=True) for ids in token_ids)
        return ResponseGroup(prompt=prompt, texts=texts, batch=batch)

    def _merge(
        self, merger: AdapterMerger, manifest: Manifest, buckets: Sequence[torch.Tensor]
    ) -> tuple[Manifest, list[torch.Tensor]]:
        """Take adapters over, and at first what they are added to; return what the engine loads."""
        merger.take_all(manifest, buckets)
        # An engine that slept may have lost weights that only this worker still has.
        return merger.pack(is_partial=self.engine.is_synced)

    async def _load(self, manifest: Manifest, buckets: list[torch.Tensor]) -> None:
        await self.engine.begin_update(manifest)
        for index in range(len(buckets)):
            await self.engine.load_bucket(index, buckets[index])
            # An engine that copies has no use for the memory any more.
            buckets[index] = torch.empty(0, dtype=torch.uint8)
        await self.engine.commit()

    async def _validate(self, expected: dict[str, float]) -> None:
        self.has_validated = True
        found = await self.engine.read_weights(list(expected))
        if found is None:
            self.log_warning("rollout.validate_weight: this engine cannot read its weights back; not compared.")
            return
        wrong = [
            name
            for name, norm in expected.items()
            if name in found and abs(float(found[name].float().norm()) - norm) > _TOLERANCE * max(norm, 1e-6)
        ]
        if wrong:
            raise WeightSyncError(f"After the first sync the engine's weights differ from the actor's: {wrong[:8]}.")


def _request_id(split: str, group_id: int) -> str:
    return f"{split}-{group_id}"


def _norms(manifest: Manifest, index: int, bucket: torch.Tensor) -> dict[str, float]:
    return {entry.name: float(view_entry(entry, bucket).float().norm()) for entry in entries_of(manifest, index)}
