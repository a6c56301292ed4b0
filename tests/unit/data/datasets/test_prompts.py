"""Rows of a dataset become prompts, what does not fit is counted or refused, and draws can go on anywhere."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlinf.config.schema.text_data import TextDataConfig
from rlinf.data.datasets.prompts import PromptSampler, PromptSet, load_tokenizer, read_prompts
from rlinf.data.messages.responses import Prompt
from rlinf.errors import DatasetError

datasets = pytest.importorskip("datasets")

ROWS = [
    {"prompt": "1+1", "answer": "2", "info": {"level": 1, "source": {"name": "a"}}},
    {"prompt": "10+10", "answer": "20", "info": {"level": 2, "source": {"name": "b"}}},
    {"prompt": "2+2", "answer": "4", "info": {"level": 1, "source": {"name": "c"}}},
]


class Letters:
    """A tokenizer with a token for each character, and 1 as the token that a text begins with."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [1] * add_special_tokens + [ord(letter) for letter in text]

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> Any:
        assert not tokenize
        if any(message["role"] == "tool" for message in messages):
            raise ValueError("no such role")
        said = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        return said + "<assistant>" * add_generation_prompt


def config(**keys: list[str] | str | bool | int | None) -> TextDataConfig:
    return TextDataConfig(**{"rollout_batch_size": 1, "max_prompt_length": 100, **keys})


def read(path: Path, cfg: TextDataConfig | None = None, *, split: str = "train", **keys: Any) -> PromptSet:
    return read_prompts([str(path)], cfg or config(), Letters(), split=split, **keys)


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``datasets`` converts files into a cache, which is not the user's here."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def write_jsonl(folder: Path) -> Path:
    return jsonl(folder / "rows.jsonl", ROWS)


def write_json(folder: Path) -> Path:
    path = folder / "rows.json"
    path.write_text(json.dumps(ROWS))
    return path


def write_parquet(folder: Path) -> Any:
    datasets.Dataset.from_list(ROWS).to_parquet(str(folder / "rows.parquet"))
    return folder / "rows.parquet"


def write_saved(folder: Path) -> Any:
    datasets.Dataset.from_list(ROWS).save_to_disk(str(folder / "saved"))
    return folder / "saved"


def write_saved_splits(folder: Path) -> Path:
    others = datasets.Dataset.from_list([{**ROWS[0], "prompt": "another split"}])
    splits = {"test": others, "train": datasets.Dataset.from_list(ROWS)}
    datasets.DatasetDict(splits).save_to_disk(str(folder / "splits"))
    return folder / "splits"


@pytest.mark.parametrize("write", [write_jsonl, write_json, write_parquet, write_saved, write_saved_splits])
def test_every_format_gives_the_same_prompts(tmp_path: Path, write: Callable[..., Any]) -> None:
    cfg = config(metadata_keys=["info.level", "info.source.name"])
    found = read(write(tmp_path), cfg)
    assert (found.num_rows, found.num_too_long) == (3, 0)
    assert [prompt.text for prompt in found.prompts] == ["1+1", "10+10", "2+2"]
    assert [prompt.reference for prompt in found.prompts] == ["2", "20", "4"]
    assert [prompt.index for prompt in found.prompts] == [0, 1, 2]
    assert found.prompts[0].token_ids == (1, ord("1"), ord("+"), ord("1"))
    assert dict(found.prompts[1].metadata) == {"info.level": 2, "info.source.name": "b"}


def test_datasets_follow_one_another_and_a_limit_counts_the_rows_of_all(tmp_path: Path) -> None:
    paths = [str(jsonl(tmp_path / f"{name}.jsonl", ROWS)) for name in ("one", "two")]
    found = read_prompts(paths, config(), Letters(), split="train", limit=4)
    assert [prompt.text for prompt in found.prompts] == ["1+1", "10+10", "2+2", "1+1"]
    assert [prompt.index for prompt in found.prompts] == [0, 1, 2, 3]
    assert found.num_rows == 4


def test_dots_reach_into_objects(tmp_path: Path) -> None:
    cfg = config(prompt_key="info.source.name", answer_key="info.level")
    assert [(p.text, p.reference) for p in read(write_jsonl(tmp_path), cfg).prompts] == [("a", 1), ("b", 2), ("c", 1)]


def test_a_prompt_stands_in_its_template_as_it_is(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [{"prompt": "a {b} {prompt}"}])
    found = read(path, config(prompt_template="Q: {prompt} A:", answer_key=None))
    assert found.prompts[0].text == "Q: a {b} {prompt} A:"
    assert found.prompts[0].reference is None


def test_the_chat_template_writes_the_special_tokens(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path)
    cfg = config(apply_chat_template=True, prompt_template="add {prompt}", system_prompt="Be brief.")
    prompt = read(path, cfg).prompts[0]
    assert prompt.text == "<system>Be brief.<user>add 1+1<assistant>"
    assert prompt.token_ids == tuple(ord(letter) for letter in prompt.text)
    assert read(path, replace(cfg, system_prompt=None)).prompts[0].text == "<user>add 1+1<assistant>"


