"""Conversions follow the published recipe's other keys."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.cli.migrate_recipe import put
from rlinf.cli.migrate_values import CONVERSIONS

ENV = {"env.train.max_steps_per_rollout_epoch": 50, "actor.model.num_action_chunks": 5}


@pytest.mark.parametrize(
    ("name", "value", "others", "groups", "expected"),
    [
        ("replay_capacity", 20, ENV, (), {"algorithm.replay_buffer.capacity": 200}),
        ("replay_capacity", 20, {}, (), {"algorithm.replay_buffer.capacity": "???"}),
        ("replay_start", 0, ENV, (), {"algorithm.replay_buffer.min_buffer_size": 1}),
        ("dagger_capacity", 3, {"env.train.max_steps_per_rollout_epoch": 9}, (), {"algorithm.capacity": 27}),
        (
            "min_lr_ratio",
            1e-5,
            {"actor.optim.lr": 1e-4, "actor.optim.lr_scheduler": "cosine"},
            (),
            {"actor.optim.min_lr_ratio": pytest.approx(0.1)},
        ),
        ("min_lr_ratio", 1e-5, {"actor.optim.lr": 1e-4, "actor.optim.lr_scheduler": "torch_constant"}, (), {}),
        ("min_lr_ratio", 1e-5, {"actor.optim.lr": 1e-4}, (), {}),
        (
            "min_lr_ratio",
            1.0,
            {"actor.optim.lr": 1e-4, "actor.lr_sched.lr_decay_style": "linear"},
            (),
            {"actor.optim.min_lr_ratio": 1.0},
        ),
        ("warmup_share", 0.1, {"actor.optim.total_training_steps": 500}, (), {"actor.optim.lr_warmup_steps": 50}),
        ("warmup_share", 0.01, {"actor.lr_sched.lr_decay_iters": 10}, (), {}),
        ("warmup_share", 0.1, {"actor.optim.total_training_steps": 500, "actor.lr_sched.lr_warmup_iters": 3}, (), {}),
        (
            "global_batch",
            4,
            {"data.rollout_batch_size": 32, "algorithm.group_size": 8},
            (),
            {"actor.global_batch_size": 64},
        ),
        ("global_batch", 4, {}, (), {"actor.global_batch_size": "???"}),
        ("clip_ratio", 0.3, {"algorithm.clip_ratio_low": 0.1}, (), {"algorithm.clip_ratio_high": 0.3}),
        ("hidden_dims", 64, {}, (), {"actor.model.hidden_dims": [64, 64, 64]}),
        ("random_shift", True, {}, (), {"actor.model.random_shift": 4}),
        ("random_shift", False, {}, (), {}),
        ("camera_size", "rgb", {"actor.model.image_size": [3, 96, 128]}, ("eval",), {"env.eval.image_size": 128}),
        ("camera_size", "state", {"actor.model.image_size": [3, 96, 128]}, ("eval",), {}),
        ("intervention", True, {}, ("eval",), {}),
        ("intervention", False, {}, ("train",), {}),
        ("full_states", True, {}, ("eval",), {"env.eval.init_params.obs_mode": "state"}),
        ("observation_mode", "rgb", {}, ("eval",), {"env.eval.init_params.obs_mode": "rgb"}),
        ("observation_mode", "rgb+segmentation", {}, ("eval",), {"env.eval.init_params.obs_mode": "rgb"}),
        (
            "observation_mode",
            "rgb",
            {"env.train.use_full_state": True},
            ("train",),
            {"env.train.init_params.obs_mode": "state"},
        ),
        ("libero_start", 152, {}, ("train",), {"env.train.task_id_filter": [3], "env.train.trial_id_filter": [2]}),
        ("token_sampling", {"temperature_train": 1.6, "top_k": -1}, {}, (), {"actor.model.temperature": 1.6}),
        ("token_sampling", {"top_k": 5}, {}, (), {"actor.model.top_k": 5}),
        ("pi_config", "pi0_of_mine", {}, (), {"actor.model.variant": "pi0"}),
        ("expert_only", True, {}, (), {"actor.model.freeze": ["vision", "projector", "language"]}),
        ("expert_only", False, {}, (), {}),
        ("states", 19, {}, (), {"actor.model.obs_dim": None}),
        ("robot", True, {}, ("train",), {"env.train.is_dummy": True}),
        ("robot", False, {}, ("train",), {"env.train.is_dummy": False, "env.train.client": "???"}),
        ("paths", "/a", {}, ("val",), {"data.val_data_paths": ["/a"]}),
        ("paths", ["/a"], {}, ("train",), {"data.train_data_paths": ["/a"]}),
    ],
)
def test_conversions(
    name: str, value: Any, others: dict[str, Any], groups: tuple[str, ...], expected: dict[str, Any]
) -> None:
    recipe: dict[str, Any] = {}
    for path, item in others.items():
        put(recipe, tuple(path.split(".")), item)
    assert CONVERSIONS[name](value, recipe, groups) == expected


def test_components_without_a_counterpart_are_not_placed() -> None:
    rules = {"actor,critic, rollout": "all", "reward": "0-0", "critic": 3}
    key = "cluster.component_placement"
    place = CONVERSIONS["placement"]
    assert place(rules, {"env": {}}, ()) == {key: {"actor,rollout": "all"}}
    assert place(rules, {"env": {}, "reward": {"use_reward_model": True}}, ()) == {
        key: {"actor,rollout": "all", "reward": "0-0"}
    }
    text = {"data": {}, "reward": {"reward_type": "math"}}
    assert place({"actor,rollout": "all"}, text, ()) == {key: {"actor,rollout": "all", "reward": "all"}}
    assert place(rules, {"data": {}}, ()) == {key: {"actor,rollout": "all", "reward": "0-0"}}


def test_a_section_for_a_guest_keeps_what_the_host_decides() -> None:
    section = {
        "env_type": "robotwin",
        "total_num_envs": 8,
        "group_size": 4,
        "is_eval": False,
        "enable_offload": True,
        "video_cfg": {"save_video": True, "record_every": 3},
        "task_config": {"task_name": "lift_pot"},
    }
    recipe = {"actor": {"model": {"model_type": "openpi", "openpi": {"action_env_dim": 14}}}}
    assert CONVERSIONS["guest_train"](section, recipe, ()) == {
        "env.train.total_num_envs": 8,
        "env.train.group_size": 4,
        "env.train.video_cfg": {"save_video": True},
        "env.train.env_type": "guest",
        "env.train.adapter": "published_rlinf",
        "env.train.init_params": {
            "env_type": "robotwin",
            "action_dim": 14,
            "model_type": "openpi",
            "policy_setup": None,
            "task_config": {"task_name": "lift_pot"},
        },
    }
    unknown = CONVERSIONS["guest_eval"](section, {}, ())
    assert unknown["env.eval.init_params"]["action_dim"] == "???"
