"""Documents of a corpus, and the contract of what finds some of them."""

from __future__ import annotations

import abc
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rlinf.errors import AgentError

Document: TypeAlias = "Mapping[str, Any]"
"""``contents``: the title in the first line, then the text; further keys are passed on."""
Hit: TypeAlias = "tuple[Document, float]"
"""A document and its score; higher is better."""


class DocumentIndex(abc.ABC):
    """Finds documents by a query."""

    @abc.abstractmethod
    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Return the best documents of each query, the best first.

        Args:
            queries: Texts.
            top_k: Most documents of each; fewer where fewer match.
        """


def read_corpus(path: Path) -> list[Document]:
    """Read a corpus in Search-R1's format: a JSON object with ``contents`` in each line.

    Args:
        path: File of JSON lines.

    Raises:
        AgentError: It cannot be read, is empty, or a line is something else.
    """
    try:
        documents = list(_documents(path))
    except (OSError, UnicodeDecodeError) as error:
        raise AgentError(f"{path}: cannot be read: {error}. Name a file of JSON lines.") from error
    if not documents:
        raise AgentError(f'{path}: holds no document. Write one as {{"contents": "title\\ntext"}} in each line.')
    return documents


def _documents(path: Path) -> Iterator[Document]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                document = json.loads(line)
            except (ValueError, RecursionError):
                document = None
            if not (isinstance(document, dict) and isinstance(document.get("contents"), str)):
                raise AgentError(
                    f'{path}:{number}: received {line[:80]!r}; expected {{"contents": "title\\ntext"}}. '
                    "Correct the line."
                )
            yield document
