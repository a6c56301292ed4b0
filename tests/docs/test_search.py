"""Chinese pages can be searched by any run of characters that is in them."""

from __future__ import annotations

import re
import sys

import pytest
from documents import ROOT

pytest.importorskip("sphinx", reason="Sphinx is not installed; run: bash requirements/install.sh test")
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from chinese_search import ChinesePairs, split_terms


def test_terms_are_pairs_of_characters_and_latin_words() -> None:
    assert split_terms("学习率为actor.optim.lr，检查点 3") == [
        *("学习", "习率", "率为", "actor", "optim", "lr", "检查", "查点", "3"),
    ]
    assert split_terms("树") == ["树"]


def test_a_query_finds_the_text_that_holds_it() -> None:
    text = "恢复时从最新的检查点继续，学习率按调度下降。"
    for query in ("学习率", "检查点", "最新的检查点"):
        assert set(split_terms(query)) <= set(split_terms(text))
    assert not set(split_terms("学习点")) <= set(split_terms(text))


def test_the_browser_splits_as_the_pages_are_split() -> None:
    # One expression finds the runs on both sides.
    assert re.search(r"\[\\u4e00-\\u9fff\]\+\|\[A-Za-z0-9_\]\+", ChinesePairs.js_splitter_code)
    assert "slice(i, i + 2)" in ChinesePairs.js_splitter_code
