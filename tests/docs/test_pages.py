"""The two languages say the same: pages, headings, snippets, generated parts and links are alike."""

from __future__ import annotations

import re
import sys

import pytest
from documents import LANGUAGES, ROOT, SOURCES, page_name, pages, snippets

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
NAMES = [page_name(page) for page in pages()]
# Characters of Chinese text and of its punctuation.
CHINESE = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")


def text_of(language: str, name: str) -> str:
    return (SOURCES[language] / name).read_text(encoding="utf-8")


def prose(language: str, name: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text_of(language, name), flags=re.MULTILINE | re.DOTALL)


def test_both_languages_have_the_same_pages() -> None:
    assert {page_name(page) for page in pages("zh")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_headings_are_alike(name: str) -> None:
    levels = [re.findall(r"^(#+) ", prose(language, name), flags=re.MULTILINE) for language in SOURCES]
    assert levels[0] == levels[1]
    assert levels[0].count("#") == 1, "a page has one title"


@pytest.mark.parametrize("name", NAMES)
def test_snippets_are_alike(name: str) -> None:
    english, chinese = (snippets(SOURCES[language] / name) for language in SOURCES)
    # A directive with a heading, such as a toctree's caption, is translated.
    texts = [[re.sub(r"^:caption:.*$", "", s.text, flags=re.MULTILINE) for s in found] for found in (english, chinese)]
    assert texts[0] == texts[1]
    marks = [[(s.language, s.needs, s.recipe) for s in found] for found in (english, chinese)]
    assert marks[0] == marks[1]


@pytest.mark.parametrize("name", NAMES)
def test_links_targets_formulas_and_code_are_alike(name: str) -> None:
    for pattern in (r"\]\(([^)]+)\)", r"^<!-- generated: .* -->$", r"^\([\w-]+\)=$", r"\$\$.*?\$\$"):
        found = [
            sorted(re.findall(pattern, prose(language, name), flags=re.MULTILINE | re.DOTALL)) for language in SOURCES
        ]
        assert found[0] == found[1]
    code = [set(re.findall(r"`([^`\n]+)`", prose(language, name))) for language in SOURCES]
    assert code[0] == code[1]


@pytest.mark.parametrize("name", NAMES)
def test_each_language_is_written_in_itself(name: str) -> None:
    assert name == "index.md" or not CHINESE.search(text_of("en", name))
    assert CHINESE.search(text_of("zh", name))
    for line in re.sub(r"\$\$.*?\$\$", "", prose("zh", name), flags=re.DOTALL).splitlines():
        words = re.sub(r"`[^`]*`|\$[^$]*\$|<[^>]*>|\]\([^)]*\)", "", line)
        # A long line without a Chinese character was forgotten; names and tables of names are short.
        assert CHINESE.search(words) or len(re.findall(r"[A-Za-z]{2,}", words)) < 9, line


@pytest.mark.parametrize("name", NAMES)
def test_every_fence_is_a_snippet_of_a_known_kind(name: str) -> None:
    from generated import NEEDS

    found = snippets(SOURCES["en"] / name)
    assert len(re.findall(r"^ *```", text_of("en", name), flags=re.MULTILINE)) == 2 * len(found)
    for snippet in found:
        assert snippet.language in LANGUAGES or snippet.language.startswith("{"), f"{name}:{snippet.line}"
        assert set(snippet.needs) <= set(NEEDS), f"{name}:{snippet.line}"
        assert snippet.recipe or snippet.language != "yaml", f"{name}:{snippet.line}: a part of which recipe?"
