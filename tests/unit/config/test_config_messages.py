"""Every mistake names the key's full path and says what to do; several are reported together."""

from __future__ import annotations

import pytest

from rlinf.config import validate_cfg
from rlinf.errors import ConfigError, PlacementError

GRPO = {
    "algorithm": {"adv_type": "grpo", "loss_type": "actor", "group_size": 4},
    "actor.model.add_value_head": False,
    "env.train.group_size": 4,
    "env.train.auto_reset": False,
}

SAC = {
    "algorithm": {"adv_type": "embodied_sac", "loss_type": "embodied_sac"},
    "actor.model.add_value_head": False,
    "actor.model.add_q_head": True,
}

CNN = {
    "actor.model": {
        "model_type": "cnn_policy",
        "image_size": [48, 48],
        "action_dim": 2,
        "discrete": True,
        "add_value_head": True,
    }
}

TD3 = SAC | {
    "algorithm": {"adv_type": "embodied_td3", "loss_type": "embodied_td3"},
    "actor.model.deterministic": True,
}

CROSSQ = SAC | {
    "algorithm": {"adv_type": "embodied_crossq", "loss_type": "embodied_crossq"},
    "actor.model.q_head_type": "crossq",
}

REWARD = {
    "cluster.component_placement": {"actor,rollout,env,reward": 0},
    "reward": {"rewards": {"env": {"reward_type": "env"}}},
}

# (changes to the base recipe, path at the start of the line, remedy within the line)
KEYS_AND_VALUES = [
    ({"runner.adv_type": "gae"}, "runner.adv_type", "Did you mean 'algorithm.adv_type' or 'runner.task_type'?"),
    ({"runner.tsak_type": "reasoning"}, "runner.tsak_type", "Did you mean 'runner.task_type'?"),
    ({"env.train": {"env_tipe": "metaworld"}}, "env.train.env_tipe", "Did you mean 'env.train.env_type'?"),
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
    ({"critic": {"use_critic_model": False}}, "critic", "actor.model.add_value_head"),
    (
        {"algorithm.replay_buffer": {"min_buffer_size": 3}},
        "algorithm.replay_buffer",
        "loss_type=embodied_sac",
    ),
    (SAC | {"algorithm.clip_ratio_low": 0.1}, "algorithm.clip_ratio_low", "not used by loss_type=embodied_sac"),
    (SAC | {"algorithm.gae_lambda": 0.9}, "algorithm.gae_lambda", "not used by adv_type=embodied_sac"),
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
    (REWARD | {"reward.rewards.env.reward_type": "modle"}, "reward.rewards.env.reward_type", "Did you mean 'model'?"),
    (REWARD | {"reward.rewards.env.url": "http://x"}, "reward.rewards.env.url", "belongs to reward_type=api"),
    (REWARD | {"reward.rewards.env.reward_type": "vqa"}, "reward.rewards.env.reward_type", "another kind of recipe"),
    ({"rollout": {"backend": "huggingface"}}, "rollout.backend", "write rollout.rollout_backend"),
    ({"actor.optim": {"lr": "5e-6"}}, "actor.optim.lr", "write 5.0e-6 without quotes"),
    ({"actor.optim": {"lr": -1.0}}, "actor.optim.lr", "number > 0"),
    ({"actor.optim": {"lr": None}}, "actor.optim.lr", "remove the key to take the default"),
    ({"actor.optim": {"lr": float("nan")}}, "actor.optim.lr", "number > 0"),
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
    ({"env.train.env_type": "gymnasum"}, "env.train.env_type", "Did you mean 'gymnasium'?"),
    ({"env.train.env_type": "DELETE"}, "env.train.env_type", "gymnasium"),
    ({"actor.model.model_type": "transformer"}, "actor.model.model_type", "mlp_policy"),
    ({"actor.model.model_type": 3}, "actor.model.model_type", "allowed: a string"),
    ({"algorithm.adv_type": "GEA"}, "algorithm.adv_type", "Did you mean 'gae'?"),
    ({"algorithm.loss_type": "actor_critc"}, "algorithm.loss_type", "Did you mean 'actor_critic'?"),
    ({"env.train.task_name": "x"}, "env.train.task_name", "it belongs to env_type=metaworld"),
    (
        {"algorithm.adv_type": "grpo", "algorithm.gae_lambda": 0.9},
        "algorithm.gae_lambda",
        "not used by adv_type=grpo (it belongs to adv_type=gae)",
    ),
    (
        {"algorithm.loss_type": "actor", "algorithm.value_clip": 0.2},
        "algorithm.value_clip",
        "not used by loss_type=actor (it belongs to loss_type=actor_critic or",
    ),
    ({"algorithm.kl_betta": 0.1}, "algorithm.kl_betta", "Did you mean 'algorithm.kl_beta'?"),
    ({"algorithm.advantage": {"gamma": 1.0}}, "algorithm.advantage", "directly under algorithm"),
    ({"algorithm.total_num_envs": 8}, "algorithm.total_num_envs", "Did you mean 'env.train.total_num_envs'?"),
    ({"cluster.node_groups": [{"label": "a"}]}, "cluster.node_groups[0].node_ranks", "missing"),
    (
        {"cluster.component_placement.actor": {"placment": 0}},
        "cluster.component_placement.actor.placment",
        "placement",
    ),
    ({"cluster.component_placement.actor": 1.5}, "cluster.component_placement.actor", "string or integer"),
]

