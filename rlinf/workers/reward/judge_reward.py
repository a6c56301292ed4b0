"""``reward_type: judge``: what a language model replies about a response."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rlinf.algorithms.rewards.base import ON_CPU, RewardContext, TextReward
from rlinf.algorithms.rewards.extraction import reward_of_reply
from rlinf.config.schema.reward import JudgeRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError
from rlinf.utils.json_service import post_json
from rlinf.utils.urls import mask_url

_FIELDS = re.compile(r"\{(prompt|response|reference)\}")


class JudgeReward(TextReward):
    """Asks for a chat completion about each response, of a server of the OpenAI protocol: vLLM, SGLang, a provider.

    Args:
        cfg: Its keys.
        context: See ``Reward``.
    """

    cfg: JudgeRewardConfig

    def __init__(self, cfg: JudgeRewardConfig, context: RewardContext = ON_CPU) -> None:
        super().__init__(cfg, context)
        self._url = f"{cfg.url.rstrip('/')}/chat/completions"
        self._headers = {} if cfg.api_key is None else {"Authorization": f"Bearer {cfg.api_key}"}
        self._threads = ThreadPoolExecutor(cfg.max_running_requests, thread_name_prefix="judge")

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``.

        Raises:
            RewardError: The server did not reply in time at any attempt, refused a request, or sent something else.
        """
        return list(self._threads.map(self._judge, queries))

    def close(self) -> None:
        """See ``Reward``."""
        self._threads.shutdown(cancel_futures=True)

    def _judge(self, query: RewardQuery) -> float:
        fields = {"prompt": query.prompt, "response": query.response, "reference": str(query.reference)}
        # In one pass: what a response says is never filled in.
        question = _FIELDS.sub(lambda found: fields[found[1]], self.cfg.question)
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
        return reward_of_reply(_content(self._url, reply), self.cfg.replies, self.cfg.invalid_reward)


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
