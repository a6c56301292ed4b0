"""Finds documents by the words that they share with a query: BM25, by the package ``bm25s``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.agents.retrieval.document_index import Document, DocumentIndex, Hit, read_corpus
from rlinf.errors import AgentError
from rlinf.utils.optional import require

_NEEDED_BY = "The search by BM25"
_FINGERPRINT = "corpus.sha256"


class BM25Index(DocumentIndex):
    """Okapi's BM25 in Lucene's form (k1 = 1.5, b = 0.75), over words of two letters or more in lower case.

    Args:
        documents: One at least.
        folder: Where the index is kept; one that was built of the same documents is loaded. None keeps none.

    Raises:
        MissingPackageError: ``bm25s`` is not installed.
        AgentError: The folder holds an index of another corpus, or of none.
    """

    def __init__(self, documents: Sequence[Document], folder: Path | None = None) -> None:
        self._bm25s: Any = require("bm25s", needed_by=_NEEDED_BY)
        self._documents = documents
        self._index: Any = None
        if folder is not None and folder.exists():
            self._index = self._load(folder)
            return
        self._index = self._bm25s.BM25()
        self._index.index(self._words([each["contents"] for each in documents]), show_progress=False)
        if folder is not None:
            self._index.save(str(folder))
            (folder / _FINGERPRINT).write_text(_fingerprint(documents), encoding="utf-8")

    @classmethod
    def of_corpus(cls, path: Path, folder: Path | None = None) -> BM25Index:
        """Build or load the index of a file of JSON lines; see ``read_corpus``."""
        return cls(read_corpus(path), folder)

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """See ``DocumentIndex``: documents that share no word with the query are left out."""
        if not queries:
            return []
        most = min(top_k, len(self._documents))
        words = self._words(list(queries), return_ids=False)
        numbers, scores = self._index.retrieve(words, k=most, show_progress=False)
        return [
            [(self._documents[number], float(score)) for number, score in zip(*row, strict=True) if score > 0]
            for row in zip(np.asarray(numbers).tolist(), np.asarray(scores).tolist(), strict=True)
        ]

    def _words(self, texts: list[str], **keys: Any) -> Any:
        return self._bm25s.tokenize(texts, stopwords=[], show_progress=False, **keys)

    def _load(self, folder: Path) -> Any:
        try:
            known = (folder / _FINGERPRINT).read_text(encoding="utf-8")
            index = self._bm25s.BM25.load(str(folder))
        except (OSError, ValueError) as error:
            raise AgentError(f"{folder}: holds no index: {error}. Delete the folder, and it is built anew.") from error
        if known != _fingerprint(self._documents):
            raise AgentError(f"{folder}: is the index of another corpus. Delete the folder, and it is built anew.")
        return index


def _fingerprint(documents: Sequence[Document]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        digest.update(document["contents"].encode() + b"\0")
    return digest.hexdigest()
