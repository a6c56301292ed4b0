"""The project's documents: which there are, and the snippets that they hold.

A snippet is a fenced block. Those of ``bash`` and ``python`` are run in order, page by page; ``yaml`` is a part of the
recipe that a line ``<!-- recipe: NAME -->`` before it names; ``text`` shows what a program says. A line
``<!-- needs: WHAT -->`` before a snippet says why it is not run: see ``NEEDS`` in ``docs/_ext/generated.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {language: ROOT / "docs" / f"source-{language}" for language in ("en", "zh")}
LANGUAGES = ("bash", "python", "yaml", "text")

_SNIPPET = re.compile(
    r"((?:^<!-- (?:needs|recipe): [^\n]* -->\n)*)^```([\w{}:.-]*)[^\n]*\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"^<!-- (needs|recipe): (.*) -->$", flags=re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a document.

    Attributes:
        language: What stands behind its fence; a directive's name has braces.
        text: What is in it.
        line: Number of its first line in the document.
        needs: What it needs, where it is not run with the others.
        recipe: Name of the recipe that it is a part of, and overrides.
    """

    language: str
    text: str
    line: int
    needs: tuple[str, ...] = ()
    recipe: tuple[str, ...] = ()

    @property
    def commands(self) -> list[str]:
        """Its lines without comments, those that a backslash continues joined."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line and not line.startswith("#")]


def snippets(document: Path, language: str | None = None) -> list[Snippet]:
    """Return the snippets of a document, in order; those of one language if it is named."""
    text = document.read_text(encoding="utf-8")
    found = []
    for match in _SNIPPET.finditer(text):
        marks = dict(_MARK.findall(match[1]))
        needs = tuple(name.strip() for name in marks.get("needs", "").split(",") if name.strip())
        line = text.count("\n", 0, match.start(3)) + 1
        found.append(Snippet(match[2], match[3], line, needs, tuple(marks.get("recipe", "").split())))
    return [snippet for snippet in found if language in {None, snippet.language}]


def pages(language: str = "en") -> list[Path]:
    """Return the pages of the documentation in one language."""
    return sorted(SOURCES[language].rglob("*.md"))


def page_name(page: Path) -> str:
    """Return a page's path within its language."""
    return next(page.relative_to(root).as_posix() for root in SOURCES.values() if page.is_relative_to(root))
