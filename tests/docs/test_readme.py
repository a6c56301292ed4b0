"""What the documents of the root show works: commands exist, offline commands run, links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, snippets

from tests.docs.conftest import Run

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ("README.md", "README.zh.md", "CONTRIBUTING.md", "AGENTS.md")


def commands() -> list[tuple[str, str]]:
    """Return (document, command line) of every line that the documents tell to type."""
    return [
        (name, line) for name in DOCUMENTS for snippet in snippets(ROOT / name, "bash") for line in snippet.commands
    ]


@pytest.mark.parametrize(("document", "line"), [(d, c) for d, c in commands() if "rlinf " in c and "point" not in c])
def test_offline_commands_run(document: str, line: str, run: Run) -> None:
    finished = run(line)
    assert finished.returncode == 0, f"{document}: {line}\n{finished.stderr}"


@pytest.mark.parametrize(("document", "line"), [(d, c) for d, c in commands() if c.startswith("bash ")])
def test_scripts_exist_and_accept_their_arguments(document: str, line: str, run: Run) -> None:
    script, *arguments = shlex.split(line)[1:]
    assert (ROOT / script).is_file(), f"{document}: {line}"
    if script.startswith("examples/"):
        finished = run(f"bash {shlex.quote(str(ROOT / script))} {shlex.join(arguments)} --dry-run")
        assert finished.returncode == 0, f"{document}: {line}\n{finished.stderr}"


def test_the_commands_of_a_bare_machine_come_first() -> None:
    typed = [line for document, line in commands() if document == "README.md"]
    assert typed[:2] == ["bash requirements/install.sh embodied --env metaworld", "source .venv/bin/activate"]
    assert typed[2] == "bash examples/embodiment/run_embodiment.sh metaworld_reach_ppo_mlp"
    assert "bash tests/run_tests.sh" in typed


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_paths_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    paths = re.findall(r"`((?:rlinf|examples|tests|requirements|benchmarks)/[\w./-]*)`", text)
    assert [name for name in links + paths if not (ROOT / name).exists()] == []


def test_commands_of_the_table_exist() -> None:
    from rlinf.cli.main import main

    section = README.split("## Command line")[1].split("\n## ")[0]
    for name in re.findall(r"^\| `rlinf (\w+)", section, flags=re.MULTILINE):
        with pytest.raises(SystemExit) as exit_info:
            main([name, "--help"])
        assert exit_info.value.code == 0


def test_the_plugin_is_planned_like_a_built_in(run: Run) -> None:
    setup, plan, train = (line for _, line in commands() if "point" in line or "PLUGIN" in line or "EXT_MODULE" in line)
    finished = run(f"{setup} && {plan}")
    assert finished.returncode == 0, finished.stderr
    assert "point: valid" in finished.stdout
    assert "run_embodiment.sh point --config-dir examples/extend/config" in train


def test_the_first_lines_are_python_in_both_languages() -> None:
    programs = [snippets(ROOT / name, "python") for name in ("README.md", "README.zh.md")]
    english, chinese = (re.sub(r"  #.*", "", program[0].text) for program in programs)
    assert english == chinese
    # What the program needs is installed above it.
    for name in ("README.md", "README.zh.md"):
        install, *_ = snippets(ROOT / name, "bash")
        assert "bash requirements/install.sh embodied" in install.commands[0]
        assert install.line < snippets(ROOT / name, "python")[0].line
    assert len([line for line in english.splitlines() if line]) <= 10


@pytest.mark.slow
def test_the_program_of_the_readme_runs(project: Path) -> None:
    """A minute of training; the pages' test of ``rlinf.train`` is short."""
    (program,) = (snippet.text for snippet in snippets(ROOT / "README.md", "python"))
    (project / "program.py").write_text(f"{program}\nassert not terminated\n", encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=project, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (project / "results" / "gym_cartpole_ppo_mlp" / "metrics.jsonl").is_file()