def test_messages_are_always_a_chat(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3"},
    ]
    path = jsonl(tmp_path / "rows.jsonl", [{"prompt": messages, "answer": "4"}])
    prompt = read(path).prompts[0]
    assert prompt.text == "<user>1<assistant>2<user>3<assistant>"
    assert prompt.token_ids[0] == ord("<")


def test_conversations_keep_their_messages_for_workflows(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"prompt": "1+1=", "answer": "2"}])
    said = {"role": "user", "content": "1+1="}
    chat = config(apply_chat_template=True)
    assert read(path, chat, with_messages=True).prompts[0].messages == (said,)
    assert read(path, chat).prompts[0].messages == ()
    assert read(path, with_messages=True).prompts[0].messages == ()
    copy = pickle.loads(pickle.dumps(read(path, chat, with_messages=True).prompts[0]))
    assert copy == read(path, chat, with_messages=True).prompts[0]


def test_longer_prompts_are_left_out_and_counted(tmp_path: Path) -> None:
    found = read(write_jsonl(tmp_path), config(max_prompt_length=4))
    assert [prompt.index for prompt in found.prompts] == [0, 2]
    assert (found.num_rows, found.num_too_long) == (3, 1)
    assert found.describe() == "2 prompts of 3 rows, 1 left out as too long"
    assert read(write_jsonl(tmp_path)).describe() == "3 prompts of 3 rows"


def refusal(path: Path, cfg: TextDataConfig | None = None, **keys: bool | str) -> str:
    with pytest.raises(DatasetError) as caught:
        read(path, cfg, **keys)
    return str(caught.value)


def test_a_longer_prompt_is_an_error_where_the_recipe_says_so(tmp_path: Path) -> None:
    text = refusal(write_jsonl(tmp_path), config(max_prompt_length=4, filter_prompt_by_length=False))
    assert text.startswith("data.max_prompt_length: received 4; the prompt in row 1 of ")
    assert "has 6 tokens" in text
    assert "data.filter_prompt_by_length=true" in text


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    text = refusal(write_jsonl(tmp_path), config(max_prompt_length=2))
    assert "no prompt is left of 3 rows; 3 have more than data.max_prompt_length 2" in text


@pytest.mark.parametrize(
    ("cfg", "option", "key"),
    [
        (config(prompt_key="question"), "data.prompt_key", "question"),
        (config(answer_key="info.solution"), "data.answer_key", "info.solution"),
        (config(metadata_keys=["info.source.name.first"]), "data.metadata_keys", "info.source.name.first"),
    ],
)
def test_a_missing_column_is_named_with_those_there_are(
    tmp_path: Path, cfg: TextDataConfig, option: str, key: str
) -> None:
    text = refusal(write_jsonl(tmp_path), cfg)
    assert text.startswith(f"{option}: there is no '{key}' in row 0 of ")
    assert "Columns: prompt, answer, info." in text


@pytest.mark.parametrize(
    ("keys", "option", "key"),
    [
        ({"val_prompt_key": "problem"}, "data.val_prompt_key", "problem"),
        ({"prompt_key": "problem"}, "data.val_prompt_key", "problem"),
        ({"val_answer_key": "solution"}, "data.val_answer_key", "solution"),
        ({"metadata_keys": ["level"]}, "data.metadata_keys", "level"),
    ],
)
def test_a_column_that_evaluations_miss_is_named_by_their_own_option(
    tmp_path: Path, keys: dict[str, str | list[str]], option: str, key: str
) -> None:
    text = refusal(write_jsonl(tmp_path), config(**keys), is_evaluation=True)
    assert text.startswith(f"{option}: there is no '{key}' in row 0 of ")


def test_evaluations_read_their_own_columns(tmp_path: Path) -> None:
    cfg = config(val_prompt_key="info.source.name", val_answer_key="info.level")
    found = read(write_jsonl(tmp_path), cfg, is_evaluation=True)
    assert [(prompt.text, prompt.reference) for prompt in found.prompts] == [("a", 1), ("b", 2), ("c", 1)]
    assert read(write_jsonl(tmp_path), cfg).prompts[0].text == "1+1"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (3, "data.prompt_key: received int in row 0"),
        (["1", "2"], "data.prompt_key: received list in row 0"),
        ([{"role": "tool", "content": "1"}], "chat template refuses row 0"),
    ],
)
def test_what_is_no_prompt_is_refused(tmp_path: Path, prompt: int | list[str | dict[str, str]], message: str) -> None:
    assert message in refusal(jsonl(tmp_path / "rows.jsonl", [{"prompt": prompt, "answer": "4"}]))


