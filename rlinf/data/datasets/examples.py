"""Examples that a language model is fine-tuned on: which of their tokens are learned, and what was left out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlinf.config.schema.text_data import SftDataConfig
from rlinf.data.datasets.choices import write_choices
from rlinf.data.datasets.prompts import fill_template, prompt_messages, row_images
from rlinf.data.datasets.text_rows import Place, Tokenizer, as_messages, column, read_rows, render
from rlinf.data.messages.responses import Prompt
from rlinf.data.prompt_images import ImageProcessor, Images
from rlinf.errors import DatasetError

_ROLE = "assistant"
_Fate = Literal["too_long", "cut", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A sequence of tokens, some of which are learned.

    Attributes:
        prompt_ids: Tokens before the first one that is learned; at least one.
        answer_ids: That one and all after it, up to the last one that is learned, [L].
        loss_mask: bool [L]; which of ``answer_ids`` are learned.
        images: What the placeholders among all of them stand for.
    """

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    images: Images = ()

    @property
    def num_learned(self) -> int:
        """Tokens that are learned."""
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSet:
    """Examples, and what was left out.

    Attributes:
        examples: Those that are learned, in the order of the data set.
        prompts: What stands before the last answer of each, as far as evaluations sample a response to it.
        num_rows: Rows read.
        num_too_long: Rows left out because they have more tokens than allowed.
        num_cut: Rows whose end is cut off for that reason.
        num_empty: Rows left out because nothing in them is learned.
    """

    examples: tuple[Example, ...]
    prompts: tuple[Prompt, ...]
    num_rows: int
    num_too_long: int = 0
    num_cut: int = 0
    num_empty: int = 0

    @property
    def num_learned(self) -> int:
        """Tokens that are learned."""
        return sum(example.num_learned for example in self.examples)

    def describe(self) -> str:
        """Return what was read, cut and left out, in words."""
        fates = (
            (self.num_too_long, "left out as too long"),
            (self.num_cut, "cut off as too long"),
            (self.num_empty, "left out without an answer"),
        )
        dropped = "".join(f", {count} {fate}" for count, fate in fates if count)
        return f"{len(self.examples)} examples of {self.num_rows} rows{dropped}"


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a row's text, and whether it is an answer that is learned."""

    text: str
    is_learned: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """A row's text and images. ``reference`` is what rewards compare answers to its last question with."""

    pieces: tuple[_Piece, ...]
    is_chat: bool
    reference: Any
    images: Images = ()


def read_examples(
    paths: Sequence[str],
    cfg: SftDataConfig,
    tokenizer: Tokenizer,
    *,
    split: str,
    limit: int | None = None,
    with_prompts: bool = False,
    is_evaluation: bool = False,
    processor: ImageProcessor | None = None,
) -> ExampleSet:
    """Read data sets one after the other, and turn their rows into examples.

    An answer ends with the tokenizer's end token: where its template writes one, what the template writes behind it is
    not learned, and where the last answer has none, it is added.

    Args:
        paths: See ``TextRowsConfig.train_data_paths``.
        cfg: The ``data`` section.
        tokenizer: The model's.
        split: Split of those that are not files.
        limit: Rows to read; None reads all.
        with_prompts: Whether evaluations sample responses to the prompts.
        is_evaluation: Whether they are evaluated on, and have the columns that ``SftDataConfig.for_evaluation`` names.
        processor: Expands placeholders of images; needed with ``data.image_keys``.

    Returns:
        The examples.

    Raises:
        DatasetError: A data set cannot be read, a column is missing or of another kind, a prompt is empty, an example
            is too long (``on_too_long: error``), the template does not render conversations turn by turn, placeholders
            are not those of the images, or nothing is left; the message names data set and row.
    """
    cfg = cfg.for_evaluation() if is_evaluation else cfg
    examples: list[Example] = []
    prompts: list[Prompt] = []
    counts: Counter[_Fate] = Counter()
    num_rows = 0
    for where, columns in read_rows(paths, split=split, limit=limit, is_evaluation=is_evaluation):
        index, num_rows = num_rows, num_rows + 1
        row = _to_row(columns, cfg, tokenizer, where)
        if row is None:
            counts["empty"] += 1
            continue
        token_ids, mask = _tokenize(row, tokenizer, where)
        if processor is not None:
            token_ids, mask = _with_images(token_ids, mask, row.images, processor, where)
        example, fate = _fit(token_ids, mask, row, cfg, where)
        if fate == "cut" and processor is not None and not _has_all_images(example, token_ids, processor):
            example, fate = None, "too_long"
        if fate is not None:
            counts[fate] += 1
        if example is not None:
            examples.append(example)
            if with_prompts and is_evaluation:
                prompts += _question(row, columns, cfg, tokenizer, where=where, index=index, processor=processor)
    if not examples:
        raise DatasetError(
            f"{', '.join(paths)}: no example is left of {num_rows} rows; {counts['too_long']} have more than "
            f"data.max_length {cfg.max_length} tokens, {counts['empty']} have no answer. Raise it, or look at the data."
        )
    return ExampleSet(
        examples=tuple(examples),
        prompts=tuple(prompts),
        num_rows=num_rows,
        num_too_long=counts["too_long"],
        num_cut=counts["cut"],
        num_empty=counts["empty"],
    )


