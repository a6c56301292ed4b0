"""Datasets of prompts: read by ``datasets``, rendered, tokenised and filtered once, sampled in a repeatable order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from rlinf.config.schema.text_data import TextDataConfig, TextRowsConfig
from rlinf.data.datasets.text_rows import Place, Tokenizer, as_messages, column, read_rows, render
from rlinf.data.messages.responses import Prompt
from rlinf.data.prompt_images import ImageProcessor, Images, as_image_bytes
from rlinf.errors import DatasetError
from rlinf.utils.optional import require
from rlinf.utils.seeding import derive_seed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts, and what was left out.

    Attributes:
        prompts: Those that are used, in the order of the dataset.
        num_rows: Rows read.
        num_too_long: Rows whose prompt has more tokens than allowed.
    """

    prompts: tuple[Prompt, ...]
    num_rows: int
    num_too_long: int

    @classmethod
    def of_clients(cls) -> PromptSet:
        """Return what stands for prompts that are not known before a client sends them."""
        return cls((Prompt(index=0, token_ids=(), text=""),), num_rows=0, num_too_long=0)

    def describe(self) -> str:
        """Return what was read and left out, in words."""
        if not self.num_rows:
            return "what clients ask"
        left_out = f", {self.num_too_long} left out as too long" if self.num_too_long else ""
        return f"{len(self.prompts)} prompts of {self.num_rows} rows{left_out}"


def read_prompts(
    paths: Sequence[str],
    cfg: TextDataConfig,
    tokenizer: Tokenizer,
    *,
    split: str,
    limit: int | None = None,
    is_evaluation: bool = False,
    with_messages: bool = False,
    processor: ImageProcessor | None = None,
) -> PromptSet:
    """Read datasets one after the other, and turn their rows into prompts.

    Args:
        paths: See ``TextDataConfig.train_data_paths``.
        cfg: The ``data`` section.
        tokenizer: The model's.
        split: Split of those that are not files.
        limit: Rows to read; None reads all.
        is_evaluation: Whether they are evaluated on, and have the columns that ``TextDataConfig.for_evaluation`` names.
        with_messages: Whether prompts that are conversations keep their messages, for workflows that continue them.
        processor: Expands placeholders of images; needed with ``data.image_keys``.

    Returns:
        The prompts.

    Raises:
        DatasetError: A dataset cannot be read, a column is missing, a prompt is empty or (without the filter) too
            long, or nothing is left; the message names dataset and row.
    """
    cfg = cfg.for_evaluation() if is_evaluation else cfg
    prompts: list[Prompt] = []
    num_rows = num_too_long = 0
    for where, row in read_rows(paths, split=split, limit=limit, is_evaluation=is_evaluation):
        images = row_images(row, cfg, where)
        prompt = _to_prompt(row, cfg, tokenizer, where=where, index=num_rows, num_images=len(images))
        if processor is not None:
            prompt = _with_images(prompt, images, processor, where)
        if with_messages:
            prompt = replace(prompt, messages=_messages(row, cfg, where))
        num_rows += 1
        if len(prompt.token_ids) <= cfg.max_prompt_length:
            prompts.append(prompt)
        elif cfg.filter_prompt_by_length:
            num_too_long += 1
        else:
            raise DatasetError(
                f"data.max_prompt_length: received {cfg.max_prompt_length}; the prompt in {where} "
                f"has {len(prompt.token_ids)} tokens. Raise it, or set data.filter_prompt_by_length=true."
            )
    if not prompts:
        raise DatasetError(
            f"{', '.join(paths)}: no prompt is left of {num_rows} rows; {num_too_long} have more than "
            f"data.max_prompt_length {cfg.max_prompt_length} tokens. Raise it, or look at the data."
        )
    return PromptSet(tuple(prompts), num_rows, num_too_long)


