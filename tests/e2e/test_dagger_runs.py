"""A scripted expert labels chunks of actions in whole runs: what is stored is what it would do in what was recorded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.vla import PiConfig
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.envs.scripted import make_scripted_policy
from rlinf.envs.simulators.metaworld.metaworld_tasks import TASK_DESCRIPTIONS
from tests.e2e.conftest import TINY, ranks, read_metrics
from toolkits.vla.make_tiny import TinyShape, write_tiny_pi

pytestmark = pytest.mark.timeout(300)
REACH = "metaworld_reach_dagger_mlp"
CHUNKS = (
    *TINY,
    "actor.model.num_action_chunks=4",
    "env.train.max_steps_per_rollout_epoch=100",
    "runner.save_interval=2",
    "runner.val_check_interval=-1",
)


def labels_of(folder: Path) -> Transitions:
    stored = ReplayBuffer.open(folder / "checkpoints/global_step_2/actor/labels").contents()
    assert stored is not None
    return stored


def check_labels(stored: Transitions, *keys: str) -> torch.Tensor:
    """Check the first label of each chunk against the expert; return whether the expert acted in the chunk."""
    expert = make_scripted_policy("metaworld", validate_cfg(load_recipe(REACH, keys)).env.train)
    tasks = [TASK_DESCRIPTIONS["reach-v3"]] * len(stored)
    wanted = expert({"states": stored.inputs["states"], "task_descriptions": tasks})[:, 0]
    torch.testing.assert_close(stored.actions[:, 0], wanted, atol=1e-5, rtol=0)
    counted = stored.inputs["imitated"]
    assert counted[:, 0].all()
    acted = counted[:, 1:].all(-1)
    assert not counted[~acted, 1:].any()
    return acted


@pytest.mark.parametrize(
    "mode", [(), ("runner.enable_decoupled_mode=true", *ranks(env=2, rollout=1))], ids=["bound", "decoupled"]
)
def test_labels_are_the_experts_actions_at_what_was_recorded(train: Callable[..., Any], mode: tuple[str, ...]) -> None:
    pytest.importorskip("metaworld")
    keys = (*CHUNKS, *mode, "algorithm.beta=0.5", "algorithm.beta_decay=1.0", "algorithm.update_epoch=50")
    folder = train(REACH, *keys)
    stored = labels_of(folder)
    assert len(stored) == 2 * 8 * 25
    assert 0.3 < float(check_labels(stored, *keys).float().mean()) < 0.7
    records = read_metrics(folder)
    assert [record["rollout/labelled"] for record in records] == [1.0, 1.0]
    assert records[1]["train/imitation_loss"] < records[0]["train/imitation_loss"]


def test_a_flow_imitates_a_script(train: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("mujoco")
    cfg = PiConfig(model_type="openpi", model_path="", variant="pi0", action_dim=4, state_dim=4, horizon=10)
    words = tuple(f"pick up the {colour} cube" for colour in ("red", "green", "blue"))
    shape = TinyShape(image_size=64, patch_size=16, action_dim=4, state_dim=4, words=words)
    write_tiny_pi(tmp_path, shape, cfg)
    keys = (f"actor.model.model_path={tmp_path}", "actor.model.norm_scheme=quantiles", "algorithm.update_epoch=8")
    keys = (*keys, "env.train.total_num_envs=4", "env.eval.total_num_envs=4", "runner.max_epochs=2")
    keys = (*keys, "actor.model.freeze=[]", "actor.optim.lr=0.002", "runner.val_check_interval=-1")
    records = read_metrics(train("langpick_dagger_openpi_tiny", *keys))
    assert [record["train/stored"] for record in records] == [32, 64]
    assert all(0 < record["rollout/expert_acts"] < 1 for record in records)
    assert records[1]["train/imitation_loss"] < records[0]["train/imitation_loss"]
