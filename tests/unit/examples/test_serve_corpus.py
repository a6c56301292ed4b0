"""The script that serves a search of a corpus, as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlinf.utils.json_service import post_json

pytest.importorskip("bm25s")
pytest.importorskip("aiohttp")

SCRIPT = Path(__file__).parents[3] / "examples" / "agents" / "search" / "serve_corpus.py"


def test_it_serves_until_it_is_ended(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(
        '{"contents": "France\\nIts capital is Paris."}\n{"contents": "Spain\\nMadrid."}\n', encoding="utf-8"
    )
    command = [sys.executable, str(SCRIPT), str(corpus), "--index", str(tmp_path / "index"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            reply = post_json(url, {"queries": ["capital of France"], "topk": 1}, timeout_seconds=30, max_retries=0)
        finally:
            process.terminate()
    assert reply == {"result": [[{"contents": "France\nIts capital is Paris."}]]}
    assert (tmp_path / "index").is_dir()


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "x")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: {tmp_path}/x: cannot be read")
    assert "Traceback" not in done.stderr