class PromptSampler(Generic[T]):
    """Samples prompts, or other rows, without end: every epoch holds each of them once, in an order of its own.

    The order follows from seed and epoch alone, so a position is all that a checkpoint has to hold, and the numbers of
    earlier prompts that are to come once more.

    Args:
        prompts: What is sampled from.
        shuffle: Whether epochs differ in their order.
        seed: Names the orders.

    Attributes:
        position: Number of the next prompt.
        again: Numbers of earlier prompts that come before it.
    """

    def __init__(self, prompts: Sequence[T], *, shuffle: bool, seed: int) -> None:
        self._prompts = prompts
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = -1
        self._order: np.ndarray[Any, np.dtype[np.int64]] = np.empty(0, dtype=np.int64)
        self.position = 0
        self.again: deque[int] = deque()

    def sample(self) -> tuple[int, T]:
        """Return the next prompt and its number within the run, from 0."""
        number = self.again.popleft() if self.again else self.position
        epoch, offset = divmod(number, len(self._prompts))
        if epoch != self._epoch:
            self._order, self._epoch = self._order_of(epoch), epoch
        self.position = max(self.position, number + 1)
        return number, self._prompts[int(self._order[offset])]

    def _order_of(self, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        count = len(self._prompts)
        if not self._shuffle:
            return np.arange(count)
        return np.random.default_rng(derive_seed(self._seed, "prompts", epoch)).permutation(count)


def load_tokenizer(path: str) -> Any:
    """Return the tokenizer in a model's folder.

    Raises:
        DatasetError: There is none.
        MissingPackageError: transformers is not installed.
    """
    transformers = require("transformers", needed_by="a tokenizer")
    try:
        return transformers.AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DatasetError(
            f"actor.model.model_path: no tokenizer can be loaded from '{path}': {reason} Give a folder that holds one."
        ) from error


def _to_prompt(
    row: Mapping[str, Any], cfg: TextDataConfig, tokenizer: Tokenizer, *, where: Place, index: int, num_images: int = 0
) -> Prompt:
    content = column(row, cfg.prompt_key, where, where.option("prompt_key"))
    text = _render(content, cfg, tokenizer, where, num_images=num_images)
    token_ids = tuple(tokenizer.encode(text, add_special_tokens=not _is_chat(content, cfg)))
    if not token_ids:
        raise DatasetError(
            f"{where.option('prompt_key')}: the prompt in {where} is empty. Remove the row, or choose another column."
        )
    reference = None if cfg.answer_key is None else column(row, cfg.answer_key, where, where.option("answer_key"))
    metadata = {key: column(row, key, where, "data.metadata_keys") for key in cfg.metadata_keys}
    return Prompt(index=index, token_ids=token_ids, text=text, reference=reference, metadata=metadata)


def _messages(row: Mapping[str, Any], cfg: TextDataConfig, where: Place) -> tuple[Mapping[str, Any], ...]:
    content = column(row, cfg.prompt_key, where, where.option("prompt_key"))
    return tuple(prompt_messages(content, cfg, where)) if _is_chat(content, cfg) else ()


def row_images(row: Mapping[str, Any], cfg: TextRowsConfig, where: Place) -> Images:
    """Return the images of a row, in the order of ``data.image_keys``.

    Args:
        row: The row.
        cfg: The ``data`` section.
        where: Where the row stands.

    Raises:
        DatasetError: A column is missing, or holds something else.
    """
    found: list[bytes] = []
    for key in cfg.image_keys:
        try:
            found += as_image_bytes(column(row, key, where, "data.image_keys"))
        except DatasetError as error:
            raise DatasetError(f"data.image_keys: column '{key}' in {where}: {error}") from error
    return tuple(found)


def _with_images(prompt: Prompt, images: Images, processor: ImageProcessor, where: Place) -> Prompt:
    """Return a prompt with its placeholders expanded: as it is sampled from, and trained on."""
    try:
        return replace(prompt, token_ids=processor.expand(prompt.token_ids, images), images=images)
    except DatasetError as error:
        raise DatasetError(f"data.image_keys: {where}: {error}") from error


def _render(content: Any, cfg: TextRowsConfig, tokenizer: Tokenizer, where: Place, *, num_images: int = 0) -> str:
    """Return the text that the model is to continue."""
    if isinstance(content, str) and not cfg.apply_chat_template:
        return fill_template(content, cfg)
    messages = prompt_messages(content, cfg, where, num_images=num_images)
    return render(messages, tokenizer, where=where, add_generation_prompt=True)


def prompt_messages(content: Any, cfg: TextRowsConfig, where: Place, *, num_images: int = 0) -> list[Any]:
    """Return what a column says as the conversation that an answer is to follow.

    Args:
        content: Text, or a list of messages.
        cfg: The ``data`` section.
        where: Where the row stands.
        num_images: Images before the text; a list of messages has their placeholders already.

    Raises:
        DatasetError: It is something else.
    """
    if isinstance(content, str):
        said: Any = fill_template(content, cfg)
        if num_images:
            said = [*({"type": "image"} for _ in range(num_images)), {"type": "text", "text": said}]
        messages: list[Any] = [{"role": "user", "content": said}]
    else:
        messages = as_messages(content, option=where.option("prompt_key"), where=where)
    return messages if cfg.system_prompt is None else [{"role": "system", "content": cfg.system_prompt}, *messages]


def fill_template(text: str, cfg: TextRowsConfig) -> str:
    """Return a prompt within ``data.prompt_template``."""
    return cfg.prompt_template.replace("{prompt}", text)


def _is_chat(content: Any, cfg: TextRowsConfig) -> bool:
    """Whether a template has written the special tokens already."""
    return cfg.apply_chat_template or not isinstance(content, str)
