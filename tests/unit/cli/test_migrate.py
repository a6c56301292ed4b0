"""``rlinf migrate`` writes recipes that plan accepts, says what it did, and is named where a published one is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rlinf.cli.entry import run_entry
from rlinf.cli.main import main
from rlinf.config import load_recipe, validate_cfg
from tests.unit.cli.test_migrate_recipe import GRPO, PPO


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Return a folder with two recipes that run and one that cannot."""
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "ppo.yaml").write_text(PPO)
    (folder / "grpo.yaml").write_text(GRPO)
    (folder / "diffusion.yaml").write_text(PPO.replace("gymnasium", "diffusion"))
    return folder


def test_a_recipe_is_written_and_everything_about_it_printed(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", str(published / "ppo.yaml"), "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "  rollout.backend -> rollout.rollout_backend\n" in printed
    assert "  weight_syncer.patch: each tensor has the smallest encoding, and the first update is whole\n" in printed
    assert "  actor.model.policy_setup: actions belong to the environment\n" in printed
    assert "ppo.yaml: complete: valid" in printed
    assert f"Next: rlinf plan {tmp_path / 'out' / 'ppo.yaml'}" in printed
    validate_cfg(load_recipe(str(tmp_path / "out" / "ppo.yaml")))
    assert main(["plan", str(tmp_path / "out" / "ppo.yaml")]) == 0


def test_a_folder_is_written_with_a_line_for_each(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", str(published), "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "grpo.yaml: reduced\n" in printed
    assert "diffusion.yaml: no counterpart; No counterpart: env.train.env_type (environment diffusion)" in printed
    assert "3 recipes:" in printed
    assert "     1  complete: valid, every key has the same effect here" in printed
    head = (tmp_path / "out" / "diffusion.yaml").read_text().splitlines()[:2]
    assert head[0] == "# Migrated from diffusion.yaml of the published system."
    assert head[1].startswith("# No counterpart: env.train.env_type (environment diffusion)")
    assert yaml.safe_load((tmp_path / "out" / "diffusion.yaml").read_text())["env"]["train"]["env_type"] == "diffusion"


def test_files_in_the_way_are_kept(published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["migrate", str(published / "ppo.yaml"), "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    (tmp_path / "out" / "ppo.yaml").write_text("mine")
    assert main(arguments) == 1
    assert "Pass --force" in capsys.readouterr().err
    assert (tmp_path / "out" / "ppo.yaml").read_text() == "mine"
    assert main([*arguments, "--force"]) == 0
    assert (tmp_path / "out" / "ppo.yaml").read_text() != "mine"


def test_a_recipe_that_cannot_be_read_does_not_stop_the_others(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (published / "broken.yaml").write_text("defaults:\n  - env/moon@env.train\n")
    assert main(["migrate", str(published), "--output", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert "env/moon" in captured.err
    assert "     1  refused" in captured.out
    assert (tmp_path / "out" / "ppo.yaml").is_file()


def test_plan_and_training_name_the_command(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(published / "ppo.yaml")
    hint = f"`rlinf migrate {file}` writes it for this one."
    assert main(["plan", file]) == 1
    error = capsys.readouterr().err
    assert hint in error
    assert "rollout.backend: unknown key: write rollout.rollout_backend." in error
    assert run_entry("embodied", "rlinf.never:imported", [file]) == 1
    assert hint in capsys.readouterr().err


def test_mistakes_in_our_own_recipes_are_reported_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("defaults:\n  - gym_cartpole_ppo_mlp\n  - _self_\nactor: {nonsense: 1}\n")
    for name in (str(file), "gym_cartpole_ppo_mlp"):
        assert main(["plan", name, "actor.nonsense=1"]) == 1
        assert "rlinf migrate" not in capsys.readouterr().err