def test_an_empty_prompt_is_refused(tmp_path: Path) -> None:
    class NoSpecial(Letters):
        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            return [ord(letter) for letter in text]

    path = jsonl(tmp_path / "rows.jsonl", [{"prompt": "", "answer": "4"}])
    with pytest.raises(DatasetError, match="prompt in row 0 of .* is empty"):
        read_prompts([str(path)], config(), NoSpecial(), split="train")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.jsonl")
    (tmp_path / "broken.parquet").write_text("no parquet")
    assert f"{tmp_path / 'broken.parquet'}: cannot be read" in refusal(tmp_path / "broken.parquet")
    assert "cannot be read: KeyError" in refusal(write_saved_splits(tmp_path), split="validation")


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(DatasetError, match=r"actor\.model\.model_path: no tokenizer .*Give a folder that holds one"):
        load_tokenizer(str(tmp_path))


PROMPTS = tuple(Prompt(index=index, token_ids=(index,), text=str(index)) for index in range(7))


def draws(sampler: PromptSampler[Prompt], count: int) -> list[tuple[int, int]]:
    return [(number, prompt.index) for number, prompt in (sampler.sample() for _ in range(count))]


def test_every_epoch_holds_each_prompt_once_in_an_order_of_its_own() -> None:
    drawn = draws(PromptSampler(PROMPTS, shuffle=True, seed=5), 28)
    assert [number for number, _ in drawn] == list(range(28))
    epochs = [tuple(index for _, index in drawn[start : start + 7]) for start in range(0, 28, 7)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len(set(epochs)) == 4
    assert draws(PromptSampler(PROMPTS, shuffle=True, seed=6), 28) != drawn


def test_without_shuffling_the_order_is_the_datasets() -> None:
    assert [index for _, index in draws(PromptSampler(PROMPTS, shuffle=False, seed=5), 9)] == [
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        0,
        1,
    ]


@pytest.mark.parametrize("position", [0, 3, 6, 7, 8, 20])
def test_a_sampler_goes_on_from_any_position_there_and_back(position: int) -> None:
    expected = draws(PromptSampler(PROMPTS, shuffle=True, seed=5), 30)
    sampler = PromptSampler(PROMPTS, shuffle=True, seed=5)
    draws(sampler, 11)
    sampler.position = position
    assert draws(sampler, 30 - position) == expected[position:]


class Doubles:
    """An image processor for which every image takes two tokens, and ``#`` is the placeholder."""

    def expand(self, token_ids: Any, images: tuple[bytes, ...]) -> tuple[int, ...]:
        if token_ids.count(ord("#")) != len(images):
            raise DatasetError("other placeholders")
        return tuple(t for token in token_ids for t in [token] * (2 if token == ord("#") else 1))


def test_prompts_hold_their_images_and_expanded_tokens(tmp_path: Path) -> None:
    for name in ("l", "r"):
        (tmp_path / f"{name}.png").write_bytes(name.encode())
    row = {"prompt": "1#2#3", "answer": "a", "left": f"{tmp_path}/l.png", "right": f"{tmp_path}/r.png"}
    path = jsonl(tmp_path / "rows.jsonl", [row])
    processor: Any = Doubles()
    (prompt,) = read(path, config(image_keys=["right", "left"]), processor=processor).prompts
    assert prompt.images == (b"r", b"l")
    assert prompt.token_ids[1:] == tuple(map(ord, "1##2##3"))
    assert pickle.loads(pickle.dumps(prompt)) == prompt
    with pytest.raises(DatasetError, match=r"data\.image_keys: row 0 of .*other placeholders"):
        read(path, config(image_keys=["left"]), processor=processor)
    with pytest.raises(DatasetError, match=r"data\.image_keys.*column 'answer' in row 0.*there is no image 'a'"):
        read(path, config(image_keys=["answer"]), processor=processor)
    cfg = config(image_keys=["right", "left"], max_prompt_length=6, filter_prompt_by_length=False)
    with pytest.raises(DatasetError, match=r"data\.max_prompt_length"):
        read(path, cfg, processor=processor)


def test_a_chat_names_its_images_before_the_text(tmp_path: Path) -> None:
    class Parts(Letters):
        def apply_chat_template(self, messages: Any, *, tokenize: bool, add_generation_prompt: bool) -> str:
            said = messages[-1]["content"]
            return "".join("#" if part["type"] == "image" else part["text"] for part in said)

    (tmp_path / "l.png").write_bytes(b"l")
    path = jsonl(tmp_path / "rows.jsonl", [{"prompt": "1", "answer": "a", "left": f"{tmp_path}/l.png"}])
    processor: Any = Doubles()
    cfg = config(image_keys=["left", "left"], apply_chat_template=True, system_prompt="Be brief.")
    (prompt,) = read_prompts([str(path)], cfg, Parts(), split="train", processor=processor).prompts
    assert prompt.text == "##1"
    assert prompt.token_ids == tuple(map(ord, "####1"))