RELATIONS = [
    (
        {"env.train.total_num_envs": 6, "rollout": {"pipeline_stage_num": 4}, "actor.global_batch_size": 600},
        "env.train.total_num_envs",
        "1 env rank x rollout.pipeline_stage_num 4 x env.train.group_size 1 = 4. Set it to 4 or 8.",
    ),
    (
        {"cluster.component_placement": {"actor,env": 0, "rollout": "0:0-2"}},
        "env.train.total_num_envs",
        "3 rollout ranks x rollout.pipeline_stage_num 1 = 3. Set it to 6 or 9.",
    ),
    ({"env.train.num_env_processes": 9}, "env.train.num_env_processes", "Set it to 8."),
    (
        {"actor.model.num_action_chunks": 3, "env.eval": None, "actor.global_batch_size": 264},
        "env.train.max_steps_per_rollout_epoch",
        "100 / 3 = 33.33). Set it to 99 or 102.",
    ),
    (
        {"actor.global_batch_size": 300},
        "actor.global_batch_size",
        "(100 steps / 1 actions per chunk) x 8 environments x 1 rollout epochs = 800. Set it to",
    ),
    (
        {"actor.micro_batch_size": 150},
        "actor.micro_batch_size",
        "micro_batch_size 150 x 1 actor rank = 150. Set actor.micro_batch_size to",
    ),
    (
        {"cluster.component_placement": {"actor,env": "0:0-2", "rollout": "0:0-1"}},
        "cluster.component_placement.env",
        "3 env ranks and 2 rollout ranks",
    ),
    (
        {"cluster.component_placement": {"actor,env": "0:0-2", "rollout": "0:0-1"}},
        "cluster.component_placement.env",
        "or set runner.enable_decoupled_mode=true",
    ),
    (
        {
            "runner.enable_decoupled_mode": True,
            "cluster.component_placement": {"actor": "0:0-2", "env": "0:0-1", "rollout": "0:0-2"},
        },
        "cluster.component_placement.actor",
        "3 actor ranks and 2 env ranks",
    ),
    ({"actor.model.add_value_head": False}, "actor.model.add_value_head", "Set actor.model.add_value_head=true"),
    (
        {"algorithm.adv_type": "raw", "algorithm.loss_type": "actor"},
        "actor.model.add_value_head",
        "loss_type=actor does not train a value head",
    ),
    (GRPO | {"actor.optim": {"value_lr": 1e-3}}, "actor.optim.value_lr", "without actor.model.add_value_head"),
    (GRPO | {"actor.optim": {"critic_warmup_steps": 5}}, "actor.model.add_value_head", "critic_warmup_steps > 0"),
    ({"algorithm.reward_type": "token_level"}, "algorithm.reward_type", "algorithm.reward_type=action_level"),
    ({"algorithm.reward_type": "action_level"}, "algorithm.logprob_type", "coarser than algorithm.reward_type"),
    ({"algorithm.group_size": 2}, "algorithm.group_size", "not used by adv_type=gae"),
    (
        {"algorithm.loss_type": "decoupled_actor_critic", "algorithm.behave_weight_threshold": 0.5},
        "algorithm.behave_weight_threshold",
        "Set it to 2.0",
    ),
    (
        {"algorithm.staleness_threshold": 1, "rollout": {"enable_offload": True}},
        "rollout.enable_offload",
        "run at the same time. Remove it",
    ),
    ({"actor.critic_optim": {"lr": 1e-3}}, "actor.critic_optim", "write actor.optim.value_lr"),
    ({"actor.model.add_q_head": True}, "actor.model.add_q_head", "Set actor.model.add_q_head=false"),
    ({"actor.model.num_q_heads": 3}, "actor.model.num_q_heads", "without actor.model.add_q_head"),
    ({"algorithm.adv_type": "embodied_sac"}, "algorithm.adv_type", "loss_type=actor_critic needs advantages"),
    (SAC | {"algorithm.adv_type": "gae"}, "algorithm.adv_type", "Set algorithm.adv_type=embodied_sac"),
    (SAC | {"actor.model.add_q_head": False}, "actor.model.add_q_head", "Set actor.model.add_q_head=true"),
    (SAC | {"actor.model.add_value_head": True}, "actor.model.add_value_head", "not used by loss_type=embodied_sac"),
    (SAC | {"algorithm.logprob_type": "action_level"}, "algorithm.logprob_type", "not used by loss_type=embodied_sac"),
    (SAC | {"algorithm.reward_type": "action_level"}, "algorithm.reward_type", "not used by loss_type=embodied_sac"),
    (SAC | {"algorithm.bootstrap_type": "always"}, "algorithm.bootstrap_type", "not used by adv_type=embodied_sac"),
    (SAC | {"algorithm.group_size": 2}, "algorithm.group_size", "not used by adv_type=embodied_sac"),
    (SAC | {"actor.model.deterministic": True}, "actor.model.deterministic", "Set actor.model.deterministic=false"),
    (SAC | {"actor.model.exploration_noise": 0.2}, "actor.model.exploration_noise", "without actor.model.determ"),
    (SAC | {"actor.model.q_head_type": "crossq"}, "actor.model.q_head_type", "trains default or layer_norm"),
    (SAC | {"algorithm.num_min_q": 3}, "algorithm.num_min_q", "actor.model.num_q_heads 2"),
    (SAC | {"algorithm.demo_buffer": {"load_path": "x", "cache_size": 3}}, "algorithm.demo_buffer.cache_size", "whole"),
    (SAC | {"algorithm.demo_buffer": {}}, "algorithm.demo_buffer.load_path", "missing"),
    (TD3 | {"actor.model.deterministic": False}, "actor.model.deterministic", "Set actor.model.deterministic=true"),
    (TD3 | {"actor.model.initial_log_std": 1.0}, "actor.model.initial_log_std", "not used with"),
    (CROSSQ | {"actor.model.q_head_type": "default"}, "actor.model.q_head_type", "Set actor.model.q_head_type=crossq"),
    (CROSSQ | {"algorithm.tau": 0.1}, "algorithm.tau", "it has no targets"),
    (CROSSQ | {"actor.micro_batch_size": 50}, "actor.micro_batch_size", "normalises over the batch"),
    (
        CROSSQ | {"actor.fsdp_config": {"gradient_checkpointing": True}},
        "actor.fsdp_config.gradient_checkpointing",
        "Set it to false",
    ),
    (SAC | {"actor.model.discrete": True}, "actor.model.discrete", "Set actor.model.discrete=false"),
    (SAC | {"actor.model.initial_log_std": 2.0}, "actor.model.initial_log_std", "Set it to 0.0"),
    (SAC | {"actor.optim": {"value_lr": 1e-3}}, "actor.optim.value_lr", "without actor.model.add_value_head"),
    (SAC | {"actor.micro_batch_size": 150}, "actor.micro_batch_size", "Set actor.micro_batch_size to"),
    (
        SAC | {"actor.critic_optim": {"lr_scheduler": "cosine"}},
        "actor.critic_optim.total_training_steps",
        "actor.critic_optim.lr_scheduler=constant",
    ),
    (
        SAC | {"algorithm.replay_buffer": {"capacity": 10, "min_buffer_size": 11}},
        "algorithm.replay_buffer.min_buffer_size",
        "algorithm.replay_buffer.capacity 10. Lower it",
    ),
    (
        SAC | {"algorithm.entropy_tuning": {"initial_alpha": 0.0}},
        "algorithm.entropy_tuning.initial_alpha",
        "alpha_type=fixed_alpha",
    ),
    (
        SAC | {"algorithm.entropy_tuning": {"alpha_type": "fixed_alpha", "target_entropy": -2.0}},
        "algorithm.entropy_tuning.target_entropy",
        "by alpha_type=fixed_alpha",
    ),
    (GRPO | {"algorithm.group_size": 1}, "algorithm.group_size", "an integer > 1"),
    (GRPO | {"env.train.group_size": 2}, "env.train.group_size", "env.train.group_size=${algorithm.group_size}"),
    (GRPO | {"env.train.auto_reset": True}, "env.train.auto_reset", "Set env.train.auto_reset=false"),
    (
        GRPO | {"algorithm.rewards_upper_bound": 0.9},
        "algorithm.rewards_upper_bound",
        "without algorithm.filter_rewards",
    ),
    (
        GRPO
        | {
            "algorithm.filter_rewards": True,
            "algorithm.rewards_lower_bound": 2.0,
            "algorithm.rewards_upper_bound": 1.0,
        },
        "algorithm.rewards_lower_bound",
        "below algorithm.rewards_upper_bound",
    ),
    (GRPO | {"algorithm.bootstrap_type": "always"}, "algorithm.bootstrap_type", "not used by adv_type=grpo"),
    ({"algorithm.clip_ratio_c": 1.0}, "algorithm.clip_ratio_c", "Set it to 3.0"),
    ({"algorithm.clip_ratio_low": 1.0}, "algorithm.clip_ratio_low", "(0, 1)"),
    ({"algorithm.kl_penalty": "k1"}, "algorithm.kl_penalty", "while algorithm.kl_beta is 0"),
    ({"algorithm.entropy_type": "token_level"}, "algorithm.entropy_type", "while algorithm.entropy_bonus is 0"),
    ({"runner": {"val_check_interval": 0}}, "runner.val_check_interval", "Set it to -1"),
    ({"runner": {"max_steps": -2}}, "runner.max_steps", "integer > 0, or -1"),
    ({"runner": {"val_check_interval": 5}, "env.eval": None}, "env.eval", "Add the section"),
    ({"runner": {"keep_best": "eval/return"}}, "runner.keep_best", "Set runner.val_check_interval"),
    ({"runner": {"stop_at": {"eval/return": 1}}}, "runner.stop_at", "Set runner.val_check_interval"),
    (
        {"runner": {"val_check_interval": 5, "stop_at": {"success_once": 1}}},
        "runner.stop_at.success_once",
        "Did you mean 'eval/success_once'?",
    ),
    (
        {"env.train.use_ordered_reset_state_ids": True, "env.eval.use_ordered_reset_state_ids": True},
        "env.train.use_ordered_reset_state_ids",
        "evaluated where it has learned",
    ),
    (
        {"runner": {"val_check_interval": 5, "stop_at": {"eval/retrun": 1}}},
        "runner.stop_at.eval/retrun",
        "Did you mean 'eval/return'?",
    ),
    (
        {"runner": {"val_check_interval": 5, "keep_best": "eval/sucess_once"}},
        "runner.keep_best",
        "Did you mean 'eval/success_once'?",
    ),
    (
        {"runner": {"val_check_interval": 5, "keep_best": "env/returns"}},
        "runner.keep_best",
        "Did you mean 'env/return'?",
    ),
    (
        {"env.eval.max_steps_per_rollout_epoch": 50},
        "env.eval.max_steps_per_rollout_epoch",
        "Set it to at least 100",
    ),
    (
        {"actor.optim": {"lr_scheduler": "cosine"}},
        "actor.optim.total_training_steps",
        "actor.optim.lr_scheduler=constant",
    ),
    ({"actor.optim": {"total_training_steps": 9}}, "actor.optim.total_training_steps", "lr_scheduler=constant"),
    (
        {"actor.optim": {"lr_scheduler": "linear", "total_training_steps": 9, "lr_warmup_steps": 9}},
        "actor.optim.lr_warmup_steps",
        "Lower it",
    ),
    ({"runner": {"logger": {"experiment_name": "a/b"}}}, "runner.logger.experiment_name", "without slashes"),
    ({"rollout": {"group_name": "ActorGroup"}}, "rollout.group_name", "actor.group_name"),
    ({"env.train.init_params": {}}, "env.train.init_params.id", "for example CartPole-v1"),
    (
        {"env.train.init_params.max_episode_steps": 5},
        "env.train.init_params.max_episode_steps",
        "write env.train.max_episode_steps",
    ),
    ({"actor.model.obs_clip": 5.0}, "actor.model.obs_clip", "without actor.model.normalize_obs"),
    ({"reward": REWARD["reward"]}, "cluster.component_placement.reward", "Add 'reward: 0', say"),
    (REWARD | {"reward": None}, "cluster.component_placement.reward", "without a section reward"),
    (REWARD | {"runner.task_type": "offline"}, "reward", "not used by task_type=offline"),
    (REWARD | {"reward.rewards": {}}, "reward.rewards", "nothing would be learned"),
    (REWARD | {"reward.group_name": "EnvGroup"}, "reward.group_name", "env.group_name"),
    (
        REWARD | {"reward.rewards.env": {"reward_type": "api", "url": "localhost", "obs_keys": []}},
        "reward.rewards.env.url",
        "begins with http://",
    ),
    (CNN | {"actor.model.image_size": [48]}, "actor.model.image_size", "[height, width]"),
    (CNN | {"actor.model.image_size": [48, 8]}, "actor.model.image_size", "at least 16 pixels"),
    (CNN | {"actor.model.image_keys": []}, "actor.model.image_keys", "[main_images]"),
    (CNN | {"actor.model.random_shift": 4}, "actor.model.random_shift", "without actor.model.add_q_head"),
    (CNN | {"actor.model.normalize_obs": True}, "actor.model.normalize_obs", "while actor.model.obs_dim is 0"),
    (
        {"actor.model.discrete": True, "actor.model.action_scale": 2.0},
        "actor.model.action_scale",
        "with actor.model.discrete",
    ),
    ({"cluster.component_placement": {"actor,rollout": 0}}, "cluster.component_placement.env", "Add 'env: 0'"),
    ({"cluster.component_placement.rollouts": 0}, "cluster.component_placement.rollouts", "Did you mean 'rollout'?"),
]

