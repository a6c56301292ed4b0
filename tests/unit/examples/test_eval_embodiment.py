"""The launcher of evaluations: what it lists, refuses and runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rlinf.config import load_recipe, validate_cfg

ROOT = Path(__file__).parents[3]
SUITES = sorted(file.stem for file in (ROOT / "evaluations").glob("*/*_eval.yaml"))


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / "evaluations" / "eval_embodiment.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_help_lists_every_suite_with_what_it_plays() -> None:
    shown = launch("--help").stdout
    assert len(SUITES) == 18
    for suite in SUITES:
        assert f"{suite} " in shown
    assert "all 500 published start states once, at most 280 actions each" in shown


@pytest.mark.parametrize("name", ["libero_object", "libero_object_eval"])
def test_a_suite_is_evaluated_by_its_own_configuration(name: str) -> None:
    run = launch(name, "--dry-run", "--no-install", "actor.model.model_path=models/oft")
    assert run.returncode == 0, run.stderr
    assert "evaluations/libero/libero_object_eval.yaml actor.model.model_path=models/oft" in run.stdout
    assert "runner.only_eval=true" in run.stdout


@pytest.mark.parametrize(
    "suite", [suite for suite in SUITES if suite.startswith(("libero", "calvin", "metaworld", "robosuite"))]
)
def test_a_suite_is_played_by_another_model(suite: str) -> None:
    (file,) = (ROOT / "evaluations").glob(f"*/{suite}.yaml")
    published = load_recipe(file, ["actor.model.model_path=models/oft"]).actor.model
    assert (published.model_type, published.num_action_chunks, published.head) == ("openvla_oft", 8, "l1")
    cfg = load_recipe(
        file, ["model@actor.model=openpi", "actor.model.model_path=models/pi", "actor.model.variant=pi05"]
    )
    assert validate_cfg(cfg).actor.model.model_type == "openpi"


def test_an_unknown_suite_is_refused() -> None:
    run = launch("libero_objects")
    assert run.returncode == 2
    assert 'unknown suite "libero_objects"' in run.stderr
