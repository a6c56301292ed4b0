"""``reward_type: model``, a learned classifier of success, and ``reward_type: text_model``, one of texts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from rlinf.algorithms.rewards.base import ON_CPU, EmbodiedReward, RewardContext, TextReward, at_last_action
from rlinf.config.schema.reward import ModelRewardConfig, TextModelRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.data.messages.rewards import RewardRequest
from rlinf.errors import ConfigError, RewardError
from rlinf.models.control.success_classifier import SuccessClassifier
from rlinf.utils.optional import require


class ModelReward(EmbodiedReward):
    """The probability that the task is solved in the observation after a chunk, given to its last action.

    Args:
        cfg: Its keys.
        context: See ``Reward``.
    """

    cfg: ModelRewardConfig

    def __init__(self, cfg: ModelRewardConfig, context: RewardContext = ON_CPU) -> None:
        super().__init__(cfg, context)
        self.model = SuccessClassifier.load(Path(cfg.model_path).expanduser()).to(self.device).eval()

    @torch.no_grad()
    def __call__(self, request: RewardRequest) -> torch.Tensor:
        """See ``Reward``.

        Raises:
            ConfigError: The environment has a task whose words the classifier does not know.
            RewardError: The environment does not show what the classifier was trained on.
        """
        self._check(request)
        scores = torch.sigmoid(self.model(request.obs))
        scores = torch.where(scores >= self.cfg.reward_threshold, scores, 0.0)
        return at_last_action(scores, request.executed.to(scores.device))

    def _check(self, request: RewardRequest) -> None:
        seen = self.model.cfg
        expected: dict[str, tuple[int, ...]] = {key: (*seen.image_size, 3) for key in seen.image_keys}
        if seen.state_dim:
            expected["states"] = (seen.state_dim,)
        if seen.words and "task_descriptions" not in request.obs:
            raise RewardError(
                f"The classifier {self.cfg.model_path} judges by sentences, and the environment shows no "
                "'task_descriptions'. Train one without actor.model.words, or choose another environment."
            )
        for key, shape in expected.items():
            got = tuple(request.obs[key].shape[1:]) if key in request.obs else "nothing"
            if got != shape:
                raise RewardError(
                    f"The classifier {self.cfg.model_path} was trained on '{key}' of shape {list(shape)}; the "
                    f"environment shows {got}. Train it on this environment, or change the environment's cameras."
                )


class TextModelReward(TextReward):
    """The score that a Hugging Face model for sequence classification gives to prompt and answer.

    A model with one output is a regression, whose output is the reward; of one with several, the probability of
    ``label`` is.

    Args:
        cfg: Its keys.
        context: See ``Reward``.

    Raises:
        ConfigError: ``model_path`` is no folder with such a model, or it has no such label.
        MissingPackageError: ``transformers`` is not installed.
    """

    cfg: TextModelRewardConfig

    def __init__(self, cfg: TextModelRewardConfig, context: RewardContext = ON_CPU) -> None:
        super().__init__(cfg, context)
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
        self._model.to(self.device)
        self._lock = threading.Lock()

    @torch.no_grad()
    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``."""
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
                input_ids=tokens["input_ids"].to(self.device),
                attention_mask=tokens["attention_mask"].to(self.device),
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
