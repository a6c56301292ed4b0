"""Corpora in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf.agents.retrieval.document_index import read_corpus
from rlinf.errors import AgentError


def test_a_corpus_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"id": 7, "contents": "A\\nb"}\n\n{"contents": "C"}\n', encoding="utf-8")
    assert read_corpus(file) == [{"id": 7, "contents": "A\nb"}, {"contents": "C"}]


@pytest.mark.parametrize("line", ["x", "[]", '{"text": "A"}', '{"contents": 3}', "[" * 100_000])
def test_a_line_that_is_no_document_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"contents": "A"}\n' + line, encoding="utf-8")
    with pytest.raises(AgentError, match=r"corpus\.jsonl:2: received .* Correct the line"):
        read_corpus(file)


def test_a_file_without_documents(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="cannot be read: .* Name a file"):
        read_corpus(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(AgentError, match="holds no document"):
        read_corpus(tmp_path / "empty.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(AgentError, match="cannot be read"):
        read_corpus(tmp_path / "latin.jsonl")
