"""``reward_type: vlm``: what a vision-language model replies when it is shown the last images of an episode."""

from __future__ import annotations

import asyncio
import io
import threading
from collections import deque
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from rlinf.algorithms.rewards.base import ON_CPU, EmbodiedReward, RewardContext, at_last_action
from rlinf.algorithms.rewards.extraction import reward_of_reply
from rlinf.config.schema.generation import HFGenerationConfig
from rlinf.config.schema.reward import VLMRewardConfig
from rlinf.data.datasets.prompts import load_tokenizer
from rlinf.data.messages.generation import GenerationRequest, SamplingParams
from rlinf.data.messages.rewards import RewardRequest
from rlinf.data.prompt_images import ImageProcessor, Images
from rlinf.errors import RewardError
from rlinf.hybrid_engines.generation import generation_engines
from rlinf.hybrid_engines.generation.generation_engine import GenerationEngine
from rlinf.utils.optional import require

T = TypeVar("T")


class VLMReward(EmbodiedReward):
    """Asks the model about each environment after a chunk; the reply's reward is given to the chunk's last action.

    Args:
        cfg: Its keys.
        context: See ``Reward``.

    Raises:
        DatasetError: ``model_path`` is no folder with a model that reads images, or it has no tokenizer.
        EngineError: The model cannot be loaded.
    """

    cfg: VLMRewardConfig

    def __init__(self, cfg: VLMRewardConfig, context: RewardContext = ON_CPU) -> None:
        super().__init__(cfg, context)
        folder = Path(cfg.model_path).expanduser()
        self.history = ImageHistory(cfg.history_size)
        self._tokenizer = load_tokenizer(str(folder))
        self._processor = ImageProcessor(str(folder))
        keys = HFGenerationConfig(rollout_backend="hf", max_running_requests=cfg.max_running_requests)
        self.engine: GenerationEngine = generation_engines.get("hf")(
            keys,
            model_path=folder,
            device=self.device,
            precision=cfg.precision,
            seed=0,
            max_context_tokens=cfg.max_context_tokens,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="vlm-reward")
        self._thread.start()
        self._run(self.engine.start())

    def __call__(self, request: RewardRequest) -> torch.Tensor:
        """See ``Reward``.

        Raises:
            RewardError: The environment does not show what the question is about.
            EngineError: The engine failed, or images and question are longer than ``max_context_tokens``.
        """
        cfg = self.cfg
        rows = [int(row) for row in request.executed.any(-1).nonzero().flatten()]
        self.history.restart(request.env_ids[request.starts].tolist())
        shown = {row: self.history.add(int(request.env_ids[row]), self._images(request, row)) for row in rows}
        due = [row for row in rows if self._is_due(int(request.env_ids[row]))]
        scores = torch.where(request.executed.any(-1), cfg.interval_reward, 0.0)
        for row, reply in zip(due, self.replies([(self._question(request, r), shown[r]) for r in due]), strict=True):
            scores[row] = self.reward_of(reply)
        return at_last_action(scores, request.executed)

    def replies(self, questions: Sequence[tuple[str, Images]]) -> list[str]:
        """Return the model's replies, without special tokens, to questions behind their images."""
        requests = [self._request(number, text, images) for number, (text, images) in enumerate(questions)]

        async def answer() -> list[tuple[int, ...]]:
            results = await asyncio.gather(*(self.engine.generate(request) for request in requests))
            return [result.completions[0].token_ids for result in results]

        return [self._tokenizer.decode(ids, skip_special_tokens=True) for ids in self._run(answer())]

    def reward_of(self, reply: str) -> float:
        """Return the reward of a reply."""
        return reward_of_reply(reply, self.cfg.replies, self.cfg.invalid_reward)

    def close(self) -> None:
        """See ``Reward``."""
        self._run(self.engine.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of what runs in the engine's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _is_due(self, env_id: int) -> bool:
        count = self.history.num_chunks(env_id)
        return count >= self.cfg.min_history_size and count % self.cfg.input_interval == 0

    def _images(self, request: RewardRequest, row: int) -> Images:
        missing = [key for key in self.cfg.image_keys if key not in request.obs]
        if missing:
            raise RewardError(
                f"reward.rewards.*.image_keys: received {missing}; the environment shows "
                f"{', '.join(sorted(request.obs))}. Name some of these."
            )
        cameras = (request.obs[key][row] for key in self.cfg.image_keys)
        return tuple(_as_png(image) for shown in cameras for image in (shown if shown.ndim == 4 else (shown,)))

    def _question(self, request: RewardRequest, row: int) -> str:
        if "{task}" not in self.cfg.question:
            return self.cfg.question
        if "task_descriptions" not in request.obs:
            raise RewardError(
                "reward.rewards.*.question: has {task}, and the environment says no task_descriptions. Write the task "
                "into the question."
            )
        return self.cfg.question.replace("{task}", request.obs["task_descriptions"][row])

    def _request(self, number: int, question: str, images: Images) -> GenerationRequest:
        content = [*({"type": "image"} for _ in images), {"type": "text", "text": question}]
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        token_ids = self._processor.expand(self._tokenizer.encode(text, add_special_tokens=False), images)
        params = SamplingParams(temperature=0.0, max_new_tokens=self.cfg.max_new_tokens)
        return GenerationRequest(request_id=str(number), prompt_ids=token_ids, params=params, images=images)


class ImageHistory:
    """The last images of each environment's episode.

    Args:
        size: Images of each camera that are kept.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._frames: dict[int, deque[Images]] = {}
        self._counts: dict[int, int] = {}

    def restart(self, env_ids: Sequence[int]) -> None:
        """Forget the images of environments that begin an episode."""
        for env_id in env_ids:
            self._frames.pop(env_id, None)
            self._counts.pop(env_id, None)

    def add(self, env_id: int, images: Images) -> Images:
        """Add what the cameras of an environment show; return what is kept, all of one camera before the next."""
        frames = self._frames.setdefault(env_id, deque(maxlen=self.size))
        frames.append(images)
        self._counts[env_id] = self.num_chunks(env_id) + 1
        return tuple(image for camera in zip(*frames, strict=True) for image in camera)

    def num_chunks(self, env_id: int) -> int:
        """Return how often images of the episode were added."""
        return self._counts.get(env_id, 0)


def _as_png(image: torch.Tensor) -> bytes:
    """Return an image uint8 [H, W, 3] as a file."""
    pil = require("PIL.Image", needed_by="reward_type=vlm")
    buffer = io.BytesIO()
    pil.fromarray(image.cpu().numpy()).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()
