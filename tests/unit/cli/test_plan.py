"""``rlinf plan`` validates offline, needs nothing heavy, and shows placement and sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlinf.cli.main import main

RECIPE = "gym_cartpole_ppo_mlp"
LARGE = (
    "cluster.num_nodes=128",
    "cluster.component_placement={actor: all, rollout: all, env: all}",
    "env.train.total_num_envs=4096",
    "env.train.max_steps_per_rollout_epoch=128",
    "env.train.rollout_epoch=1",
    "env.train.num_env_processes=0",
    "env.eval.total_num_envs=1024",
    "env.eval.num_env_processes=0",
    "actor.global_batch_size=65536",
    "actor.micro_batch_size=64",
)


def test_plan_shows_placement_and_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", RECIPE, *LARGE, "--accelerators-per-node", "8", "algorithm.update_epoch=2"]) == 0
    text = capsys.readouterr().out
    assert "nodes 0-127 (128): 8 accelerators each" in text
    assert "4096 (4 per env worker)" in text
    assert "524288 = 128 chunks x 4096 environments" in text
    assert "16 = 524288 / global_batch_size 65536 x update_epoch 2" in text


def test_plan_of_a_thousand_devices_loads_neither_torch_nor_ray() -> None:
    script = (
        "import sys\nfrom rlinf.cli.main import main\n"
        f"assert main(['plan', '{RECIPE}', '--accelerators-per-node', '8', *{LARGE!r}]) == 0\n"
        "print(sorted({'torch', 'ray', 'gymnasium'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_plan_without_known_accelerators_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", RECIPE]) == 0
    assert "--accelerators-per-node" in capsys.readouterr().out


def test_plan_with_impossible_placement_fails_cleanly(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["plan", RECIPE, "--accelerators-per-node", "2", "cluster.component_placement.actor=0-7"])
    captured = capsys.readouterr()
    assert code == 1
    assert "cluster.component_placement.actor" in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_plan_lists_what_this_machine_lacks_beside_the_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main(["plan", "gym_mountain_car_rlpd_mlp"]) == 0
    told = capsys.readouterr()
    assert "gym_mountain_car_rlpd_mlp: valid" in told.out
    assert "cannot be run on this machine" in told.err
    assert "algorithm.demo_buffer.load_path" in told.err
