"""Wrong recipes as whole commands: exit code 1 and a message that mends them, before torch or Ray is loaded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EMBODIED = "examples/embodiment/train_embodied_agent.py"
ASYNC = "examples/embodiment/train_async.py"
OFFLINE = "examples/embodiment/train_offline.py"
REASONING = "examples/reasoning/main_grpo.py"
SFT = "examples/sft/main_sft.py"

# (script, recipe, overrides, path that is named, remedy)
COMMANDS = [
    (EMBODIED, "gym_cartpole_ppo_mlp", ["actor.optim.lrr=0.001"], "actor.optim.lrr", "'actor.optim.lr'"),
    (EMBODIED, "gym_pendulum_sac_mlp", ["algorithm.gae_lambda=0.9"], "algorithm.gae_lambda", "Remove it"),
    (EMBODIED, "gym_cartpole_ppo_mlp", ["~env.train.env_type"], "env.train.env_type", "Choose one"),
    (EMBODIED, "maniskill_pushcube_ppo_cnn", ["env.train.init_params.id=null"], "env.train.init_params.id", "Add it"),
    (EMBODIED, "pixel_reach_ppo_reward_model", ["reward.rewards=3"], "reward.rewards", "mapping"),
    (EMBODIED, "realworld_franka_dummy_rlpd_mlp", ["env.train.is_dummy=no"], "env.train.is_dummy", "Write false"),
    (
        EMBODIED,
        "gym_cartpole_ppo_mlp",
        ["cluster.component_placement.env=1-0"],
        "cluster.component_placement.env",
        "0-1",
    ),
    (ASYNC, "gym_pendulum_async_sac_mlp", ["algorithm.tau=2.0"], "algorithm.tau", "within these bounds"),
    (ASYNC, "gym_cartpole_ppo_mlp", [], "algorithm.staleness_threshold", "Set it to 1"),
    (OFFLINE, "gym_pendulum_iql_mlp", ["data.format=minary"], "data.format", "Did you mean 'minari'?"),
    (REASONING, "qwen2_5_7b_async_grpo_math", ["~actor.model.model_path"], "actor.model.model_path", "or pass"),
    (REASONING, "tiny_math_grpo", ["runner.tsak_type=sft", "~runner.task_type"], "runner.tsak_type", "task_type'?"),
    (SFT, "tiny_math_sft", ["data.max_length=-3"], "data.max_length", "within these bounds"),
]

GUARD = """
import os
with open(os.environ["IMPORTED"], "a") as file:
    file.write(__name__)
raise ImportError(__name__)
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command in which importing torch or Ray fails and leaves a trace."""
    for name in ("torch", "ray"):
        (tmp_path / f"{name}.py").write_text(GUARD, encoding="utf-8")
    monkeypatch.setenv("IMPORTED", str(tmp_path / "imported"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
        )

    return run


@pytest.mark.parametrize(("script", "recipe", "overrides", "path", "remedy"), COMMANDS)
def test_wrong_recipe_ends_with_a_remedy_before_anything_heavy_is_loaded(
    start: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    script: str,
    recipe: str,
    overrides: list[str],
    path: str,
    remedy: str,
) -> None:
    done = start(script, "--config-name", recipe, *overrides)
    assert done.returncode == 1, done.stderr
    assert not (tmp_path / "imported").exists()
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr
    (line, *_) = [line for line in done.stderr.splitlines() if re.match(rf"(Error:|  -) {re.escape(path)}\b", line)]
    assert remedy in line


def test_the_guard_notices_torch_and_ray(
    start: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """A right recipe gets as far as importing what runs it."""
    done = start(EMBODIED, "--config-name", "gym_cartpole_ppo_mlp")
    assert done.returncode != 0
    assert (tmp_path / "imported").read_text(encoding="utf-8") in {"torch", "ray"}


def test_pages_with_mistakes_are_what_is_said_today() -> None:
    done = subprocess.run(
        [sys.executable, "toolkits/docs/mistakes.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_pages_show_thirty_mistakes_in_both_languages() -> None:
    for language in ("en", "zh"):
        text = (ROOT / "docs" / f"source-{language}" / "guides" / "mistakes.md").read_text(encoding="utf-8")
        assert len(re.findall(r"^\| `", text, flags=re.MULTILINE)) == 30
