"""The ``data`` section of language models: where prompts, answers and conversations come from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from rlinf.config.schema.base import ConfigSection, NonNegativeInt, PositiveInt

FILE_ENDINGS = (".jsonl", ".json", ".parquet")
"""Endings of the files that hold rows."""

RowsT = TypeVar("RowsT", bound="TextRowsConfig")


@dataclass(frozen=True, kw_only=True)
class TextRowsConfig(ConfigSection):
    """Keys of every data set of text."""

    train_data_paths: list[str] = field(default_factory=list)
    """Files (``.jsonl``, ``.json``, ``.parquet``), folders of these, folders that ``datasets`` has saved, or names on
    the Hub (``name`` or ``name:configuration``)."""
    val_data_paths: list[str] = field(default_factory=list)
    """The same for evaluation; empty for none. Several are also evaluated by themselves: ``eval/<name>/...`` with the
    name of the file, or that on the Hub, without folders and endings."""
    train_split: str = "train"
    """Split of what is not a file."""
    val_split: str = "test"
    """The same for evaluation."""
    prompt_key: str = "prompt"
    """Column of the prompt: text, or a list of messages with ``role`` and ``content``; dots reach into objects."""
    answer_key: str | None = "answer"
    """Column of what rewards compare answers with; null where none is needed."""
    val_prompt_key: str | None = None
    """``prompt_key`` of evaluations; null takes that."""
    val_answer_key: str | None = None
    """``answer_key`` of evaluations; null takes that."""
    image_keys: list[str] = field(default_factory=list)
    """Columns of images, which the model sees before the prompt: bytes of files, their paths, columns of images of
    ``datasets``, or lists of these. Needs ``actor.model.model_type: vision_lm``."""
    metadata_keys: list[str] = field(default_factory=list)
    """Further columns that rewards get to see."""
    prompt_template: str = "{prompt}"
    """Text around a prompt, which takes the place of ``{prompt}``."""
    system_prompt: str | None = None
    """System message of the chat template."""
    apply_chat_template: bool = False
    """Wrap prompts into the tokenizer's chat template; lists of messages always are."""
    max_val_prompts: PositiveInt | None = None
    """Evaluate on this number of each from the start; null on all."""
    shuffle: bool = True
    """Sample in an order that differs from epoch to epoch."""
    seed: NonNegativeInt = 1234
    """Seed of that order."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what reads the rows."""
        return ("datasets",)

    def required_files(self) -> dict[str, str]:
        """Return the files among the paths: a name without one of their endings may be one on the Hub."""
        paths = {"train_data_paths": self.train_data_paths, "val_data_paths": self.val_data_paths}
        return {
            f"{key}[{index}]": path
            for key, listed in paths.items()
            for index, path in enumerate(listed)
            if path.endswith(FILE_ENDINGS)
        }

    def for_evaluation(self: RowsT) -> RowsT:
        """Return the section as it reads what is evaluated on."""
        return replace(
            self, prompt_key=self.val_prompt_key or self.prompt_key, answer_key=self.val_answer_key or self.answer_key
        )

    @property
    def val_names(self) -> list[str]:
        """Names of what is evaluated on, in the order of ``val_data_paths``."""
        return [path.partition(":")[0].rstrip("/").rsplit("/", 1)[-1].partition(".")[0] for path in self.val_data_paths]


@dataclass(frozen=True, kw_only=True)
class TextDataConfig(TextRowsConfig):
    """Rows with a prompt and what its responses are scored by."""

    max_prompt_length: PositiveInt = 1024
    """Most tokens of a prompt, those of its images among them."""
    filter_prompt_by_length: bool = True
    """Leave out longer ones, and say how many; false makes one an error."""
    rollout_batch_size: PositiveInt
    """Prompts of one step; each is answered ``algorithm.group_size`` times."""
    gen_batch_size: PositiveInt | None = None
    """Prompts submitted at a time where groups are replaced (``algorithm.max_num_gen_batches``): with more than
    ``rollout_batch_size`` replacements are under way before it is known how many are needed. null asks that many, and
    then as many as are missing."""


@dataclass(frozen=True, kw_only=True)
class SftDataConfig(TextRowsConfig):
    """Rows with a prompt and its answer, or with a whole conversation."""

    messages_key: str | None = None
    """Column of conversations, lists of messages with ``role`` and ``content``; it takes the place of ``prompt_key``
    and ``answer_key``. Only what the role ``assistant`` says is learned."""
    choice_key: str | None = None
    """Column of a question's choices: a list, or a list as text. They are written behind the prompt as lines "A. ...";
    ``answer_key`` names the right one by its letter or its index from 0, and "B. ..." is learned. null without."""
    train_turns: Literal["all", "last"] = "all"
    """Whether every answer of a conversation is learned, or the last one."""
    max_length: PositiveInt = 2048
    """Most tokens of a prompt and its answer, or of a conversation."""
    on_too_long: Literal["drop", "truncate", "error"] = "drop"
    """What happens to longer ones: left out, cut off at the end (and left out if no token to learn remains), or an
    error; the run says how many."""
