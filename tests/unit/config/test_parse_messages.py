"""Keys and values that are wrong by themselves are located by path, with their remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import REWARD, SAC, assert_mended

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"runner.adv_type": "gae"}, "runner.adv_type", "Did you mean 'algorithm.adv_type' or 'runner.task_type'?"),
    ({"env.train.num_frames": 2}, "env.train.num_frames", "Did you mean 'env.train.wrappers[].num_frames'"),
    ({"rollout": {"model": {"precison": "bf16"}}}, "rollout.model.precison", "mean 'rollout.model.precision'?"),
    ({"actor.model.action_scale": 0.0}, "actor.model.action_scale", "number > 0"),
    ({"actor.model.hidden_dims": 64}, "actor.model.hidden_dims", "Write a list: [64]."),
    (
        {"env.train.wrappers": [{"name": "action_repeat"}]},
        "env.train.wrappers[0].num_repeats",
        "Add it to the recipe.",
    ),
    ({"actor.optim": {"lrr": 1e-3}}, "actor.optim.lrr", "Did you mean 'actor.optim.lr'?"),
    ({"actor.lr_warmup_steps": 3}, "actor.lr_warmup_steps", "Did you mean 'actor.optim.lr_warmup_steps'?"),
    ({"actr": {}}, "actr", "Did you mean 'actor'?"),
    ({"zzz": {}}, "zzz", "Known sections: cluster, runner"),
    ({"env.train.video_cfg": {"qqq": 1}}, "env.train.video_cfg.qqq", "Known keys here: fps"),
    ({"critic": {"use_critic_model": False}}, "critic", "it belongs to runner.task_type=reasoning"),
    (
        SAC | {"algorithm.replay_buffer": {"cache_size": 3}},
        "algorithm.replay_buffer.cache_size",
        "replay_buffer.memory_bytes",
    ),
    (SAC | {"algorithm.replay_buffer": {"capacty": 3}}, "algorithm.replay_buffer.capacty", "replay_buffer.capacity'?"),
    (SAC | {"algorithm.entropy_tuning": {"alpha_type": "tanh"}}, "algorithm.entropy_tuning.alpha_type", "softplus"),
    (SAC | {"actor.critic_optim": {"value_lr": 1e-3}}, "actor.critic_optim.value_lr", "actor.optim.value_lr"),
    ({"env.eval.is_eval": True}, "env.eval.is_eval", "remove it"),
    (REWARD | {"reward.use_reward_model": True}, "reward.use_reward_model", "reward.rewards"),
    (REWARD | {"reward.rewards.env.url": "http://x"}, "reward.rewards.env.url", "belongs to reward_type=api"),
    ({"rollout": {"backend": "huggingface"}}, "rollout.backend", "write rollout.rollout_backend"),
    ({"actor.optim": {"lr": "5e-6"}}, "actor.optim.lr", "write 5.0e-6 without quotes"),
    ({"actor.optim": {"lr": -1.0}}, "actor.optim.lr", "number > 0"),
    ({"actor.optim": {"lr": None}}, "actor.optim.lr", "remove the key to take the default"),
    ({"actor.optim": {"lr": float("nan")}}, "actor.optim.lr", "number > 0"),
    ({"actor.optim": {"lr": float("inf")}}, "actor.optim.lr", "number > 0"),
    ({"actor.optim": {"adam_beta1": 1.5}}, "actor.optim.adam_beta1", ">= 0 and <= 1"),
    ({"actor.optim": {"value_lr": "none"}}, "actor.optim.value_lr", "Write null without quotes"),
    ({"actor.micro_batch_size": True}, "actor.micro_batch_size", "integer > 0"),
    ({"actor.micro_batch_size": 2.0}, "actor.micro_batch_size", "Write 2."),
    ({"actor.micro_batch_size": 2.5}, "actor.micro_batch_size", "Write a whole number"),
    ({"actor.micro_batch_size": "100"}, "actor.micro_batch_size", "write 100 without quotes"),
    ({"actor.enable_offload": "yes"}, "actor.enable_offload", "Write true without quotes"),
    ({"actor.model.precision": 32}, "actor.model.precision", "Did you mean 'fp32'?"),
    ({"actor.optim": {"lr_scheduler": "torch_constant"}}, "actor.optim.lr_scheduler", "Did you mean 'constant'?"),
    ({"actor.model.precision": "bfloat16"}, "actor.model.precision", "Did you mean 'bf16'?"),
    ({"actor.model.hidden_dims": [64, 0]}, "actor.model.hidden_dims[1]", "integer > 0"),
    ({"actor.model.hidden_dims": 64}, "actor.model.hidden_dims", "list of (integer > 0)"),
    ({"actor.optim": {"lr_scheduler": "torch_constant"}}, "actor.optim.lr_scheduler", "Did you mean 'constant'?"),
    ({"actor.optim": [1]}, "actor.optim", "Indent the keys"),
    ({"runner": {"stop_at": {"eval/return": "high"}}}, "runner.stop_at.eval/return", "number"),
    ({"runner": {"logger": {"experiment_name": 7}}}, "runner.logger.experiment_name", "Put quotes around it"),
    ({"actor.global_batch_size": "DELETE"}, "actor.global_batch_size", "pass actor.global_batch_size=<value>"),
    ({"actor.model.obs_dim": "???"}, "actor.model.obs_dim", "pass actor.model.obs_dim=<value>"),
    ({"env.train.init_params.id": "???"}, "env.train.init_params.id", "missing"),
    ({"env.train.task_name": "x"}, "env.train.task_name", "it belongs to env_type=d4rl or env_type=metaworld"),
    ({"cluster.node_groups": [{"label": "a"}]}, "cluster.node_groups[0].node_ranks", "missing"),
    (
        {"cluster.component_placement.actor": {"placment": 0}},
        "cluster.component_placement.actor.placment",
        "placement",
    ),
    ({"cluster.component_placement.actor": 1.5}, "cluster.component_placement.actor", "string or integer"),
    ({"cluster.component_placement.actor": None}, "cluster.component_placement.actor", "received null"),
    (SAC | {"algorithm.demo_buffer": {"load_path": "x", "cache_size": 3}}, "algorithm.demo_buffer.cache_size", "whole"),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)
