"""The first hour of a newcomer: a clone in an empty home, and what README and start pages say, typed word for word.

Both languages show the same commands (``test_pages.py``), so that one run proves both. Needs the network, as the
installer does, and about half an hour.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import ROOT, SOURCES, Snippet, snippets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * 3600)]

START = [SOURCES["en"] / "start" / f"{name}.md" for name in ("install", "first_robot", "first_language_model")]
ELSEWHERE = {"gpu", "gpus", "machines", "robot", "run"}
# It runs this test, among others.
ITSELF = "bash tests/run_tests.sh"
# How packages and system libraries are reached from here; anything else of the environment stays outside.
KEPT = ("PIP_", "UV_", "http", "HTTP", "no_proxy", "NO_PROXY", "SSL_", "REQUESTS_", "LANG", "LC_")


class Newcomer:
    """Somebody with a clone of the repository and an empty home.

    Args:
        folder: Empty; becomes the home.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.clone = self.home / "RLinf"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.clone)], check=True)
        # The sockets of Ray need a short path.
        self.ray_folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
        kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        indexes = Path.home() / ".config" / "pip" / "pip.conf"
        if indexes.is_file():
            kept.setdefault("PIP_CONFIG_FILE", str(indexes))
        programs = os.pathsep.join([str(Path(sys.base_prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin"])
        self.environment = {**kept, "HOME": str(self.home), "PATH": programs, "RAY_TMPDIR": self.ray_folder}

    def type_all(self, typed: list[tuple[str, Snippet]]) -> None:
        """Run snippets in one shell, and fail with the first that fails."""
        lines = [f"echo '+++ {name}:{snippet.line}'\n{snippet.text}" for name, snippet in typed]
        log = self.home / "log.txt"
        with log.open("w") as file:
            finished = subprocess.run(
                ["bash", "-e", "-c", "\n".join(lines)],
                cwd=self.clone,
                env=self.environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        assert finished.returncode == 0, log.read_text()[-6000:]

    def metrics(self, experiment: str, name: str) -> list[float]:
        """Return the values of a metric over the steps of a run."""
        lines = (self.clone / "results" / experiment / "metrics.jsonl").read_text().splitlines()
        return [row[name] for row in map(json.loads, lines) if name in row]


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    somebody = Newcomer(tmp_path)
    yield somebody
    shutil.rmtree(somebody.ray_folder, ignore_errors=True)


def test_the_start_pages(newcomer: Newcomer) -> None:
    newcomer.type_all(
        [(page.name, s) for page in START for s in snippets(page, "bash") if ELSEWHERE.isdisjoint(s.needs)]
    )
    assert newcomer.metrics("gym_cartpole_ppo_mlp", "eval/return")[-1] > 400
    assert newcomer.metrics("metaworld_reach_ppo_mlp", "eval/success_once")[-1] > 0.8
    assert newcomer.metrics("tiny_math_grpo", "eval/accuracy")[-1] > 0.8


def test_the_readme(newcomer: Newcomer) -> None:
    typed = [("README.md", s) for s in snippets(newcomer.clone / "README.md", "bash") if s.text.strip() != ITSELF]
    assert len(typed) == len(snippets(newcomer.clone / "README.md", "bash")) - 1
    newcomer.type_all(typed)
    assert newcomer.metrics("metaworld_reach_ppo_mlp", "eval/success_once")[-1] > 0.8
