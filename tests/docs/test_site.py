"""The pages build without a warning, and no link within them leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from documents import ROOT

for _package in ("sphinx", "furo", "myst_parser", "latex2mathml"):
    pytest.importorskip(_package, reason=f"{_package} is not installed; run: bash requirements/install.sh test")


class _Page(HTMLParser):
    """Collects what a page links to, what it loads, and what can be linked to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for value in (given.get("id"), given.get("name")) if value}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if tag in {"script", "img"} and given.get("src"):
            self.loads.append(given["src"] or "")
        if tag == "link" and given.get("rel") in {"stylesheet", "icon"}:
            self.loads.append(given.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    finished = subprocess.run(
        ["bash", str(ROOT / "docs" / "build.sh"), "--output", str(folder)],
        env={**os.environ, "RLINF_VENV": sys.prefix, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-6000:]
    return folder


def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    files = {file: _Page(file) for language in ("en", "zh") for file in (site / language).rglob("*.html")}
    assert len(files) > 20
    broken = []
    for file, page in files.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchor = unquote(parts.fragment)
            known = files[target].anchors if target in files else set()
            if not target.is_file() or (anchor and target.suffix == ".html" and anchor not in known):
                broken.append(f"{file.relative_to(site)} -> {link}")
    assert broken == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for file in site.rglob("*.html"):
        assert [url for url in _Page(file).loads if urlsplit(url).netloc] == []