PLACEMENTS = [
    ({"cluster.component_placement": {"actor,rollout": 0, "env": "1-0"}}, "cluster.component_placement.env", "0-1"),
    ({"cluster.component_placement.actor": 0}, "cluster.component_placement.actor", "name each component once"),
    (
        {"cluster.component_placement": {"actor,rollout": 0, "env": {"node_group": "robots", "placement": 0}}},
        "cluster.component_placement.env.node_group",
        "node_groups",
    ),
    (
        {"cluster.node_groups": [{"label": "a", "node_ranks": "0-3"}]},
        "cluster.node_groups[0].node_ranks",
        "",
    ),
]


def _line(message: str, path: str) -> str:
    lines = [line.removeprefix("  - ") for line in message.splitlines()]
    matching = [line for line in lines if line.startswith(f"{path}:")]
    assert matching, f"no line for {path} in:\n{message}"
    return "\n".join(matching)


@pytest.mark.parametrize(("changes", "path", "remedy"), KEYS_AND_VALUES, ids=lambda value: str(value)[:60])
def test_wrong_key_or_value_is_located_and_mended(recipe, changes, path, remedy):
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe(changes))
    assert remedy in _line(str(caught.value), path)


@pytest.mark.parametrize(("changes", "path", "remedy"), RELATIONS, ids=lambda value: str(value)[:60])
def test_sections_that_do_not_fit_are_located_and_mended(recipe, changes, path, remedy):
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe(changes))
    assert remedy in _line(str(caught.value), path)


