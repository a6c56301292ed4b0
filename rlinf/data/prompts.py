"""Datasets of prompts: read by ``datasets``, rendered, tokenised and filtered once, drawn in a repeatable order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlinf.config.schema.text_data import TextDataConfig
from rlinf.data.answers import Prompt
from rlinf.errors import DatasetError
from rlinf.utils.optional import require
from rlinf.utils.seeding import derive_seed

_FILE_FORMATS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
_INSTALL = "pip install 'rlinf[reasoning]'"


class Tokenizer(Protocol):
    """What is used of a tokenizer of transformers."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the tokens of ``text``."""
        ...

    def apply_chat_template(self, messages: Any, *, tokenize: bool, add_generation_prompt: bool) -> str:
        """Return the text of a conversation that an answer is to follow."""
        ...


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts, and what was left out.

    Attributes:
        prompts: Those that are asked, in the order of the dataset.
        num_rows: Rows read.
        num_too_long: Rows whose prompt has more tokens than allowed.
    """

    prompts: tuple[Prompt, ...]
    num_rows: int
    num_too_long: int

    def describe(self) -> str:
        """Return what was read and left out, in words."""
        left_out = f", {self.num_too_long} left out as too long" if self.num_too_long else ""
        return f"{len(self.prompts)} prompts of {self.num_rows} rows{left_out}"


def read_prompts(
    paths: Sequence[str], cfg: TextDataConfig, tokenizer: Tokenizer, *, split: str, limit: int | None = None
) -> PromptSet:
    """Read datasets one after the other, and turn their rows into prompts.

    Args:
        paths: See ``TextDataConfig.train_data_paths``.
        cfg: The ``data`` section.
        tokenizer: The model's.
        split: Split of those that are not files.
        limit: Read so many rows; None reads all.

    Returns:
        The prompts.

    Raises:
        DatasetError: A dataset cannot be read, a column is missing, a prompt is empty or (without the filter) too
            long, or nothing is left; the message names dataset and row.
    """
    prompts: list[Prompt] = []
    num_rows = num_too_long = 0
    for path in paths:
        for number, row in enumerate(_rows(path, split)):
            if limit is not None and num_rows >= limit:
                break
            prompt = _to_prompt(row, cfg, tokenizer, where=f"row {number} of {path}", index=num_rows)
            num_rows += 1
            if len(prompt.token_ids) <= cfg.max_prompt_length:
                prompts.append(prompt)
            elif cfg.filter_prompt_by_length:
                num_too_long += 1
            else:
                raise DatasetError(
                    f"data.max_prompt_length: received {cfg.max_prompt_length}; the prompt in row {number} of {path} "
                    f"has {len(prompt.token_ids)} tokens. Raise it, or set data.filter_prompt_by_length=true."
                )
    if not prompts:
        raise DatasetError(
            f"{', '.join(paths)}: no prompt is left of {num_rows} rows; {num_too_long} have more than "
            f"data.max_prompt_length {cfg.max_prompt_length} tokens. Raise it, or look at the data."
        )
    return PromptSet(tuple(prompts), num_rows, num_too_long)


class PromptSampler:
    """Draws prompts without end: every epoch holds each of them once, in an order of its own.

    The order follows from seed and epoch alone, so a position is all that a checkpoint has to hold.

    Args:
        prompts: What is drawn from.
        shuffle: Whether epochs differ in their order.
        seed: Names the orders.
    """

    def __init__(self, prompts: Sequence[Prompt], *, shuffle: bool, seed: int) -> None:
        self._prompts = prompts
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = -1
        self._order: np.ndarray[Any, np.dtype[np.int64]] = np.empty(0, dtype=np.int64)
        self.position = 0

    def draw(self) -> tuple[int, Prompt]:
        """Return the next prompt and its number within the run, from 0."""
        number = self.position
        epoch, offset = divmod(number, len(self._prompts))
        if epoch != self._epoch:
            self._order, self._epoch = self._order_of(epoch), epoch
        self.position += 1
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
    transformers = require("transformers", install=_INSTALL, needed_by="a tokenizer")
    try:
        return transformers.AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DatasetError(
            f"actor.model.model_path: no tokenizer can be loaded from '{path}': {reason} Give a folder that holds one."
        ) from error


def _rows(path: str, split: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file, a saved dataset or one on the Hub."""
    datasets = require("datasets", install=_INSTALL, needed_by="the section data")
    location = Path(path).expanduser()
    try:
        if location.suffix in _FILE_FORMATS:
            if not location.is_file():
                raise DatasetError(f"{path}: there is no such file. Correct data.train_data_paths or val_data_paths.")
            rows = datasets.load_dataset(_FILE_FORMATS[location.suffix], data_files=str(location), split="train")
        elif location.is_dir():
            rows = datasets.load_from_disk(str(location))
            rows = rows[split] if isinstance(rows, datasets.DatasetDict) else rows
        else:
            name, _, configuration = path.partition(":")
            rows = datasets.load_dataset(name, configuration or None, split=split)
    except DatasetError:
        raise
    except Exception as error:  # ``datasets`` raises errors of all the libraries it stands on
        raise DatasetError(f"{path}: cannot be read: {type(error).__name__}: {error}") from error
    yield from rows


def _to_prompt(row: Mapping[str, Any], cfg: TextDataConfig, tokenizer: Tokenizer, *, where: str, index: int) -> Prompt:
    content = _column(row, cfg.prompt_key, where, "data.prompt_key")
    text = _render(content, cfg, tokenizer, where)
    token_ids = tuple(tokenizer.encode(text, add_special_tokens=not _is_chat(content, cfg)))
    if not token_ids:
        raise DatasetError(
            f"data.prompt_key: the prompt in {where} is empty. Remove the row, or choose another column."
        )
    reference = None if cfg.answer_key is None else _column(row, cfg.answer_key, where, "data.answer_key")
    metadata = {key: _column(row, key, where, "data.metadata_keys") for key in cfg.metadata_keys}
    return Prompt(index=index, token_ids=token_ids, text=text, reference=reference, metadata=metadata)


def _render(content: Any, cfg: TextDataConfig, tokenizer: Tokenizer, where: str) -> str:
    """Return the text that the model is to continue."""
    if isinstance(content, str):
        text = cfg.prompt_template.replace("{prompt}", content)
        if not cfg.apply_chat_template:
            return text
        messages: list[Any] = [{"role": "user", "content": text}]
    elif isinstance(content, list) and all(isinstance(message, Mapping) for message in content):
        messages = list(content)
    else:
        raise DatasetError(
            f"data.prompt_key: received {type(content).__name__} in {where}; allowed: text, or a list of messages. "
            "Choose another column."
        )
    if cfg.system_prompt is not None:
        messages = [{"role": "system", "content": cfg.system_prompt}, *messages]
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is a program of its own
        raise DatasetError(
            f"The tokenizer's chat template refuses {where}: {error}. Correct it, or set "
            "data.apply_chat_template=false."
        ) from error


def _is_chat(content: Any, cfg: TextDataConfig) -> bool:
    """Whether a template has written the special tokens already."""
    return cfg.apply_chat_template or not isinstance(content, str)


def _column(row: Mapping[str, Any], key: str, where: str, option: str) -> Any:
    value: Any = row
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise DatasetError(f"{option}: there is no '{key}' in {where}. Columns: {', '.join(row)}. Correct it.")
        value = value[part]
    return value
