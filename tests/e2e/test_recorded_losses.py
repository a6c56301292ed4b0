"""Three steps of four recipes train as they were recorded to: refactoring must not move a number.

``python -m tests.e2e.test_recorded_losses`` records anew, which a change of behaviour needs and a refactoring never.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import torch

from rlinf.cli.main import main
from rlinf.config import load_recipe, validate_cfg
from tests.e2e.conftest import TINY, read_metrics
from tests.e2e.tiny_math import make_questions

pytestmark = pytest.mark.timeout(400)
RECORD = Path(__file__).with_name("recorded_losses.json")
STEPS = 3
SHORT = (*TINY, f"runner.max_epochs={STEPS}", "runner.val_check_interval=-1")
KEYS = {
    "gym_cartpole_ppo_mlp": SHORT,
    "gym_pendulum_sac_mlp": (
        *SHORT,
        "algorithm.update_epoch=8",
        "algorithm.replay_buffer.min_buffer_size=128",
        "actor.global_batch_size=64",
    ),
    "metaworld_reach_ppo_mlp": (
        *SHORT,
        "env.train.max_steps_per_rollout_epoch=80",
        "env.eval.max_steps_per_rollout_epoch=60",
        "env.eval.max_episode_steps=60",
        "env.train.num_env_processes=0",
        "env.eval.num_env_processes=0",
        "~runner.stop_at",
        "env.eval.video_cfg.save_video=false",
    ),
    "tiny_math_grpo": (
        f"runner.max_epochs={STEPS}",
        "runner.val_check_interval=-1",
        "~runner.stop_at",
        "data.rollout_batch_size=8",
        "algorithm.group_size=4",
        "actor.global_batch_size=16",
    ),
}


CHAOTIC = {"metaworld_reach_ppo_mlp"}
"""Recipes whose later steps tell one processor from another."""


def machine() -> dict[str, str]:
    """Return what the last bits of a sum depend on: libraries choose their kernels by the processor's model, too."""
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    known = {key.strip(): value.strip() for key, _, value in lines}
    model = " ".join(known.get(key, "") for key in ("vendor_id", "cpu family", "model"))
    return {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "model": model}


def train(recipe: str, folder: Path) -> list[dict[str, float]]:
    """Return what each step of a run reports but for what depends on how requests met in the engine's batches."""
    keys = [*KEYS[recipe], f"runner.logger.log_path={folder}", f"runner.dump_steps=[{STEPS}]"]
    if recipe == "tiny_math_grpo":
        from rlinf.runners.launch import launch_reasoning as launch

        questions = make_questions(folder / "questions")
        keys += [
            f"data.train_data_paths=[{questions}/train.jsonl]",
            f"data.val_data_paths=[{questions}/val.jsonl]",
            f"actor.model.model_path={questions}/model",
        ]
    else:
        from rlinf.runners.launch import launch_embodied as launch
    launch(validate_cfg(load_recipe(recipe, keys)))
    return [
        {name: value for name, value in record.items() if not name.startswith("rollout/mismatch")}
        for record in read_metrics(folder / recipe)
        if record["step"] > 0
    ]


@pytest.mark.parametrize("recipe", KEYS)
def test_a_run_reports_what_was_recorded_and_its_last_step_can_be_made_again(
    one_node: None, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = json.loads(RECORD.read_text())
    found, expected = train(recipe, tmp_path), recorded["steps"][recipe]
    assert [sorted(step) for step in found] == [sorted(step) for step in expected]
    if recorded["machine"] == machine():
        assert found == expected
    else:  # other vector units add in another order, which contacts of bodies amplify
        compared = 1 if recipe in CHAOTIC else STEPS
        for one, other in zip(found[:compared], expected[:compared], strict=True):
            assert one == pytest.approx(other, rel=1e-3, abs=1e-5)
    threads = torch.get_num_threads()
    capsys.readouterr()
    assert main(["replay", str(tmp_path / recipe), "--step", str(STEPS)]) == 0
    torch.set_num_threads(threads)
    shown = capsys.readouterr().out
    assert "recorded metrics are the same to the bit" in shown, shown
    assert all(name in shown for name in found[-1] if name.startswith("train/"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        steps = {recipe: train(recipe, Path(folder) / recipe) for recipe in KEYS}
    RECORD.write_text(json.dumps({"machine": machine(), "steps": steps}, indent=1) + "\n")
