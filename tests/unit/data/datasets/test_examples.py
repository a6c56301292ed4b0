"""Which tokens of a row are learned, what stands before them, and what is cut or left out."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlinf.config.schema.text_data import SftDataConfig
from rlinf.data.datasets.examples import Example, ExampleSet, read_examples
from rlinf.errors import DatasetError

datasets = pytest.importorskip("datasets")

BEGIN, END = 1, 2
CONVERSATION = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yo"},
    {"role": "user", "content": "2+2"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "bye"},
]


class Letters:
    """A tokenizer with a token for each character; ``$`` is the one that ends an answer.

    Its template writes a line end behind each message, as many do.
    """

    eos_token_id = END
    thinks = False

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [BEGIN] * add_special_tokens + [END if letter == "$" else ord(letter) for letter in text]

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> Any:
        assert not tokenize
        text = ""
        for number, message in enumerate(messages):
            is_last = number == len(messages) - 1
            thought = "(hm)" if self.thinks and is_last and message["role"] == "assistant" else ""
            text += f"<{message['role'][0]}>{thought}{message['content']}$\n"
        return text + "<a>" * add_generation_prompt


class Endless(Letters):
    """A template that does not end answers."""

    def apply_chat_template(self, messages: list[dict[str, str]], **keys: Any) -> Any:
        return super().apply_chat_template(messages, **keys).replace("$\n", "|")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``datasets`` converts files into a cache, which is not the user's here."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def read(
    folder: Path,
    rows: list[dict[str, Any]],
    tokenizer: Any = None,
    *,
    with_prompts: bool = False,
    limit: int | None = None,
    processor: Any = None,
    **keys: str | bool | int | list[str],
) -> ExampleSet:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cfg = SftDataConfig(**{"max_length": 100, **keys})
    return read_examples(
        [str(path)],
        cfg,
        tokenizer or Letters(),
        split="train",
        limit=limit,
        with_prompts=with_prompts,
        is_evaluation=with_prompts,
        processor=processor,
    )


def texts(example: Example) -> tuple[str, str]:
    """Return what stands before the first learned token, and the rest with what is not learned in brackets."""

    def show(token_ids: list[int]) -> str:
        return "".join({BEGIN: "^", END: "$"}.get(token, chr(token)) for token in token_ids)

    answer = ""
    for token, learned in zip(example.answer_ids, example.loss_mask, strict=True):
        answer += show([token]) if learned else f"[{show([token])}]"
    return show(example.prompt_ids), answer.replace("][", "")


def test_a_plain_row_learns_the_answer_and_its_end(tmp_path: Path) -> None:
    rows = [{"prompt": "1+1", "answer": "2"}, {"prompt": "a {b}", "answer": "c"}]
    found = read(tmp_path, rows, prompt_template="Q: {prompt} A: ")
    assert [texts(example) for example in found.examples] == [("^Q: 1+1 A: ", "2$"), ("^Q: a {b} A: ", "c$")]
    assert found.describe() == "2 examples of 2 rows"


def test_a_number_is_learned_as_it_is_written(tmp_path: Path) -> None:
    found = read(tmp_path, [{"q": {"text": "1+1"}, "a": 2}], prompt_key="q.text", answer_key="a")
    assert texts(found.examples[0]) == ("^1+1", "2$")


def test_the_chat_template_writes_the_end_and_what_follows_it_is_not_learned(tmp_path: Path) -> None:
    rows = [{"prompt": "1+1", "answer": "2"}]
    found = read(tmp_path, rows, apply_chat_template=True, system_prompt="Add.")
    assert texts(found.examples[0]) == ("<s>Add.$\n<u>1+1$\n<a>", "2$")
    found = read(tmp_path, rows, Endless(), apply_chat_template=True)
    assert texts(found.examples[0]) == ("<u>1+1|<a>", "2|$")


def test_a_prompt_of_messages_learns_the_answer_column_alone(tmp_path: Path) -> None:
    found = read(tmp_path, [{"prompt": CONVERSATION[:3], "answer": "4"}])
    assert texts(found.examples[0]) == ("<u>hi$\n<a>yo$\n<u>2+2$\n<a>", "4$")


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ("all", ("<u>hi$\n<a>", "yo$[\n<u>2+2$\n<a>]4$")),
        ("last", ("<u>hi$\n<a>yo$\n<u>2+2$\n<a>", "4$")),
    ],
)
def test_of_a_conversation_only_what_the_assistant_says_is_learned(
    tmp_path: Path, turns: str, expected: tuple[str, str]
) -> None:
    rows = [{"talk": CONVERSATION}, {"talk": CONVERSATION[:4]}]
    found = read(tmp_path, rows, messages_key="talk", train_turns=turns)
    assert [texts(example) for example in found.examples] == [expected, expected]


def test_a_template_that_rewrites_earlier_turns_is_refused_unless_only_the_last_is_learned(tmp_path: Path) -> None:
    tokenizer = Letters()
    tokenizer.thinks = True
    with pytest.raises(DatasetError, match=r"row 0 of .*data\.train_turns=last"):
        read(tmp_path, [{"talk": CONVERSATION}], tokenizer, messages_key="talk")
    found = read(tmp_path, [{"talk": CONVERSATION}], tokenizer, messages_key="talk", train_turns="last")
    assert texts(found.examples[0]) == ("<u>hi$\n<a>yo$\n<u>2+2$\n<a>", "(hm)4$")


def test_what_is_too_long_is_left_out_cut_off_or_refused(tmp_path: Path) -> None:
    rows = [
        {"prompt": "1", "answer": "23456"},  # 1 + 1 + 5 + 1 tokens.
        {"prompt": "1234567", "answer": "2"},
        {"prompt": "1", "answer": "2"},
    ]
    found = read(tmp_path, rows, max_length=7)
    assert [texts(example) for example in found.examples] == [("^1", "2$")]
    assert found.describe() == "1 examples of 3 rows, 2 left out as too long"
    assert len(read(tmp_path, rows, max_length=8).examples) == 2
    found = read(tmp_path, rows, max_length=7, on_too_long="truncate")
    assert [texts(example) for example in found.examples] == [("^1", "23456"), ("^1", "2$")]
    assert found.describe() == "2 examples of 3 rows, 1 left out as too long, 1 cut off as too long"
    with pytest.raises(DatasetError, match=r"data\.max_length: received 7; row 0 of .* has 8 tokens"):
        read(tmp_path, rows, max_length=7, on_too_long="error")


def test_a_conversation_that_is_cut_ends_with_its_last_learned_token(tmp_path: Path) -> None:
    rows = [{"talk": CONVERSATION}]
    # The cut falls into the second question, of which nothing is kept.
    found = read(tmp_path, rows, messages_key="talk", max_length=16, on_too_long="truncate")
    assert texts(found.examples[0]) == ("<u>hi$\n<a>", "yo$")
    assert found.num_cut == 1


def test_rows_without_an_answer_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{"prompt": "1", "answer": ""}, {"prompt": "1", "answer": None}, {"prompt": "1", "answer": "2"}]
    assert read(tmp_path, rows).describe() == "1 examples of 3 rows, 2 left out without an answer"
    rows = [{"talk": CONVERSATION[:1]}, {"talk": CONVERSATION}]
    found = read(tmp_path, rows, messages_key="talk")
    assert (len(found.examples), found.num_empty) == (1, 1)


def test_evaluations_ask_what_stands_before_the_last_answer(tmp_path: Path) -> None:
    rows = [{"talk": CONVERSATION, "level": 3}, {"talk": CONVERSATION[:2], "level": 4}]
    found = read(tmp_path, rows, with_prompts=True, messages_key="talk", metadata_keys=["level"])
    assert [prompt.text for prompt in found.prompts] == ["<u>hi$\n<a>yo$\n<u>2+2$\n<a>", "<u>hi$\n<a>"]
    assert [prompt.reference for prompt in found.prompts] == ["4", "yo"]
    assert [dict(prompt.metadata) for prompt in found.prompts] == [{"level": 3}, {"level": 4}]
    rows = [{"prompt": "1+1", "answer": 2}, {"prompt": "12345", "answer": 3}]
    found = read(tmp_path, rows, with_prompts=True, max_length=5, on_too_long="truncate")
    (prompt,) = found.prompts
    assert (prompt.reference, prompt.token_ids) == (2, found.examples[0].prompt_ids)
    assert read(tmp_path, rows).prompts == ()


def test_a_limit_counts_rows(tmp_path: Path) -> None:
    rows = [{"prompt": "1", "answer": ""}, {"prompt": "1", "answer": "2"}, {"prompt": "1", "answer": "3"}]
    assert read(tmp_path, rows, limit=2).describe() == "1 examples of 2 rows, 1 left out without an answer"


@pytest.mark.parametrize(
    ("row", "keys", "told"),
    [
        ({"prompt": "1"}, {}, r"data\.answer_key: there is no 'answer' in row 0"),
        ({"prompt": "1", "answer": ["2"]}, {}, r"data\.answer_key: received list .*data\.messages_key"),
        ({"prompt": 1, "answer": "2"}, {"apply_chat_template": True}, r"data\.prompt_key: received int"),
        ({"talk": "hi"}, {"messages_key": "talk"}, r"data\.messages_key: received str .* a list of messages"),
        ({"prompt": "1", "answer": ""}, {}, r"no example is left of 1 rows; 0 have more .* 1 have no answer"),
    ],
)
def test_a_row_that_cannot_be_learned_is_told_with_its_key(
    tmp_path: Path, row: dict[str, Any], keys: dict[str, bool | str], told: str
) -> None:
    with pytest.raises(DatasetError, match=told):
        read(tmp_path, [row], **keys)


@pytest.mark.parametrize("name", ["prompt", "answer"])
def test_a_column_that_evaluations_miss_is_named_by_their_own_option(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "1+1", "answer": "2"}) + "\n")
    cfg = SftDataConfig(max_length=100, **{f"val_{name}_key": "absent"})
    with pytest.raises(DatasetError, match=rf"^data\.val_{name}_key: there is no 'absent' in row 0 of "):
        read_examples([str(path)], cfg, Letters(), split="test", is_evaluation=True)


def test_a_prompt_without_a_token_is_refused(tmp_path: Path) -> None:
    class Beginless(Letters):
        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            return super().encode(text, add_special_tokens=False)

    with pytest.raises(DatasetError, match="is empty"):
        read(tmp_path, [{"prompt": "", "answer": "2"}], Beginless())


class Doubles:
    """An image processor for which every image takes two tokens, and ``#`` is the placeholder."""

    token_id = ord("#")

    def expand(self, token_ids: Any, images: tuple[bytes, ...]) -> tuple[int, ...]:
        if list(token_ids).count(self.token_id) != len(images):
            raise DatasetError("other placeholders")
        return tuple(t for token in token_ids for t in [token] * (2 if token == self.token_id else 1))

    def patches(self, image: bytes) -> Any:
        return SimpleNamespace(num_tokens=2)


