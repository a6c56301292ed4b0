"""The rollout worker of language models: a generation engine that answers prompts while its weights are replaced."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import torch

from rlinf.config.schema.generation import SamplingConfig
from rlinf.config.schema.root import LanguageConfig
from rlinf.data.datasets.prompts import load_tokenizer
from rlinf.data.messages.answers import Answer, Prompt
from rlinf.data.messages.generation import Completion, EngineStats, GenerationRequest, SamplingParams
from rlinf.data.messages.routing import sources
from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.generation import generation_engines
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine
from rlinf.hybrid_engines.weights.adapters import AdapterMerger
from rlinf.hybrid_engines.weights.bucket import Manifest, view_entry
from rlinf.models.hf_folder import find_model_folder
from rlinf.scheduler import Worker
from rlinf.utils.seeding import derive_seed
from rlinf.workers.weight_syncer import make_weight_syncer

_TOLERANCE = 1e-2
"""Relative difference of a weight's norm that bfloat16 rounding explains."""


class GenerationWorker(Worker):
    """One generation engine.

    Args:
        cfg: The recipe; it has a section ``rollout``.
        num_actor_workers: World size of the actor group.
    """

    def __init__(self, cfg: LanguageConfig, num_actor_workers: int) -> None:
        super().__init__()
        assert cfg.rollout is not None
        self.cfg, self.section = cfg, cfg.rollout
        self.syncer = make_weight_syncer(self, cfg.weight_syncer)
        self.actor_rank = sources(self._rank, num_actor_workers, self._world_size).peers[0]
        self.engine: GenerationEngine
        self.tokenizer: Any = None
        self.merger: AdapterMerger | None = None
        if cfg.actor.model.is_lora:
            self.merger = AdapterMerger(cfg.actor.model, bucket_bytes=cfg.weight_syncer.bucket.bucket_size)
        self.has_validated = False

    async def init_worker(self) -> None:
        """Start the engine; its weights come from the actor."""
        rollout, model = self.section, self.cfg.actor.model
        self.tokenizer = load_tokenizer(model.model_path)
        self.engine = generation_engines.get(rollout.rollout_backend)(
            rollout,
            model_path=await asyncio.to_thread(find_model_folder, model.model_path),
            device=torch.device(self.device),
            precision=rollout.model.precision or model.precision,
            seed=derive_seed(self.cfg.actor.seed, "rollout", self._rank),
            max_context_tokens=self.cfg.max_context_tokens,
        )
        self.at_shutdown(lambda: asyncio.run(self.engine.close()))
        await self.engine.start()

    async def answer(self, prompt: Prompt, *, group_id: int, params: SamplingParams, purpose: str) -> list[Answer]:
        """Answer one prompt ``params.n`` times.

        Args:
            prompt: What is asked.
            group_id: Number of the prompt within the run.
            params: How to draw; the seed is derived from the prompt's number, so that an engine which is asked again
                draws the same.
            purpose: ``train`` or ``eval``; names the random streams.

        Returns:
            The answers, not rewarded yet.
        """
        seed = derive_seed(self.cfg.actor.seed, "answers", purpose, group_id)
        request = GenerationRequest(
            request_id=_request_id(purpose, group_id),
            prompt_ids=prompt.token_ids,
            params=dataclasses.replace(params, seed=seed),
        )
        result = await self.engine.generate(request)
        return [
            self._to_answer(prompt, group_id, member, completion)
            for member, completion in enumerate(result.completions)
        ]

    async def abort(self, group_ids: Sequence[int], *, purpose: str) -> None:
        """End answers that are not needed: their ``answer`` returns with what there is.

        Args:
            group_ids: Of their prompts; those that have been answered meanwhile are passed over.
            purpose: As it was given to ``answer``.
        """
        await self.engine.abort([_request_id(purpose, group_id) for group_id in group_ids])

    async def sync_model_from_actor(self, *, version: int) -> None:
        """Receive weights from the actor and load them, all or nothing; requests in flight go on with them.

        Args:
            version: The version to receive.

        Raises:
            WeightSyncError: Another version came, a bucket is damaged or missing, or (``rollout.validate_weight``) the
                engine's weights differ from the actor's afterwards.
        """
        manifest: Manifest = await self._receive()
        manifest.check_version(version)
        receive: Callable[[], Awaitable[torch.Tensor]] = self._receive
        if self.merger is not None:
            await self._take_parts(self.merger, manifest)
            # An engine that slept may have lost weights that only this worker still has.
            is_partial = manifest.is_partial and self.engine.is_synced
            manifest, merged = self.merger.pack(is_partial=is_partial)
            receive = partial(asyncio.to_thread, next, merged)
        await self.engine.pause("keep")
        try:
            await self.engine.begin_update(manifest)
            sample: dict[str, float] = {}
            for index in range(len(manifest.bucket_sizes)):
                bucket = await receive()
                if self.section.validate_weight and not self.has_validated:
                    sample |= _norms(manifest, index, bucket)
                await self.engine.load_bucket(index, bucket)
            await self.engine.commit()
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

    def _to_answer(self, prompt: Prompt, group_id: int, member: int, completion: Completion) -> Answer:
        text = self.tokenizer.decode(list(completion.token_ids), skip_special_tokens=True)
        # What training reproduces is the distribution over the full vocabulary.
        logprobs = completion.logprobs if completion.full_logprobs is None else completion.full_logprobs
        return Answer(
            group_id=group_id,
            member=member,
            prompt=prompt,
            token_ids=completion.token_ids,
            logprobs=logprobs,
            versions=completion.versions,
            loss_mask=(True,) * len(completion.token_ids),
            finish_reason=completion.finish_reason,
            text=text,
        )

    async def _take_parts(self, merger: AdapterMerger, manifest: Manifest) -> None:
        """Receive adapters, and at first what they are added to, while the engine goes on."""
        merger.begin(manifest)
        for index in range(len(manifest.bucket_sizes)):
            await asyncio.to_thread(merger.take, index, await self._receive())
        merger.finish()

    async def _receive(self) -> Any:
        return await self.syncer.receive(self.cfg.actor.group_name, self.actor_rank).async_wait()

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


def sampling_params(cfg: SamplingConfig, *, n: int, greedy: bool = False) -> SamplingParams:
    """Return what a recipe says about sampling.

    Args:
        cfg: ``algorithm.sampling_params``.
        n: Answers to each prompt.
        greedy: Take the most likely tokens.
    """
    return SamplingParams(
        temperature=0.0 if greedy else cfg.temperature,
        top_k=-1 if greedy else cfg.top_k,
        top_p=1.0 if greedy else cfg.top_p,
        min_p=0.0 if greedy else cfg.min_p,
        repetition_penalty=cfg.repetition_penalty,
        max_new_tokens=cfg.max_new_tokens,
        min_new_tokens=cfg.min_new_tokens,
        stop=tuple(cfg.stop),
        stop_token_ids=tuple(cfg.stop_token_ids),
        n=n,
    )


def _request_id(purpose: str, group_id: int) -> str:
    return f"{purpose}-{group_id}"


def _norms(manifest: Manifest, index: int, bucket: torch.Tensor) -> dict[str, float]:
    entries = [entry for entry in manifest.entries if entry.bucket == index]
    return {entry.name: float(view_entry(entry, bucket).float().norm()) for entry in entries}
