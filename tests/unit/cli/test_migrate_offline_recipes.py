"""Published recipes of models that judge frames, and of policies that learn from their labels."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rlinf.cli.migrate_recipe import migrate_recipe

VALUE = """
runner: {task_type: sft, max_epochs: 10, max_steps: -1, val_check_interval: 5, save_interval: 5}
cluster: {num_nodes: 1, component_placement: {"actor,env,rollout": all}}
data:
  tag: null
  train_data_paths:
    - {dataset_path: /sft, type: sft, weight: 1.0, robot_type: libero}
    - {dataset_path: /rollout, type: rollout, weight: 2.0}
  eval_data_paths: [{dataset_path: /held_out, max_samples: 500}]
  gamma: 0.9
  seed: 42
algorithm: {adv_type: gae}
actor:
  micro_batch_size: 8
  global_batch_size: 32
  model: {model_type: recap_value_model, siglip_path: /a, gemma3_path: /b, tokenizer_path: /b, num_bins: 51}
  optim: {lr: 1.0e-4, value_lr: 1.0e-3}
"""


def test_a_value_model_learns_from_the_same_data_sets_in_a_task_of_its_own() -> None:
    result = migrate_recipe(yaml.safe_load(VALUE))
    wanted = ["actor.model.model_path", "actor.model.tokenizer_path"]
    assert (result.outcome, result.to_fill_in) == ("fill in", wanted), (result.problems, result.missing)
    assert result.recipe["runner"]["task_type"] == "value"
    assert result.recipe["cluster"]["component_placement"] == {"actor": "all"}
    assert result.recipe["algorithm"] == {"loss_type": "recap_value", "gamma": 0.9}
    assert result.recipe["data"] == {
        "path": "/sft",
        "type": "sft",
        "weight": 1.0,
        "mixture": [{"path": "/rollout", "type": "rollout", "weight": 2.0}],
        "val": [{"path": "/held_out"}],
        "max_val_frames": 500,
    }


def test_a_progress_critic_is_an_ensemble_of_pairs() -> None:
    recipe = yaml.safe_load(VALUE)
    recipe["runner"]["val_check_interval"] = -1
    recipe["data"] = {
        "train_data_paths": [{"dataset_path": "/sft", "type": "sft"}],
        "camera_keys": ["observation.images.global", "wrist"],
        "k": 8,
        "only_success": True,
    }
    recipe["actor"]["model"] = {
        "model_type": "steam_value_model",
        "vision_repo_id": "/a",
        "num_bins": 16,
        "ensemble_size": 3,
        "label_smoothing": 0.1,
        "dropout": 0.1,
    }
    result = migrate_recipe(recipe)
    assert result.to_fill_in == ["actor.model.model_path"], (result.problems, result.missing)
    assert result.recipe["algorithm"] == {"loss_type": "steam_value", "k": 8, "label_smoothing": 0.1}
    assert result.recipe["actor"]["model"]["image_keys"] == ["global", "wrist"]
    assert result.recipe["actor"]["model"]["ensemble_size"] == 3
    assert result.recipe["data"] == {"path": "/sft", "type": "sft", "only_success": True}
    assert dict(result.lost) == {"actor.model.dropout": "heads have none"}


def test_a_policy_of_labels_is_one_that_is_asked_for_good_actions() -> None:
    recipe = yaml.safe_load(VALUE)
    recipe["runner"]["val_check_interval"] = -1
    recipe["data"] = {
        "advantage_tag": None,
        "train_data_paths": [
            {"dataset_path": "/a", "type": "sft", "weight": 1.0}, {"dataset_path": "/b", "weight": 2.0}
        ],
    }  # fmt: skip
    recipe["actor"]["model"] = {
        "model_type": "cfg_model",
        "model_path": "/pi05",
        "num_action_chunks": 10,
        "action_dim": 7,
        "openpi": {
            "config_name": "pi05_libero",
            "cfgrl_guidance_scale": 1.5,
            "unconditional_prob": 0.2,
            "guidance_type": "positive",
            "positive_only_conditional": True,
        },
    }
    result = migrate_recipe(recipe)
    assert (result.outcome, result.to_fill_in) == ("fill in", ["data.advantage_tag"]), (result.problems, result.missing)
    assert result.recipe["actor"]["model"]["model_type"] == "openpi"
    assert result.recipe["actor"]["model"]["guidance"] == {
        "type": "positive", "scale": 1.5, "unconditional_prob": 0.2, "positive_only_conditional": True
    }  # fmt: skip
    assert result.recipe["data"] | {"advantage_tag": ""} == {
        "format": "lerobot",
        "advantage_tag": "",
        "path": "/a",
        "weight": 1.0,
        "mixture": [{"path": "/b", "weight": 2.0}],
    }
    keys = recipe["actor"]["model"]["openpi"]
    keys["guidance_type"] = "no_guide"
    unguided = migrate_recipe(recipe)
    assert unguided.recipe["actor"]["model"]["guidance"] == {
        "type": "none", "unconditional_prob": 0.2, "positive_only_conditional": True
    }  # fmt: skip
    assert unguided.outcome == "fill in", unguided.problems
    # What a recipe leaves out has the published default, not ours.
    recipe["actor"]["model"]["openpi"] = {"config_name": keys["config_name"]}
    assert migrate_recipe(recipe).recipe["actor"]["model"]["guidance"] == {
        "type": "positive", "unconditional_prob": 0.3, "positive_only_conditional": False
    }  # fmt: skip


@pytest.mark.parametrize("paths", ["/a", [{"dataset_path": "/a", "weight": 1.0}]])
def test_a_token_is_learned_from_frames_next_to_the_flow(paths: Any) -> None:
    recipe = yaml.safe_load(VALUE)
    recipe["runner"] |= {"val_check_interval": -1}
    recipe["data"] = {"train_data_paths": paths}
    recipe["actor"]["optim"].pop("value_lr")
    sizes = {"rlt_alpha": 0.5, "rlt_input_dim": 2048, "rlt_embed_dim": 1024, "rlt_prefix_seq_len": 900}
    recipe["actor"]["model"] = {
        "model_type": "openpi",
        "model_path": "/model",
        "num_action_chunks": 5,
        "action_dim": 7,
        "openpi": {
            "config_name": "pi05_maniskill",
            "use_rlt": True,
            "rlt_image_only": True,
            "rlt_use_mask": True,
            **sizes,
        },
    }
    result = migrate_recipe(recipe)
    assert (result.outcome, result.missing) == ("reduced", []), (result.problems, result.to_fill_in)
    assert [key for key, _ in result.lost] == ["actor.model.openpi.rlt_image_only"]
    assert result.recipe["actor"]["model"]["use_rlt"] is True
    wanted = {"vla_loss_weight": 0.5, "embed_dim": 1024, "prefix_seq_len": 900}
    assert result.recipe["actor"]["model"]["rlt"] == wanted
    assert result.recipe["data"]["path"] == "/a"
    recipe["actor"]["model"]["openpi"] |= {"use_rlt": False}
    assert "rlt" not in migrate_recipe(recipe).recipe["actor"]["model"]


def test_a_reward_model_learns_from_data_sets_that_were_collected() -> None:
    recipe = yaml.safe_load(VALUE)
    recipe["data"] = {"train_data_paths": "train.pt", "val_data_paths": "val.pt", "num_workers": 4}
    recipe["cluster"]["component_placement"] = {"actor": "0-0"}
    recipe["actor"]["model"] = {
        "model_type": "resnet",
        "arch": "resnet18",
        "pretrained": True,
        "image_size": [3, 128, 96],
        "normalize": True,
        "dropout": 0.1,
    }
    result = migrate_recipe(recipe)
    assert (result.outcome, result.to_fill_in) == ("fill in", ["data.path", "data.val"]), (
        result.problems, result.missing
    )  # fmt: skip
    assert result.recipe["algorithm"]["loss_type"] == "success"
    assert result.recipe["actor"]["model"] == {
        "model_type": "success_classifier", "encoder": "resnet18", "image_size": [128, 96]
    }  # fmt: skip
    assert {"actor.model.pretrained", "actor.model.dropout"} <= dict(result.lost).keys()


@pytest.mark.parametrize(
    "recipe", [{"advantage": {"tag": "x"}}, {"data": {"failure_reward": -300.0}}], ids=["advantages", "returns"]
)
def test_scripts_that_label_are_part_of_the_value_models_run(recipe: dict[str, Any]) -> None:
    ((path, reason),) = migrate_recipe(recipe).missing
    assert (path, "data.advantage_tag" in reason) == ("runner", True)
