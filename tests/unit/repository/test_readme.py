"""What the documents show works: commands exist, offline commands run, the plug-in can be planned."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from repository_tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "AGENTS.md")
CONFIG = ROOT / "examples" / "embodiment" / "config"


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def unfolded(block: str) -> list[str]:
    """Return a block's command lines, those that a backslash continues joined."""
    return block.replace("\\\n", " ").splitlines()


def commands(language: str = "bash") -> list[tuple[str, str]]:
    """Return (document, command line) of every line that the documents tell to type."""
    texts = [(name, (ROOT / name).read_text(encoding="utf-8")) for name in DOCUMENTS]
    lines = [(name, line) for name, text in texts for b in blocks(text, language) for line in unfolded(b)]
    return [(name, line) for name, line in lines if line and not line.startswith("#")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with the examples of the repository and a ``rlinf`` command."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program = tmp_path / "bin" / "rlinf"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = [{str(ROOT)!r}, '.']\n"
        "from rlinf.cli.main import main\nsys.exit(main())\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return tmp_path


def run(line: str, project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "RLINF_VENV": str(project / "no-venv"), **environment}
    return subprocess.run(
        ["bash", "-c", line], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("document", "line"), [(d, c) for d, c in commands() if "rlinf " in c and "point" not in c])
def test_offline_commands_run(document: str, line: str, project: Path) -> None:
    finished = run(line, project)
    assert finished.returncode == 0, f"{document}: {line}\n{finished.stderr}"


@pytest.mark.parametrize(("document", "line"), [(d, c) for d, c in commands() if c.startswith("bash ")])
def test_scripts_exist_and_accept_their_arguments(document: str, line: str, project: Path) -> None:
    script, *arguments = shlex.split(line)[1:]
    assert (ROOT / script).is_file(), f"{document}: {line}"
    if script.startswith("examples/"):
        finished = run(f"bash {shlex.quote(str(ROOT / script))} {shlex.join(arguments)} --dry-run", project)
        assert finished.returncode == 0, f"{document}: {line}\n{finished.stderr}"


def test_the_two_commands_of_a_bare_machine_come_first() -> None:
    typed = [line for document, line in commands() if document == "README.md"]
    assert typed[0] == "bash examples/embodiment/run_embodiment.sh metaworld_reach_ppo_mlp"
    assert typed[1] == "bash tests/run_tests.sh"


def test_recipes_of_the_table_are_the_recipes_there_are() -> None:
    section = README.split("## Recipes")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)) == {p.stem for p in CONFIG.glob("*.yaml")}


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


def test_the_plugin_is_planned_like_a_built_in(project: Path) -> None:
    setup, plan, train = (line for _, line in commands() if "point" in line or "PLUGIN" in line or "EXT_MODULE" in line)
    finished = run(f"{setup} && {plan}", project)
    assert finished.returncode == 0, finished.stderr
    assert "point: valid" in finished.stdout
    assert "run_embodiment.sh point --config-dir examples/extend/config" in train