def _to_row(columns: Mapping[str, Any], cfg: SftDataConfig, tokenizer: Tokenizer, where: Place) -> _Row | None:
    """Return a row's text and images; None where it has no answer."""
    images = row_images(columns, cfg, where)
    if cfg.messages_key is not None:
        content = column(columns, cfg.messages_key, where, "data.messages_key")
        messages = as_messages(content, option="data.messages_key", where=where, allows="a list of messages")
        if cfg.system_prompt is not None:
            messages = [{"role": "system", "content": cfg.system_prompt}, *messages]
        turns = [number for number, message in enumerate(messages) if message.get("role") == _ROLE]
        if not turns:
            return None
        reference = messages[turns[-1]].get("content")
        turns = turns if cfg.train_turns == "all" else turns[-1:]
        pieces = _render_turns(messages, turns, tokenizer, where)
        return _Row(pieces, is_chat=True, reference=reference, images=images)
    assert cfg.answer_key is not None
    answer = column(columns, cfg.answer_key, where, where.option("answer_key"))
    if answer is None or answer == "":
        return None
    if not isinstance(answer, (str, int, float)):
        raise DatasetError(
            f"{where.option('answer_key')}: received {type(answer).__name__} in {where}; allowed: text, or a number. "
            "Choose another column, or name one of conversations in data.messages_key."
        )
    prompt = column(columns, cfg.prompt_key, where, where.option("prompt_key"))
    if cfg.choice_key is not None:
        prompt, answer = write_choices(prompt, column(columns, cfg.choice_key, where, "data.choice_key"), answer, where)
    if isinstance(prompt, str) and not cfg.apply_chat_template:
        pieces = (_Piece(fill_template(prompt, cfg), False), _Piece(str(answer), True))
        return _Row(pieces, is_chat=False, reference=answer, images=images)
    said = _answer_message(str(answer), has_parts=bool(images) and isinstance(prompt, str))
    messages = [*prompt_messages(prompt, cfg, where, num_images=len(images)), said]
    pieces = _render_turns(messages, [len(messages) - 1], tokenizer, where)
    return _Row(pieces, is_chat=True, reference=answer, images=images)


def _answer_message(answer: str, *, has_parts: bool) -> dict[str, Any]:
    """Return an answer as a message, in parts where the question is: some templates ask this of all messages."""
    return {"role": _ROLE, "content": [{"type": "text", "text": answer}] if has_parts else answer}


def _render_turns(messages: list[Any], turns: Sequence[int], tokenizer: Tokenizer, where: Place) -> tuple[_Piece, ...]:
    """Render a conversation up to its last learned answer, cut where answers begin and end."""
    pieces: list[_Piece] = []
    done = ""
    for turn in turns:
        prompt = render(messages[:turn], tokenizer, where=where, add_generation_prompt=True)
        said = render(messages[: turn + 1], tokenizer, where=where, add_generation_prompt=False)
        if not (prompt.startswith(done) and said.startswith(prompt)):
            raise DatasetError(
                f"The tokenizer's chat template writes what was said before another way once an answer is there, so "
                f"that {where} cannot be cut into turns. Set data.train_turns=last, or use another template."
            )
        pieces += [_Piece(prompt[len(done) :], False), _Piece(said[len(prompt) :], True)]
        done = said
    return tuple(pieces)


