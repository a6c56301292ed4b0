"""What contributors and their tools read: guides name files that exist, forms and settings are what readers expect."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from repository_tree import ROOT

import rlinf

GUIDES = sorted((ROOT / ".cursor" / "skills").glob("*/SKILL.md"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
TEMPLATE = ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md"
CHANGES = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
"""The headings of Keep a Changelog."""

PATH = re.compile(
    r"(?<![\w./<>-])((?:rlinf|examples|tests|requirements|benchmarks|ray_utils|docker)/[\w./-]*\w/?)(?![\w<*])"
)


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def missing_paths(text: str) -> list[str]:
    """Return the paths of the repository that a text names and that are not there."""
    return [name for name in PATH.findall(text) if not (ROOT / name).exists()]


def test_there_is_a_guide_for_each_common_addition() -> None:
    assert {path.parent.name for path in GUIDES} == {"add-ci-recipe", "add-environment", "add-model"}


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.parent.name)
def test_a_guide_says_when_to_use_it_and_names_what_is_there(path: Path) -> None:
    _, head, body = path.read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(head)
    assert fields["name"] == path.parent.name
    assert "Use when" in fields["description"]
    assert len(PATH.findall(body)) >= 5
    assert missing_paths(body) == []


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.parent.name)
def test_names_in_a_guide_are_names_in_the_files_beside_them(path: Path) -> None:
    """``Name`` (`file`) must be found in that file."""
    text = path.read_text(encoding="utf-8")
    pairs = re.findall(r"`([A-Za-z_]+)`\s+\(`([\w/.]+\.py)`\)", text)
    assert [(name, file) for name, file in pairs if name not in (ROOT / file).read_text(encoding="utf-8")] == []


def test_a_path_that_is_gone_is_noticed() -> None:
    assert missing_paths("see `rlinf/envs/gone_env.py` and `rlinf/envs/base.py`") == ["rlinf/envs/gone_env.py"]
    assert missing_paths("write `rlinf/envs/<name>_env.py`") == []


@pytest.mark.parametrize(
    "document", ["CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md", ".github/PULL_REQUEST_TEMPLATE.md"]
)
def test_documents_name_what_is_there(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert missing_paths("\n".join(re.findall(r"`([^`\n]+)`", text))) == []


def test_the_changelog_keeps_its_format() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert releases[0] == "[Unreleased]"
    assert [name for name in releases[1:] if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", name)] == []
    assert set(re.findall(r"^### (.*)$", text, flags=re.MULTILINE)) <= CHANGES


def test_the_citation_is_of_this_version() -> None:
    citation = load(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert (str(citation["version"]), citation["license"]) == (rlinf.__version__, "Apache-2.0")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_github_asks_of_it(path: Path) -> None:
    form = load(path)
    assert {"name", "description", "body"} <= set(form)
    kinds = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    assert {item["type"] for item in form["body"]} <= kinds
    identifiers = [item["id"] for item in form["body"] if item["type"] != "markdown"]
    assert len(identifiers) == len(set(identifiers)) > 0
    assert all(item["attributes"]["label"] for item in form["body"] if item["type"] != "markdown")


def test_there_are_forms_for_faults_and_wishes() -> None:
    assert {path.stem for path in FORMS} == {"bug_report", "feature_request"}
    assert "bash tests/run_tests.sh" in TEMPLATE.read_text(encoding="utf-8")


def test_the_workflow_runs_what_everybody_runs() -> None:
    job = load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]
    assert "bash .ci/run" in [step.get("run") for step in job["steps"]]
    oldest = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert oldest is not None
    assert job["strategy"]["matrix"]["python-version"][0] == oldest.group(1)


def test_the_hooks_are_valid_and_are_the_gates() -> None:
    pytest.importorskip("pre_commit", reason="needs pre-commit; run: bash requirements/install.sh test")
    command = [sys.executable, "-m", "pre_commit", "validate-config", str(ROOT / ".pre-commit-config.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    hooks = {hook["id"] for repo in load(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]}
    assert {"ruff-check", "ruff-format", "mypy", "lint-imports", "shellcheck"} <= hooks


COMMIT_MESSAGES = {
    "feat(envs): add drawer tasks": True,
    "fix!: refuse what cannot work": True,
    "Add drawer tasks": False,
    "feat: ": False,
    f"feat: {'x' * 100}": False,
}


@pytest.mark.parametrize(("message", "accepted"), COMMIT_MESSAGES.items())
def test_the_commit_hook_accepts_conventional_commits_alone(message: str, accepted: bool) -> None:
    hooks = load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    pattern = next(hook["entry"] for hook in hooks if hook["id"] == "conventional-commit")
    assert bool(re.search(pattern, message, flags=re.MULTILINE)) == accepted
