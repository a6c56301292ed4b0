"""Fills pages with what the code says, and shows what a marked snippet needs.

A line ``<!-- generated: NAME ARGUMENT ... -->`` is replaced by the Markdown that the function of that name makes; both
languages share it. A line ``<!-- needs: WHAT -->`` before a snippet becomes a note that readers see.
"""

from __future__ import annotations

import re

from config_reference import config_section
from metric_list import metric_list
from public_api import api
from sphinx.application import Sphinx

GENERATORS = {"config": config_section, "metrics": metric_list, "api": api}

# What a snippet may need beside a laptop and seconds: it is not run with the other snippets.
NEEDS = {
    "minutes": ("Takes minutes.", "需要几分钟。"),
    "gpu": ("Needs a GPU.", "需要一块 GPU。"),
    "gpus": ("Needs several GPUs.", "需要多块 GPU。"),
    "machines": ("Needs several machines.", "需要多台机器。"),
    "network": ("Needs the network.", "需要网络。"),
    "run": ("Needs a run that is under way.", "需要一个正在进行的训练。"),
    "results": ("Needs the results of a run.", "需要一次训练的结果。"),
    "robot": ("Needs a robot.", "需要机器人。"),
}
# Pages that a table of contents names and that another tool writes.
OPTIONAL_PAGES = ("guides/mistakes",)
_GENERATED = re.compile(r"^<!-- generated: (\w+) ?([\w. -]*) -->$", flags=re.MULTILINE)
_NEEDS = re.compile(r"^<!-- needs: ([\w, ]+) -->$", flags=re.MULTILINE)


def fill(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the marked lines of a page."""
    del docname
    language = 1 if app.config.language.startswith("zh") else 0
    known = app.env.found_docs
    for name in OPTIONAL_PAGES:
        source[0] = source[0] if name in known else source[0].replace(f"\n{name}\n", "\n")
    text = _GENERATED.sub(lambda found: GENERATORS[found[1]](*found[2].split()), source[0])
    source[0] = _NEEDS.sub(lambda found: _note(found[1], language), text)


def _note(needs: str, language: int) -> str:
    separator = "" if language else " "
    return f"*{separator.join(NEEDS[name.strip()][language] for name in needs.split(','))}*\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the reading of pages."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
