"""Demonstrations are what the recipe draws: whole episodes that end at the goal, rewards scaled as its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.replay.buffer import ReplayBuffer

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/embodiment"


def test_demonstrations_reach_the_goal_and_join_up(tmp_path: Path) -> None:
    folder = tmp_path / "demos"
    script = EXAMPLES / "demonstrate_mountain_car.py"
    cfg = validate_cfg(load_recipe(str(EXAMPLES / "config/gym_mountain_car_rlpd_mlp.yaml")))
    assert f'"{cfg.algorithm.loss.demo_buffer.load_path}"' in script.read_text()
    command = [sys.executable, str(script), "--folder", str(folder), "--episodes", "2"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    demos = ReplayBuffer.open(folder).contents()
    assert f"{len(demos)} transitions of 2 episodes" in output
    ends = demos.terminated.nonzero().flatten().tolist()
    assert len(ends) == 2
    assert ends[-1] == len(demos) - 1
    inside = ~demos.terminated[:-1]
    states, then = demos.inputs["states"], demos.next_inputs["states"]
    assert torch.equal(then[:-1][inside], states[1:][inside])
    assert (then[ends, 0] >= 0.45).all()  # the flag
    coef = cfg.env.train.reward_coef
    expected = coef * (100.0 * demos.terminated - 0.1 * demos.actions.square().sum((1, 2)))
    torch.testing.assert_close(demos.rewards, expected)
    assert float(demos.actions.abs().max()) <= 1.0
