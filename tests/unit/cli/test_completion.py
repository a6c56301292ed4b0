"""Shells complete commands, recipes, keys of a recipe and kinds of lists."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlinf.cli.completion import SCRIPTS, candidates
from rlinf.cli.main import main

RECIPE = "gym_cartpole_ppo_mlp"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train"]),
        (["train", "gym_cartpole_ppo"], [RECIPE]),
        (["plan", "--quiet", "gym_cartpole_ppo"], [RECIPE]),
        (["train", RECIPE, "actor.optim.lr_s"], ["actor.optim.lr_scheduler="]),
        (["train", "actor.seed=1", RECIPE, "runner.save_i"], ["runner.save_interval="]),
        (["list", "re"], ["recipes", "rewards"]),
        (["completion", "z"], ["zsh"]),
        (["report", "x"], []),
        (["train", "absent", "actor"], []),
    ],
)
def test_a_begun_word_is_completed(words: list[str], expected: list[str]) -> None:
    assert candidates(words) == expected


def test_all_commands_are_offered() -> None:
    assert {"train", "eval", "plan", "status", "completion"} <= set(candidates([""]))
    assert candidates([]) == candidates([""])


def test_scripts_and_candidates_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == SCRIPTS["bash"]
    assert main(["completion", "--words", "list", "--x", "env"]) == 0
    assert capsys.readouterr().out.split() == ["envs"]
    assert main(["completion"]) == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    program = tmp_path / "rlinf"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rlinf "$@"\n')
    program.chmod(0o755)
    text = (
        f'PATH="{tmp_path}:$PATH"\n{SCRIPTS["bash"]}'
        f"COMP_WORDS=(rlinf list e) COMP_CWORD=2\n_rlinf 2>/dev/null\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    )
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["engines", "envs"]
