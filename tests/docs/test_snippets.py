"""What the pages tell to type is typed, and what they tell to write is read. Both languages show the same snippets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, page_name, pages, snippets
from omegaconf import OmegaConf

from rlinf.config import load_recipe, validate_cfg
from tests.docs.conftest import Run

SCRIPT = re.compile(r"([A-Z_]+=\S+ )*(bash|python) (?P<script>\S+\.(sh|py))( |$)")


def pages_with(language: str, *, needy: bool = False) -> list[Path]:
    """Return the pages with snippets of a language, that need nothing, or (``needy``) that need something."""
    return [page for page in pages() if any(bool(s.needs) == needy for s in snippets(page, language))]


@pytest.mark.parametrize("page", pages_with("bash"), ids=page_name)
def test_commands_run(page: Path, run: Run) -> None:
    lines = [
        f"echo '{page_name(page)}:{snippet.line}' >&2\n{snippet.text}"
        for snippet in snippets(page, "bash")
        if not snippet.needs
    ]
    finished = run("\n".join(lines))
    assert finished.returncode == 0, f"{finished.stdout[-2000:]}\n{finished.stderr[-4000:]}"


@pytest.mark.parametrize("page", pages_with("python"), ids=page_name)
def test_python_runs(page: Path, project: Path) -> None:
    # Lines keep their numbers in tracebacks.
    code = [""] * (max(s.line + s.text.count("\n") for s in snippets(page, "python")) + 1)
    for snippet in snippets(page, "python"):
        if not snippet.needs:
            for offset, line in enumerate(snippet.text.splitlines()):
                code[snippet.line - 1 + offset] = line
    file = project / page.name.replace(".md", ".py")
    file.write_text("\n".join(code), encoding="utf-8")
    finished = subprocess.run([sys.executable, str(file)], cwd=project, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, f"{finished.stdout[-2000:]}\n{finished.stderr[-4000:]}"


@pytest.mark.parametrize("page", pages_with("yaml"), ids=page_name)
def test_recipes_are_valid(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for snippet in snippets(page, "yaml"):
        base, *overrides = snippet.recipe
        recipe, part = load_recipe(base, overrides), OmegaConf.create(snippet.text)
        OmegaConf.set_struct(recipe, False)
        if "component_placement" in part.get("cluster", {}):
            # It says where all components are.
            recipe.cluster.component_placement = {}
        validate_cfg(OmegaConf.merge(recipe, part))


@pytest.mark.parametrize("page", pages_with("bash", needy=True), ids=page_name)
def test_scripts_of_other_commands_exist_and_accept_their_arguments(page: Path, run: Run) -> None:
    for snippet in snippets(page, "bash"):
        for line in snippet.commands if snippet.needs else ():
            found = SCRIPT.match(line)
            if found is None:
                continue
            assert (ROOT / found["script"]).is_file(), f"{page_name(page)}: {line}"
            if found["script"].startswith("examples/") and found["script"].endswith(".sh"):
                finished = run(f"{line} --dry-run")
                assert finished.returncode == 0, f"{page_name(page)}: {line}\n{finished.stderr}"
