"""The reference is complete: registered names, keys, metrics and variables of the code are on its pages."""

from __future__ import annotations

import re
import sys

import pytest
from documents import ROOT, SOURCES, pages

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
PACKAGE = ROOT / "rlinf"


def headings(folder: str) -> set[str]:
    """Return what the headings of the pages in a folder show as code."""
    texts = [page.read_text(encoding="utf-8") for page in pages() if page.parent == SOURCES["en"] / folder]
    return {name for text in texts for name in re.findall(r"^## `([\w]+)`$", text, flags=re.MULTILINE)}


def test_every_registered_advantage_and_loss_has_its_equations() -> None:
    from rlinf.config.registries import advantages, losses

    assert {*advantages.configs.names(), *losses.configs.names()} <= headings("algorithms")


@pytest.mark.parametrize(
    "section",
    ["runner", "cluster", "algorithm", "env", "actor", "rollout", "inference", "reward", "data", "weight_syncer"],
)
def test_every_key_of_a_section_has_its_meaning(section: str) -> None:
    from config_reference import config_section

    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", config_section(section), flags=re.MULTILINE)
    assert rows
    silent = [key for key, rest in rows if not re.search(r"[.\w]", rest.rpartition(" | ")[2])]
    assert silent == []


def test_every_section_of_every_task_has_a_page() -> None:
    from rlinf.config.parse import field_types
    from rlinf.config.registries import task_types

    sections = {name for task in task_types.configs.names() for name in field_types(task_types.configs.get(task))}
    assert sections == {page.stem for page in pages() if page.parent.name == "config"} - {"index"}


def test_keys_of_every_registered_dataclass_are_shown() -> None:
    from config_reference import places

    from rlinf.config import registries

    shown = {
        cls
        for section in (page.stem for page in pages() if page.parent.name == "config" and page.stem != "index")
        for kinds in places(section).values()
        for cls in kinds
    }
    tables = [getattr(registries, kind).configs for kind in registries.__all__ if kind != "task_types"]
    missing = [f"{table.kind}: {name}" for table in tables for name in table if table.get(name) not in shown]
    assert missing == []


def test_metrics_of_every_loss_have_a_meaning() -> None:
    from metric_list import MEANINGS, loss_metrics

    from rlinf.config.registries import losses

    for loss in losses:
        reported = loss_metrics(loss)
        assert reported
        assert set(reported) <= set(MEANINGS["train"]), loss


def test_timers_of_workers_have_a_meaning() -> None:
    from metric_list import MEANINGS

    tags = {
        f"{folder.name}/{tag}"
        for folder in (PACKAGE / "workers").iterdir()
        if folder.is_dir()
        for file in folder.glob("*.py")
        for tag in re.findall(r'timer\("(\w+)"\)', file.read_text(encoding="utf-8"))
    }
    assert tags
    assert tags <= set(MEANINGS["time"])


def test_variables_of_the_code_are_explained() -> None:
    page = (SOURCES["en"] / "reference" / "environment_variables.md").read_text(encoding="utf-8")
    used = {
        name
        for folder in ("rlinf", "ray_utils", "requirements", "examples")
        for suffix in ("py", "sh")
        for file in (ROOT / folder).rglob(f"*.{suffix}")
        for name in re.findall(r"\bRLINF_[A-Z_]+\b", file.read_text(encoding="utf-8"))
    }
    assert "RLINF_EXT_MODULE" in used
    assert {name for name in used if f"`{name}`" not in page} == set()


def test_commands_of_the_command_line_are_explained() -> None:
    from rlinf.cli import main

    page = (SOURCES["en"] / "reference" / "command_line.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `rlinf (\w+)", page, flags=re.MULTILINE))
    assert explained == set(main.COMMANDS)


def test_launchers_are_explained() -> None:
    page = (SOURCES["en"] / "reference" / "command_line.md").read_text(encoding="utf-8")
    scripts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*/*.sh")}
    assert {script for script in scripts if script not in page} == set()