def _tokenize(row: _Row, tokenizer: Tokenizer, where: Place) -> tuple[list[int], list[bool]]:
    """Return a row's tokens, cut as generation cuts them, and which are learned."""
    token_ids, end = _encode(row, row.pieces[0], tokenizer, is_first=True), tokenizer.eos_token_id
    if not token_ids:
        raise DatasetError(
            f"The prompt in {where} is empty. Remove the row, or choose another {where.option('prompt_key')}."
        )
    mask = [False] * len(token_ids)
    for piece in row.pieces[1:]:
        part = _encode(row, piece, tokenizer)
        num_learned = len(part) if piece.is_learned else 0
        if piece.is_learned and end in part:
            num_learned = len(part) - part[::-1].index(end)
        elif piece is row.pieces[-1] and end is not None:
            part.append(end)
            num_learned = len(part)
        token_ids += part
        mask += [position < num_learned for position in range(len(part))]
    return token_ids, mask


def _with_images(
    token_ids: list[int], mask: list[bool], images: Images, processor: ImageProcessor, where: Place
) -> tuple[list[int], list[bool]]:
    """Return tokens with their placeholders expanded, and which of them are learned."""
    try:
        expanded = processor.expand(token_ids, images)
    except DatasetError as error:
        raise DatasetError(f"data.image_keys: {where}: {error}") from error
    sizes = (processor.patches(image).num_tokens for image in images)
    grown: list[bool] = []
    for token, is_learned in zip(token_ids, mask, strict=True):
        grown += [is_learned] * (next(sizes) if token == processor.token_id else 1)
    return list(expanded), grown


def _has_all_images(example: Example | None, token_ids: list[int], processor: ImageProcessor) -> bool:
    """Whether the cut left the tokens of all images."""
    if example is None:
        return False
    kept = (*example.prompt_ids, *example.answer_ids)
    return kept.count(processor.token_id) == token_ids.count(processor.token_id)


def _encode(row: _Row, piece: _Piece, tokenizer: Tokenizer, *, is_first: bool = False) -> list[int]:
    # A template has written the special tokens already.
    return list(tokenizer.encode(piece.text, add_special_tokens=is_first and not row.is_chat))


def _fit(
    token_ids: list[int], mask: list[bool], row: _Row, cfg: SftDataConfig, where: Place
) -> tuple[Example | None, _Fate | None]:
    """Return an example that is no longer than allowed, if there is one, and what has become of the row otherwise."""
    fate: _Fate | None = None
    if not any(mask):
        return None, "empty"
    length = _end(mask)
    if length > cfg.max_length:
        if cfg.on_too_long == "error":
            raise DatasetError(
                f"data.max_length: received {cfg.max_length}; {where} has {length} tokens. Raise it, or set "
                "data.on_too_long=drop or truncate."
            )
        if cfg.on_too_long == "drop" or not any(mask[: cfg.max_length]):
            return None, "too_long"
        length, fate = _end(mask[: cfg.max_length]), "cut"
    start = mask.index(True)
    example = Example(
        prompt_ids=tuple(token_ids[:start]),
        answer_ids=tuple(token_ids[start:length]),
        loss_mask=tuple(mask[start:length]),
        images=row.images,
    )
    return example, fate


def _end(mask: list[bool]) -> int:
    """Return where the tokens after the last learned one begin."""
    return len(mask) - mask[::-1].index(True)


def _question(
    row: _Row,
    columns: Mapping[str, Any],
    cfg: SftDataConfig,
    tokenizer: Tokenizer,
    *,
    where: Place,
    index: int,
    processor: ImageProcessor | None,
) -> list[Prompt]:
    """Return what stands before a row's last answer, unless it is too long for the model."""
    pieces = row.pieces[:-1]
    parts = [_encode(row, piece, tokenizer, is_first=number == 0) for number, piece in enumerate(pieces)]
    token_ids = tuple(itertools.chain.from_iterable(parts))
    if processor is not None:
        token_ids = processor.expand(token_ids, row.images)
    if len(token_ids) > cfg.max_length:
        return []
    metadata = {key: column(columns, key, where, "data.metadata_keys") for key in cfg.metadata_keys}
    text = "".join(piece.text for piece in pieces)
    keys = {"reference": row.reference, "metadata": metadata, "images": row.images}
    return [Prompt(index=index, token_ids=token_ids, text=text, **keys)]