@pytest.mark.parametrize(("changes", "path", "remedy"), PLACEMENTS, ids=lambda value: str(value)[:60])
def test_impossible_placement_is_a_placement_error(recipe, changes, path, remedy):
    with pytest.raises(PlacementError) as caught:
        validate_cfg(recipe(changes))
    assert path in str(caught.value)
    assert remedy in str(caught.value)


def test_all_problems_are_reported_at_once(recipe):
    changes = {
        "actor.optim": {"lrr": 1, "lr": -1.0},
        "env.train.total_num_envs": "many",
        "actor.global_batch_size": "DELETE",
    }
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe(changes))
    lines = str(caught.value).splitlines()
    assert lines[0] == "The recipe has 4 problems:"
    assert {line.split(":")[0].removeprefix("  - ") for line in lines[1:]} == {
        "actor.optim.lrr",
        "actor.optim.lr",
        "env.train.total_num_envs",
        "actor.global_batch_size",
    }


def test_valid_recipes_of_each_kind_pass(recipe):
    assert validate_cfg(recipe()).algorithm.adv_type == "gae"
    assert validate_cfg(recipe(GRPO)).algorithm.loss_type == "actor"
    assert validate_cfg(recipe(SAC | {"actor.global_batch_size": 300})).actor.critic_optim is None
    whole_episodes = {"env.train.auto_reset": True, "env.train.ignore_terminations": True}
    assert validate_cfg(recipe(GRPO | whole_episodes)).env.train.ignore_terminations
