"""What a run writes down about an evaluation that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlinf.config import load_recipe, validate_cfg
from rlinf.runners.evaluation_record import evaluation_record, hash_weights


def recipe(*overrides: str) -> Any:
    return validate_cfg(load_recipe("gym_cartpole_ppo_mlp", list(overrides)))


def test_a_record_holds_all_keys_of_environment_and_model_and_who_acted() -> None:
    cfg = recipe("+rollout.model.precision=bf16", "actor.seed=5")
    record = evaluation_record(cfg, {"gymnasium": "1"}, None)
    assert record["env"]["max_episode_steps"] == cfg.env.eval.max_episode_steps
    assert record["model"]["hidden_dims"] == cfg.actor.model.hidden_dims
    assert record["execution"] == {
        "precision": "bf16",
        "num_action_chunks": 1,
        "inference_delay": None,
        "enable_torch_compile": False,
        "enable_cuda_graph": False,
        "seed": 5,
    }
    assert {"rlinf", "torch", "transformers", "numpy", "commit", "changed", "gymnasium"} == record["versions"].keys()
    assert record["versions"]["gymnasium"] == "1"
    assert record["weights"] == {}


def test_weights_are_known_by_their_contents(tmp_path: Path) -> None:
    checkpoint, exported = tmp_path / "global_step_3", tmp_path / "weights.pt"
    (checkpoint / "actor").mkdir(parents=True)
    (checkpoint / "actor" / "model.safetensors").write_bytes(b"1")
    (checkpoint / "actor" / "notes.txt").write_text("not hashed", encoding="utf-8")
    exported.write_bytes(b"2")
    weights = evaluation_record(recipe(f"runner.ckpt_path={exported}"), {}, checkpoint)["weights"]
    assert [weights[name]["files"] for name in ("checkpoint", "runner.ckpt_path")] == [1, 1]
    assert weights["checkpoint"]["path"] == str(checkpoint / "actor")
    (checkpoint / "actor" / "model.safetensors").write_bytes(b"3")
    assert hash_weights(checkpoint / "actor")["sha256"] != weights["checkpoint"]["sha256"]
    assert hash_weights(exported)["sha256"] == weights["runner.ckpt_path"]["sha256"]


def test_a_name_on_the_hub_is_recorded_as_it_is() -> None:
    assert hash_weights(Path("owner/policy")) == {"path": "owner/policy", "files": 0}
