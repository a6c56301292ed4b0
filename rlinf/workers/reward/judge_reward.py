"""``reward_type: judge``: what a language model replies about a response."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rlinf.algorithms.rewards.base import ON_CPU, RewardContext, TextReward
from rlinf.algorithms.rewards.extraction import reward_of_reply
from rlinf.config.schema.generation import HFGenerationConfig
from rlinf.config.schema.reward import JudgeRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.data.prompt_images import Images
from rlinf.errors import RewardError
from rlinf.utils.json_service import post_json
from rlinf.utils.urls import mask_url
from rlinf.workers.reward.reply_engine import ReplyEngine

_FIELDS = re.compile(r"\{(prompt|response|reference)\}")


class JudgeReward(TextReward):
    """Has a model judge each response: one that it holds itself, or one of a server of the OpenAI protocol.

    Args:
        cfg: Its keys.
        context: See ``Reward``.

    Raises:
        DatasetError: ``model_path`` is no folder of a model with a tokenizer that has a chat template.
        EngineError: The model cannot be loaded.
    """

    cfg: JudgeRewardConfig

    def __init__(self, cfg: JudgeRewardConfig, context: RewardContext = ON_CPU) -> None:
        super().__init__(cfg, context)
        self._judge: ReplyEngine | _Service
        if cfg.model_path is None:
            self._judge = _Service(cfg)
        else:
            self._judge = ReplyEngine(
                cfg.engine or HFGenerationConfig(rollout_backend="hf", max_running_requests=cfg.max_running_requests),
                Path(cfg.model_path).expanduser(),
                device=self.device,
                precision=cfg.precision,
                max_new_tokens=cfg.max_new_tokens,
                max_context_tokens=cfg.max_context_tokens,
            )

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``.

        Raises:
            RewardError: The server did not reply in time at any attempt, refused a request, or sent something else.
            EngineError: The engine failed, or question and response are longer than ``max_context_tokens``.
        """
        replies = self._judge.replies([(self._question(query), ()) for query in queries])
        return [reward_of_reply(reply, self.cfg.replies, self.cfg.invalid_reward) for reply in replies]

    def close(self) -> None:
        """See ``Reward``."""
        self._judge.close()

    def _question(self, query: RewardQuery) -> str:
        fields = {"prompt": query.prompt, "response": query.response, "reference": str(query.reference)}
        # In one pass: what a response says is never filled in.
        return _FIELDS.sub(lambda found: fields[found[1]], self.cfg.question)


class _Service:
    """Asks a server for chat completions: vLLM, SGLang, a provider.

    Args:
        cfg: The judge's keys; they have a ``url``.
    """

    def __init__(self, cfg: JudgeRewardConfig) -> None:
        assert cfg.url is not None
        self.cfg = cfg
        self._url = f"{cfg.url.rstrip('/')}/chat/completions"
        self._headers = {} if cfg.api_key is None else {"Authorization": f"Bearer {cfg.api_key}"}
        self._threads = ThreadPoolExecutor(cfg.max_running_requests, thread_name_prefix="judge")

    def replies(self, questions: Sequence[tuple[str, Images]]) -> list[str]:
        """Return the replies to questions, which have no images."""
        return list(self._threads.map(self._reply, (text for text, _ in questions)))

    def close(self) -> None:
        """Ask nothing more."""
        self._threads.shutdown(cancel_futures=True)

    def _reply(self, question: str) -> str:
        body = {
            "model": self.cfg.model,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0.0,
            "max_tokens": self.cfg.max_new_tokens,
        }
        reply = post_json(
            self._url,
            body,
            timeout_seconds=self.cfg.timeout_seconds,
            max_retries=self.cfg.max_retries,
            headers=self._headers,
        )
        return _content(self._url, reply)


def _content(url: str, reply: Any) -> str:
    try:
        content = reply["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        content = None
    if not isinstance(content, str):
        raise RewardError(
            f"{mask_url(url)} replied {str(reply)[:200]}; expected a chat completion with a text. See whether the "
            "address ends before /chat/completions, and whether the server speaks the OpenAI protocol."
        )
    return content