class Parts(Letters):
    """A template that takes messages in parts alone where one of them has parts, as some do."""

    def apply_chat_template(
        self, messages: list[dict[str, Any]], *, tokenize: bool, add_generation_prompt: bool
    ) -> Any:
        if not all(isinstance(message["content"], str) for message in messages):
            said = [
                "".join("#" if part["type"] == "image" else part["text"] for part in message["content"])
                for message in messages
            ]
            messages = [{**message, "content": text} for message, text in zip(messages, said, strict=True)]
        return super().apply_chat_template(messages, tokenize=tokenize, add_generation_prompt=add_generation_prompt)


def image_rows(folder: Path, **columns: Any) -> list[dict[str, Any]]:
    for name in ("l", "r"):
        (folder / f"{name}.png").write_bytes(name.encode())
    return [{"left": f"{folder}/l.png", "right": f"{folder}/r.png", **columns}]


def test_images_stand_before_the_question_and_none_of_their_tokens_is_learned(tmp_path: Path) -> None:
    rows = image_rows(tmp_path, prompt="1+1", answer="2")
    keys: Any = {"image_keys": ["right", "left"], "processor": Doubles()}
    for found in (
        read(tmp_path, rows, Parts(), apply_chat_template=True, **keys),
        read(tmp_path, rows, Parts(), apply_chat_template=True, with_prompts=True, **keys),
    ):
        (example,) = found.examples
        assert texts(example) == ("<u>####1+1$\n<a>", "2$")
        assert example.images == (b"r", b"l")
    (prompt,) = found.prompts
    assert (prompt.token_ids, prompt.images) == (example.prompt_ids, example.images)
    plain = read(tmp_path, [rows[0] | {"prompt": "#1+1#"}], **keys)
    assert texts(plain.examples[0]) == ("^##1+1##", "2$")


