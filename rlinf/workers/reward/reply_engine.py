"""A generation engine in a reward's own process, which answers single questions."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from rlinf.config.schema.generation import GenerationConfig
from rlinf.data.datasets.prompts import load_tokenizer
from rlinf.data.messages.generation import GenerationRequest, SamplingParams
from rlinf.data.prompt_images import ImageProcessor, Images
from rlinf.errors import DatasetError
from rlinf.hybrid_engines.generation import generation_engines
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine

T = TypeVar("T")


class ReplyEngine:
    """Generates the most likely replies of a model that is never trained; ``replies`` may run on several threads.

    Args:
        cfg: Keys of the engine.
        folder: Of the model and its tokenizer.
        device: Where to compute.
        precision: Of the model.
        max_new_tokens: Tokens of a reply.
        max_context_tokens: Tokens of a question and its reply.
        sees_images: Whether questions may come with images.

    Raises:
        DatasetError: There is no such folder, or no tokenizer with a chat template; or the model reads no images.
        EngineError: The model cannot be loaded.
    """

    def __init__(
        self,
        cfg: GenerationConfig,
        folder: Path,
        *,
        device: torch.device,
        precision: str,
        max_new_tokens: int,
        max_context_tokens: int,
        sees_images: bool = False,
    ) -> None:
        self.tokenizer = load_tokenizer(str(folder))
        if self.tokenizer.chat_template is None:
            raise DatasetError(
                f"reward.rewards.*.model_path: the tokenizer in '{folder}' has no chat template, by which questions "
                "are put. Choose a model that was tuned to follow instructions, or add chat_template.jinja."
            )
        self.processor = ImageProcessor(str(folder)) if sees_images else None
        self._params = SamplingParams(temperature=0.0, max_new_tokens=max_new_tokens)
        self._numbers = itertools.count()
        self.engine: GenerationEngine = generation_engines.get(cfg.rollout_backend)(
            cfg,
            model_path=folder,
            device=device,
            precision=precision,
            seed=0,
            max_context_tokens=max_context_tokens,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="reply-engine")
        self._thread.start()
        self._run(self.engine.start())

    def replies(self, questions: Sequence[tuple[str, Images]]) -> list[str]:
        """Return the replies, without special tokens, to questions behind their images.

        Raises:
            EngineError: The engine failed, or a question is longer than ``max_context_tokens``.
        """
        requests = [self._request(text, images) for text, images in questions]

        async def generate() -> list[tuple[int, ...]]:
            results = await asyncio.gather(*(self.engine.generate(request) for request in requests))
            return [result.completions[0].token_ids for result in results]

        return [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in self._run(generate())]

    def close(self) -> None:
        """End the engine."""
        self._run(self.engine.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of what runs in the engine's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _request(self, question: str, images: Images) -> GenerationRequest:
        content: Any = question
        if self.processor is not None:
            content = [*({"type": "image"} for _ in images), {"type": "text", "text": question}]
        turns = [{"role": "user", "content": content}]
        text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        token_ids = self.tokenizer.encode(text, add_special_tokens=False)
        if self.processor is not None:
            token_ids = self.processor.expand(token_ids, images)
        number = str(next(self._numbers))
        return GenerationRequest(request_id=number, prompt_ids=tuple(token_ids), params=self._params, images=images)
