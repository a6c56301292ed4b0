"""A built-in is its file and its schema: the examples of plug-ins work as parts of a copy of the package.

Each file of ``examples/extend`` becomes a module; its dataclasses and registrations go to the end of a schema. No other
file of the copy changes, and no plug-in is loaded.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from repository_tree import ROOT

from tests.unit.examples import test_extend, test_extend_engine


class Addition(NamedTuple):
    """What is added.

    Attributes:
        example: File of ``examples/extend``.
        module: Where its code goes in the package.
        schema: Where its dataclasses and registrations go.
        registrations: The lines that make it known.
    """

    example: str
    module: str
    schema: str
    registrations: tuple[str, ...]


ADDITIONS = (
    Addition(
        "algorithms.py",
        "rlinf/algorithms/losses/ratio_penalty.py",
        "rlinf/config/schema/algorithm.py",
        (
            'advantages.register("centered", "rlinf.algorithms.losses.ratio_penalty:compute_centered_advantages", '
            "config=CenteredConfig)",
            'losses.register("ratio_penalty", "rlinf.algorithms.losses.ratio_penalty:ratio_penalty_loss", '
            "config=RatioPenaltyConfig)",
        ),
    ),
    Addition(
        "point_env.py",
        "rlinf/envs/point_env.py",
        "rlinf/config/schema/env.py",
        ('envs.register("point", "rlinf.envs.point_env:PointEnv")',),
    ),
    Addition(
        "linear_policy.py",
        "rlinf/models/linear_policy.py",
        "rlinf/config/schema/model.py",
        ('models.register("linear_policy", "rlinf.models.linear_policy:LinearPolicy", config=LinearPolicyConfig)',),
    ),
    Addition(
        "effort_reward.py",
        "rlinf/algorithms/rewards/effort_reward.py",
        "rlinf/config/schema/reward.py",
        (
            'rewards.register("effort", "rlinf.algorithms.rewards.effort_reward:EffortReward", '
            "config=EffortRewardConfig)",
        ),
    ),
    Addition(
        "watched_engine.py",
        "rlinf/hybrid_engines/generation/watched_engine.py",
        "rlinf/config/schema/generation.py",
        (
            'generation_engines.register("watched", "rlinf.hybrid_engines.generation.watched_engine:WatchedEngine", '
            "config=WatchedEngineConfig)",
        ),
    ),
)


def cut_configs(source: str) -> tuple[str, str]:
    """Return an example without its dataclasses of recipe keys, and these."""
    lines, configs = source.splitlines(keepends=True), []
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            start = node.decorator_list[0].lineno - 1
            configs.insert(0, "".join(lines[start : node.end_lineno]))
            del lines[start : node.end_lineno]
    return "".join(lines), "\n\n".join(configs)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package to which everything has been added, next to the examples."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "rlinf", folder / "rlinf", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "examples").symlink_to(ROOT / "examples")
    for addition in ADDITIONS:
        code, configs = cut_configs((ROOT / "examples/extend" / addition.example).read_text(encoding="utf-8"))
        module, schema = folder / addition.module, folder / addition.schema
        assert not module.exists()
        module.write_text(code, encoding="utf-8")
        with schema.open("a", encoding="utf-8") as file:
            file.write("\n\n".join(["", configs, "\n".join(addition.registrations) + "\n"]))
    return folder


def run(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder of the copy; what it imports is the copy, and it finds no plug-in."""
    source = next(parent for parent in (folder, *folder.parents) if (parent / "rlinf").is_dir())
    guard = "import rlinf, sys; assert rlinf.__file__.startswith(sys.argv[-1]), rlinf.__file__\n"
    return subprocess.run(
        [sys.executable, "-B", "-c", guard + code, *arguments, str(source)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(source), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_addition_is_its_file_and_its_schema(copy: Path) -> None:
    changed = {
        path.relative_to(copy).as_posix()
        for path in (copy / "rlinf").rglob("*.py")
        if not (ROOT / path.relative_to(copy)).exists()
        or path.read_bytes() != (ROOT / path.relative_to(copy)).read_bytes()
    }
    assert changed == {file for addition in ADDITIONS for file in (addition.module, addition.schema)}


def test_an_environment_a_model_a_loss_and_a_reward_are_named_by_a_recipe_and_run(copy: Path) -> None:
    finished = run(test_extend.CODE, copy / "examples" / "extend")
    assert finished.returncode == 0, finished.stderr


def test_an_engine_is_named_by_a_recipe_and_generates(copy: Path, tmp_path: Path) -> None:
    finished = run(test_extend_engine.CODE, copy, str(tmp_path / "model"))
    assert finished.returncode == 0, finished.stderr


def test_what_was_added_is_listed_and_suggested(copy: Path) -> None:
    code = (
        "from rlinf.cli.main import main\n"
        "for kind in ('envs', 'models', 'rewards', 'algorithms', 'engines'): main(['list', kind])\n"
        "main(['plan', 'tiny_math_grpo', 'rollout.rollout_backend=wached'])\n"
    )
    finished = run(code, copy)
    listed = {line.split(" ")[0] for line in finished.stdout.splitlines()}
    assert {"point", "linear_policy", "effort", "adv_type=centered", "loss_type=ratio_penalty", "watched"} <= listed
    assert "Did you mean 'watched'?" in finished.stdout + finished.stderr