def test_images_of_later_questions_keep_what_is_learned_in_its_place(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": "#hi"},
        {"role": "assistant", "content": "yo"},
        {"role": "user", "content": "#2+2"},
        {"role": "assistant", "content": "4"},
    ]
    rows = image_rows(tmp_path, talk=talk)
    keys: Any = {"image_keys": ["left", "right"], "messages_key": "talk", "processor": Doubles()}
    (example,) = read(tmp_path, rows, **keys).examples
    assert texts(example) == ("<u>##hi$\n<a>", "yo$[\n<u>##2+2$\n<a>]4$")
    # 31 tokens: a cut may take the end, but no token of an image.
    for length, fate in ((30, (0, 1)), (29, (1, 0)), (15, (1, 0))):
        more = {**rows[0], "talk": [{"role": "user", "content": "##"}, talk[1]]}
        found = read(tmp_path, [*rows, more], on_too_long="truncate", max_length=length, **keys)
        assert (found.num_too_long, found.num_cut) == fate, length


def test_placeholders_that_are_not_the_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"data\.image_keys: row 0 of .*other placeholders"):
        read(tmp_path, image_rows(tmp_path, prompt="1", answer="2"), image_keys=["left"], processor=Doubles())


def test_the_right_choice_is_learned_and_is_what_rewards_compare_with(tmp_path: Path) -> None:
    rows = [{"prompt": "Where?", "answer": "B", "options": ["left", "right"]}]
    found = read(tmp_path, rows, choice_key="options", with_prompts=True)
    assert texts(found.examples[0]) == ("^Where?\nChoices:\nA. left\nB. right\n", "B. right$")
    assert found.prompts[0].reference == "B. right"
