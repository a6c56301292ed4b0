"""Formulas are set in the font that the pages bring along: no character of theirs is missing in it."""

from __future__ import annotations

import html
import re

import pytest
from documents import ROOT, pages

from toolkits.docs.math_font import FONT, has_character

latex2mathml = pytest.importorskip("latex2mathml.converter", reason="run: bash requirements/install.sh test")
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$`])\$([^$`\n]+)\$", flags=re.DOTALL)


def formulas() -> list[str]:
    found = []
    for page in pages("en") + pages("zh"):
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        found += [block or inline for block, inline in FORMULA.findall(text)]
    return sorted(set(found))


def test_the_font_has_every_character_of_the_formulas() -> None:
    assert len(formulas()) > 20
    for formula in formulas():
        written = html.unescape(re.sub(r"<[^>]*>", "", latex2mathml.convert(formula)))
        assert [character for character in written if not has_character(character)] == [], formula


def test_the_style_names_the_font() -> None:
    style = (ROOT / "docs" / "_static" / "pages.css").read_text(encoding="utf-8")
    assert f'url("{FONT.name}")' in style
    assert re.search(r"^math \{ font-family: \"STIX Two Math web\"", style, flags=re.MULTILINE)
    # WOFF2, and small enough to travel with a page.
    assert FONT.read_bytes()[:4] == b"wOF2"
    assert FONT.stat().st_size < 300_000
