"""``reward_type: vlm``: what a vision-language model replies when it is shown the last images of an episode."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import torch

from rlinf.algorithms.rewards.base import ON_CPU, EmbodiedReward, RewardContext, at_last_action
from rlinf.algorithms.rewards.extraction import reward_of_reply
from rlinf.config.schema.generation import HFGenerationConfig
from rlinf.config.schema.reward import VLMRewardConfig
from rlinf.data.messages.rewards import RewardRequest
from rlinf.data.prompt_images import Images
from rlinf.errors import RewardError
from rlinf.utils.optional import require
from rlinf.workers.reward.reply_engine import ReplyEngine


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
        self.history = ImageHistory(cfg.history_size)
        self.engine = ReplyEngine(
            HFGenerationConfig(rollout_backend="hf", max_running_requests=cfg.max_running_requests),
            Path(cfg.model_path).expanduser(),
            device=self.device,
            precision=cfg.precision,
            max_new_tokens=cfg.max_new_tokens,
            max_context_tokens=cfg.max_context_tokens,
            sees_images=True,
        )

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
        replies = self.engine.replies([(self._question(request, row), shown[row]) for row in due])
        for row, reply in zip(due, replies, strict=True):
            scores[row] = self.reward_of(reply)
        return at_last_action(scores, request.executed)

    def reward_of(self, reply: str) -> float:
        """Return the reward of a reply."""
        return reward_of_reply(reply, self.cfg.replies, self.cfg.invalid_reward)

    def close(self) -> None:
        """See ``Reward``."""
        self.engine.close()

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
