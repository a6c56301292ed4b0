"""What a column of messages may be, and which files of a folder hold rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlinf.data.datasets.text_rows import Place, as_messages, read_rows
from rlinf.errors import DatasetError


def test_keys_that_only_other_messages_of_a_table_have_are_left_out() -> None:
    messages = [{"role": "user", "content": "hi", "name": None}, {"role": "user", "content": "", "name": "x"}]
    found = as_messages(messages, option="data.prompt_key", where=Place("row 0"))
    assert found == [{"role": "user", "content": "hi"}, {"role": "user", "content": "", "name": "x"}]


@pytest.mark.parametrize("content", [3, ["hi"], {"role": "user"}])
def test_anything_else_is_refused_by_the_name_of_its_option(content: int | list[str] | dict[str, str]) -> None:
    with pytest.raises(DatasetError, match=r"data\.prompt_key: received \w+ in row 0"):
        as_messages(content, option="data.prompt_key", where=Place("row 0"))


def test_a_folder_is_read_file_by_file_those_below_it_included(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "rows"
    (folder / "b").mkdir(parents=True)
    for name, number in (("z.jsonl", 3), ("b/0.jsonl", 2), ("a.jsonl", 1)):
        (folder / name).write_text(json.dumps({"number": number}) + "\n")
    (folder / "README.md").write_text("no rows")
    assert [row["number"] for _, row in read_rows([str(folder)], split="test")] == [1, 2, 3]
    datasets.Dataset.from_dict({"number": [3]}).save_to_disk(str(tmp_path / "saved"))
    assert [row["number"] for _, row in read_rows([str(tmp_path / "saved")], split="test")] == [3]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"empty: no file there ends with .jsonl, .json, .parquet"):
        list(read_rows([str(tmp_path / "empty")], split="test"))
