"""Rows of text data sets: read by ``datasets``, their columns found, their conversations rendered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlinf.errors import DatasetError
from rlinf.utils.optional import require

_FILE_FORMATS = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
_SAVED = ("dataset_dict.json", "state.json")
"""Files of a folder that ``datasets`` has saved."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands, for messages.

    Attributes:
        row: In words.
        is_evaluation: Whether it is evaluated on, and its columns are those of ``TextRowsConfig.for_evaluation``.
    """

    row: str
    is_evaluation: bool = False

    def __str__(self) -> str:
        return self.row

    def option(self, key: str) -> str:
        """Return the path of the option that names a column of the row: of ``prompt_key``, say."""
        has_own = self.is_evaluation and key in {"prompt_key", "answer_key"}
        return f"data.val_{key}" if has_own else f"data.{key}"


class Tokenizer(Protocol):
    """What is used of a tokenizer of transformers."""

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends an answer."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the tokens of ``text``."""
        ...

    def apply_chat_template(self, messages: Any, *, tokenize: bool, add_generation_prompt: bool) -> str:
        """Return the text of a conversation, which an answer may be to follow."""
        ...


def read_rows(
    paths: Sequence[str], *, split: str, limit: int | None = None, is_evaluation: bool = False
) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Yield the rows of data sets, one after the other, each with where it stands.

    Args:
        paths: See ``TextRowsConfig.train_data_paths``.
        split: Split of those that are not files.
        limit: Rows to read; None reads all.
        is_evaluation: Whether they are evaluated on.

    Raises:
        DatasetError: A data set cannot be read.
    """
    count = 0
    for path in paths:
        for number, row in enumerate(_rows(path, split)):
            if limit is not None and count >= limit:
                return
            count += 1
            yield Place(f"row {number} of {path}", is_evaluation), row


def column(row: Mapping[str, Any], key: str, where: Place, option: str) -> Any:
    """Return a value of a row.

    Args:
        row: The row.
        key: Its column; dots reach into objects.
        where: Where the row stands.
        option: The option that names the column, for messages.

    Raises:
        DatasetError: There is no such column.
    """
    value: Any = row
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise DatasetError(f"{option}: there is no '{key}' in {where}. Columns: {', '.join(row)}. Correct it.")
        value = value[part]
    return value


def as_messages(content: Any, *, option: str, where: Place, allows: str = "text, or a list of messages") -> list[Any]:
    """Return a list of messages as such.

    Raises:
        DatasetError: It is something else.
    """
    if isinstance(content, list) and all(isinstance(message, Mapping) for message in content):
        # A table has all keys in every message.
        return [{key: value for key, value in message.items() if value is not None} for message in content]
    raise DatasetError(
        f"{option}: received {type(content).__name__} in {where}; allowed: {allows}. Choose another column."
    )


def render(messages: list[Any], tokenizer: Tokenizer, *, where: Place, add_generation_prompt: bool) -> str:
    """Return the text of a conversation.

    Args:
        messages: With ``role`` and ``content``.
        tokenizer: Has the template.
        where: Where the row stands.
        add_generation_prompt: Whether a response is to follow.

    Raises:
        DatasetError: The template refuses it.
    """
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add_generation_prompt))
    except Exception as error:  # a template is a program of its own
        raise DatasetError(
            f"The tokenizer's chat template refuses {where}: {error}. Correct it, or set "
            "data.apply_chat_template=false."
        ) from error


def _rows(path: str, split: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a file, a saved dataset or one on the Hub."""
    datasets = require("datasets", needed_by="the section data")
    location = Path(path).expanduser()
    try:
        if location.suffix in _FILE_FORMATS:
            if not location.is_file():
                raise DatasetError(f"{path}: there is no such file. Correct data.train_data_paths or val_data_paths.")
            rows = datasets.load_dataset(_FILE_FORMATS[location.suffix], data_files=str(location), split="train")
        elif location.is_dir() and not any((location / name).is_file() for name in _SAVED):
            for file in _files_below(location):
                yield from _rows(str(file), split)
            return
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


def _files_below(folder: Path) -> list[Path]:
    """Return the files of rows in a folder and those below it, by their names."""
    found = sorted(file for file in folder.rglob("*") if file.suffix in _FILE_FORMATS and file.is_file())
    if not found:
        raise DatasetError(
            f"{folder}: no file there ends with {', '.join(_FILE_FORMATS)}, and datasets has not saved it. Correct "
            "data.train_data_paths or val_data_paths."
        )
    return found
