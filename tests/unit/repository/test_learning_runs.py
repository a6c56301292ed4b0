"""``benchmarks/learning.py``: what runs beside a recipe, and what of a run its curve keeps."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from repository_tree import ROOT

from benchmarks import learning
from rlinf.config import load_recipe


def test_what_runs_beside_a_recipe_reads_what_is_made_for_it() -> None:
    for recipe, (script, source, *_) in learning.BESIDE.items():
        assert (ROOT / "examples" / script).exists()
        assert Path(source).parent == Path(load_recipe(recipe).actor.model.model_path).parent


def test_a_recipe_is_evaluated_by_one_that_starts_from_the_same_model() -> None:
    for trained, evaluated in learning.EVALUATED_BY.items():
        sections = [load_recipe(recipe).actor.model for recipe in (trained, evaluated)]
        assert sections[0].model_path == sections[1].model_path
        assert load_recipe(evaluated).data.val_data_paths


def test_a_curve_keeps_evaluations_or_else_rewards() -> None:
    record = {"step": 3, "time_seconds": 1.5, "eval/accuracy": 0.5, "rollout/reward": 0.25, "train/lr": 0.1}
    place = {"step": 3, "time_seconds": 1.5}
    assert learning.points_of(record, is_evaluated=True) == place | {"eval/accuracy": 0.5}
    assert learning.points_of(record, is_evaluated=False) == place | {"rollout/reward": 0.25}
    assert learning.points_of(place | {"rollout/reward": 0.25}, is_evaluated=True) == {}


def test_what_runs_beside_a_recipe_has_its_arguments_and_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "service.py").write_text(
        "import sys, time, pathlib\npathlib.Path('said').write_text(' '.join(sys.argv[1:]))\ntime.sleep(600)\n"
    )
    monkeypatch.setattr(learning, "REPO", tmp_path)
    monkeypatch.setattr(learning, "BESIDE", {"asking": ("service.py", "rows"), "answering": ("service.py", "corpus")})
    monkeypatch.setattr(learning, "EVALUATED_BY", {"asking": "other"})
    before = set(psutil.Process().children())
    for recipe, expected in (("asking", "rows --seed 7 --more"), ("answering", "corpus --more")):
        with learning.running_beside(recipe, 7, ["--more"], tmp_path):
            said = tmp_path / "said"
            while not (said.exists() and said.read_text()):
                time.sleep(0.01)
            assert said.read_text() == expected
            assert set(psutil.Process().children()) - before
        assert not set(psutil.Process().children()) - before
        said.unlink()
    with learning.running_beside("neither", 7, [], tmp_path):
        assert not set(psutil.Process().children()) - before
