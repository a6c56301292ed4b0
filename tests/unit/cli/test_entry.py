"""``run_entry`` validates before it imports what runs, and turns errors into messages and exit codes."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlinf.cli.entry import run_entry

RECIPE = "gym_cartpole_ppo_mlp"


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Write a module with the given body of ``launch(cfg)`` and return its ``module:function``."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(body: str) -> str:
        name = f"launcher_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{name}.py").write_text(f"def launch(cfg):\n{textwrap.indent(body, '    ')}\n")
        return f"{name}:launch"

    yield write
    for name in [name for name in sys.modules if name.startswith("launcher_")]:
        del sys.modules[name]


def test_launch_receives_the_typed_tree(launcher: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    start = launcher("print(type(cfg).__name__, cfg.actor.seed)")
    assert run_entry("embodied", start, ["--config-name", RECIPE, "actor.seed=9"]) == 0
    assert capsys.readouterr().out == "EmbodiedConfig 9\n"


def test_exit_code_of_launch_is_kept(launcher: Callable[..., str]) -> None:
    assert run_entry("embodied", launcher("return 3"), ["--config-name", RECIPE]) == 3


def test_mistake_is_reported_before_launch_is_imported(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_entry("embodied", "no_such_module:launch", ["--config-name", RECIPE, "actor.lrr=1"])
    captured = capsys.readouterr()
    assert code == 1
    assert captured.err.startswith("Error: ")
    assert "actor.lrr" in captured.err
    assert "Traceback" not in captured.err


def test_debug_level_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_LOG_LEVEL", "DEBUG")
    assert run_entry("embodied", "no_such_module:launch", ["--config-name", "absent"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_missing_name_lists_the_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run_entry("embodied", "no_such_module:launch", [])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "--config-name" in error
    assert RECIPE in error


def test_the_recipe_may_stand_without_its_option(
    launcher: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_entry("embodied", launcher("print(cfg.actor.seed)"), [RECIPE, "actor.seed=9"]) == 0
    assert capsys.readouterr().out == "9\n"


@pytest.mark.parametrize(
    ("script", "recipe", "named"),
    [
        ("embodied", "tiny_math_sft", "run_sft.sh"),
        ("sft", RECIPE, "run_embodiment.sh"),
        ("sft", "gym_cartpole_async_ppo_mlp", "train_async.py"),
    ],
)
def test_a_recipe_of_another_script_is_told_which(
    capsys: pytest.CaptureFixture[str], script: str, recipe: str, named: str
) -> None:
    assert run_entry(script, "no_such_module:launch", [recipe]) == 1
    assert named in capsys.readouterr().err


def test_recipe_of_another_task_type_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_entry("reasoning", "no_such_module:launch", ["--config-name", RECIPE]) == 1
    assert "runner.task_type" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asynchronous", "recipe", "remedy"),
    [
        (True, RECIPE, "examples/embodiment/train_embodied_agent.py"),
        (False, "gym_cartpole_async_ppo_mlp", "examples/embodiment/train_async.py"),
    ],
)
def test_recipe_of_the_other_script_is_refused(
    asynchronous: bool, recipe: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_entry("embodied", "no_such_module:launch", ["--config-name", recipe], asynchronous=asynchronous)
    assert code == 1
    error = capsys.readouterr().err
    assert "algorithm.staleness_threshold" in error
    assert remedy in error


def test_own_folder_may_stand_beside_the_script(
    launcher: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text(f"defaults: [{RECIPE}, _self_]\nactor: {{seed: 4}}\n")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "script.py")])
    start = launcher("print(cfg.actor.seed)")
    assert run_entry("embodied", start, ["--config-path", "recipes", "--config-name", "mine"]) == 0
    assert capsys.readouterr().out == "4\n"


def test_quiet_asks_for_warnings_and_the_end_only(
    launcher: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RLINF_QUIET", "RLINF_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    start = launcher("import os\nprint(os.environ['RLINF_QUIET'], os.environ['RLINF_LOG_LEVEL'])")
    assert run_entry("embodied", start, ["--config-name", RECIPE, "--quiet"]) == 0
    assert capsys.readouterr().out == "1 WARNING\n"
