"""Full-text search of Chinese pages: every two neighbouring characters are a term, of pages and of queries alike.

Chinese is written without spaces. Sphinx finds its words by a dictionary while it builds the pages, but not in what a
reader types; pairs of characters need neither a dictionary nor a guess.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx
from sphinx.search import languages
from sphinx.search.zh import SearchChinese

_RUNS = re.compile(r"[\u4e00-\u9fff]+|[A-Za-z0-9_]+")

# The same as ``split_terms``, in the reader's browser.
_SPLITTER = """
var splitQuery = (query) => (query.match(/[\\u4e00-\\u9fff]+|[A-Za-z0-9_]+/g) || []).flatMap((run) =>
  /^[\\u4e00-\\u9fff]{2,}$/.test(run) ? Array.from({length: run.length - 1}, (_, i) => run.slice(i, i + 2)) : [run]);
"""


def split_terms(text: str) -> list[str]:
    """Return the words in Latin letters and the pairs of neighbouring Chinese characters, in order."""
    terms: list[str] = []
    for run in _RUNS.findall(text):
        is_chinese = run[0] >= "\u4e00" and len(run) > 1
        terms += [run[i : i + 2] for i in range(len(run) - 1)] if is_chinese else [run]
    return terms


class ChinesePairs(SearchChinese):
    """Sphinx's search of Chinese pages with pairs of characters as terms."""

    js_splitter_code = _SPLITTER

    def split(self, input: str) -> list[str]:
        """See ``SearchLanguage``."""
        terms = split_terms(input)
        self.latin_terms.update(term for term in terms if term.isascii())
        return terms


def setup(app: Sphinx) -> dict[str, bool]:
    """Take the place of Sphinx's own search of Chinese."""
    del app
    languages["zh"] = ChinesePairs
    return {"parallel_read_safe": True, "parallel_write_safe": True}
