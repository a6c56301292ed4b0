"""Searches by BM25 over documents."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rlinf.agents.retrieval.bm25_index import BM25Index
from rlinf.errors import AgentError

pytest.importorskip("bm25s")

DOCUMENTS = [
    {"contents": "France\nIts capital is Paris."},
    {"contents": "Spain\nIts capital is Madrid."},
    {"contents": "Paris\nA city in France, and in Texas.", "id": 3},
]


def test_documents_are_found_by_their_words_the_best_first() -> None:
    index = BM25Index(DOCUMENTS)
    first, second, third = index.search(["capital of SPAIN", "paris", "nowhere"], 3)
    assert [document["contents"][:5] for document, _ in first] == ["Spain", "Franc"]
    assert first[0][1] > first[1][1] > 0
    assert [document["contents"][:5] for document, _ in second] == ["Franc", "Paris"]
    assert second[1][0]["id"] == 3
    assert third == []
    assert index.search([], 3) == []
    assert len(index.search(["capital"], 1)[0]) == 1


def test_scores_are_those_of_lucene() -> None:
    """One document of three has the word, once: idf * tf / (tf + k1 (1 - b + b length / mean))."""
    ((_, score),) = BM25Index(DOCUMENTS).search(["madrid"], 3)[0]
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    # Words of one letter are left out.
    lengths = [5, 5, 7]
    assert score == pytest.approx(idf / (1 + 1.5 * (0.25 + 0.75 * 5 * 3 / sum(lengths))), rel=1e-5)


def test_an_index_is_kept_and_belongs_to_its_corpus(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    built = BM25Index(DOCUMENTS, folder).search(["capital of Spain"], 2)
    assert BM25Index(DOCUMENTS, folder).search(["capital of Spain"], 2) == built
    with pytest.raises(AgentError, match=r"is the index of another corpus\. Delete the folder"):
        BM25Index([*DOCUMENTS[:2], {"contents": "Other"}], folder)
    with pytest.raises(AgentError, match=r"holds no index: .* Delete the folder"):
        BM25Index(DOCUMENTS, tmp_path)
