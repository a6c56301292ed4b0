"""``reward_type: text_model``: a classifier of sequences scores answers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from rlinf.algorithms.rewards.base import TextReward
from rlinf.config.schema.text_reward import TextModelRewardConfig
from rlinf.data.answers import RewardQuery
from rlinf.errors import ConfigError
from rlinf.utils.optional import require


class TextModelReward(TextReward):
    """The score that a Hugging Face model for sequence classification gives to prompt and answer.

    A model with one output is a regression, whose output is the reward; of one with several, the probability of
    ``label`` is.

    Args:
        cfg: Its keys.

    Raises:
        ConfigError: ``model_path`` is no folder with such a model, or it has no such label.
        MissingPackageError: ``transformers`` is not installed.
    """

    cfg: TextModelRewardConfig

    def __init__(self, cfg: TextModelRewardConfig) -> None:
        super().__init__(cfg)
        transformers = require("transformers", needed_by="reward_type=text_model")
        folder = Path(cfg.model_path).expanduser()
        where = f"reward.rewards.*.model_path: received '{cfg.model_path}'"
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{where}; it holds no config.json. Name the folder of a saved model with its tokenizer.")
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            self._model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{where}; it cannot be loaded: {error}. Save the model with its tokenizer.") from error
        labels = self._model.config.num_labels
        if labels > 1 and cfg.label >= labels:
            raise ConfigError(f"reward.rewards.*.label: received {cfg.label}; the model has labels 0 to {labels - 1}.")
        if self._tokenizer.pad_token_id is None:
            raise ConfigError(f"{where}; its tokenizer has no pad_token. Save it with one.")
        self._model.config.pad_token_id = self._tokenizer.pad_token_id
        self._lock = threading.Lock()

    def place(self, device: torch.device) -> None:
        """See ``TextReward``."""
        self._model.to(device)

    @torch.no_grad()
    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``TextReward``."""
        texts = [self._text(query) for query in queries]
        # Batches of similar length waste little on padding.
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        rewards = [0.0] * len(texts)
        for start in range(0, len(order), self.cfg.batch_size):
            rows = order[start : start + self.cfg.batch_size]
            for row, score in zip(rows, self._scores([texts[row] for row in rows]), strict=True):
                rewards[row] = score
        return rewards

    def _scores(self, texts: list[str]) -> list[float]:
        with self._lock:  # tokenizers change their own settings as they go
            tokens = self._tokenizer(
                texts, padding=True, truncation=True, max_length=self.cfg.max_tokens, return_tensors="pt"
            )
            logits = self._model(
                input_ids=tokens["input_ids"].to(self._model.device),
                attention_mask=tokens["attention_mask"].to(self._model.device),
            ).logits.float()
        if logits.shape[-1] == 1:
            return [float(value) for value in logits[:, 0].tolist()]
        return [float(value) for value in logits.softmax(-1)[:, self.cfg.label].tolist()]

    def _text(self, query: RewardQuery) -> str:
        if self.cfg.template == "chat":
            turns = [{"role": "user", "content": query.prompt}, {"role": "assistant", "content": query.response}]
            text = str(self._tokenizer.apply_chat_template(turns, tokenize=False))
        else:
            text = query.prompt + query.response
        # Half of a surrogate pair is no text to a tokenizer; cut-off bytes of an emoji become one.
        return text.encode("utf-8", "replace").decode()
