"""Applying the table: every rule does what it says, and the schema removes what a recipe's choices do not use."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from rlinf.cli.migrate_recipe import Migration, migrate_recipe, put
from rlinf.cli.migrate_values import CONVERSIONS
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.published_keys import KeyRule, find_rule, published_keys, value_at
from rlinf.config.schema.root import CollectConfig

TABLE = published_keys()

PPO = """
cluster: {num_nodes: 1, component_placement: {"actor,env,rollout": 0, reward: 0-0}}
runner:
  task_type: embodied
  max_epochs: 3
  max_prompt_length: 4
  logger: {log_path: ../results, experiment_name: ppo, logger_backends: [tensorboard]}
  val_check_interval: 2
algorithm:
  adv_type: gae
  loss_type: actor_critic
  group_size: 1
  kl_penalty: kl
  kl_beta: 0.0
  gamma: 0.9
  gae_lambda: 0.9
  filter_rewards: false
  rewards_lower_bound: 0.1
  reward_coef: 2.0
  bootstrap_type: always
  loss_agg_func: token-mean
env:
  train: {env_type: gymnasium, init_params: {id: Pendulum-v1, num_envs: null}, total_num_envs: 4, is_eval: false,
          max_episode_steps: 8, max_steps_per_rollout_epoch: 8, reward_mode: raw}
  eval: {env_type: gymnasium, init_params: {id: Pendulum-v1}, total_num_envs: 4, is_eval: true,
         max_episode_steps: 8, max_steps_per_rollout_epoch: 8}
rollout: {backend: huggingface, model: {model_path: "", precision: "32"}, collect_prev_infos: false}
actor:
  training_backend: fsdp
  global_batch_size: 16
  micro_batch_size: 16
  model: {model_type: mlp_policy, model_path: "", obs_dim: 3, action_dim: 1, hidden_dim: 64, precision: "32",
          add_value_head: true, is_lora: false, lora_rank: 8, policy_setup: panda-qpos}
  optim: {lr: 3.0e-4, value_lr: 1.0e-3, lr_scheduler: torch_constant, min_lr: 1.0e-5}
  fsdp_config: {strategy: fsdp, use_orig_params: false, mixed_precision: {param_dtype: "32", buffer_dtype: "32"}}
reward: {use_reward_model: false}
critic: {use_critic_model: false}
weight_syncer: {type: patch, patch: {compression: none}}
"""

GRPO = """
cluster: {num_nodes: 1, component_placement: {"actor,rollout,reward": all}}
runner: {task_type: reasoning, experiment_name: grpo, output_dir: ../results, seq_length: 96, max_epochs: 1,
         enable_dynamic_batch_size: false, max_tokens_per_mbs: 96}
algorithm:
  adv_type: grpo
  loss_type: actor
  group_size: 4
  n_minibatches: 2
  training_batch_size_per_gpu: 2
  rollout_batch_size_per_gpu: null
  ratio_clip_eps: 0.3
  clip_ratio_low: null
  clip_ratio_high: 0.4
  clip_ratio_c: null
  kl_beta: 0.0
  kl_penalty_type: low_var_kl
  recompute_logprobs: true
  early_stop_imp_ratio: 5.0
  importance_sampling_fix: true
  importance_sampling_clip: 2.0
  sampling_params: {do_sample: true, max_new_tokens: 32, top_k: 1000000}
data: {type: math, train_data_paths: /data/train.jsonl, val_data_paths: null, prompt_key: prompt, answer_key: solutions,
       max_prompt_length: 64, rollout_batch_size: 8, num_workers: 2, val_rollout_batch_size: null}
rollout: {rollout_backend: sglang, tensor_parallel_size: 1, model: {model_path: /models/q, model_type: qwen2.5},
          vllm: {attention_backend: FLASH_ATTN}, sglang: {attention_backend: triton, decode_log_interval: 9}}
actor:
  training_backend: megatron
  mcore_gpt: true
  offload_weight: true
  model: {precision: bf16, activation: swiglu, tensor_model_parallel_size: 2, recompute_granularity: full}
  optim: {lr: 2.0e-5, bf16: true, optimizer: adam, min_lr: 2.0e-6, overlap_grad_reduce: false}
  lr_sched: {max_lr: 2.0e-5, lr_decay_style: linear, lr_decay_iters: 10, lr_warmup_iters: 0, lr_warmup_fraction: 0.2,
             min_lr: 2.0e-6}
  tokenizer: {use_fast: false}
reward: {use_reward_model: false, reward_type: math, reward_scale: 5.0, tokenizer: {use_fast: false}}
critic: {use_critic_model: false}
"""

SAC = """
cluster: {component_placement: {actor: 0-0, env: 0-0, rollout: 0-0}}
runner: {task_type: embodied, max_epochs: 3, weight_sync_interval: 30, ckpt_path: null}
algorithm:
  adv_type: embodied_sac
  loss_type: embodied_sac
  q_head_type: crossq
  critic_subsample_size: 2
  group_size: 1
  loss_agg_func: token-mean
  gamma: 0.9
  entropy_tuning: {initial_alpha: 0.01, optim: {lr: 3.0e-4, lr_scheduler: torch_constant}}
  replay_buffer: {enable_cache: true, cache_size: 200, min_buffer_size: 2, sample_window_size: 50}
env:
  train: &env {env_type: gymnasium, init_params: {id: Pendulum-v1}, total_num_envs: 4, max_episode_steps: 8,
               max_steps_per_rollout_epoch: 8, use_spacemouse: true}
  eval: *env
rollout: {backend: huggingface}
actor:
  global_batch_size: 16
  micro_batch_size: 16
  enable_drq: false
  model: {model_type: mlp_policy, add_q_head: true, hidden_dim: 32, precision: "32"}
"""


COLLECTION = """
cluster:
  num_nodes: 1
  component_placement: {env: {node_group: arm, placement: 0}, reward: {node_group: arm, placement: 0}}
  node_groups:
    - label: arm
      node_ranks: 0
      hardware: {type: Franka, configs: [{robot_ip: 10.0.0.2, node_rank: 0, gripper_type: robotiq}]}
runner: {task_type: embodied, num_data_episodes: 7, logger: {log_path: null, experiment_name: collected}}
env:
  eval: {env_type: realworld, total_num_envs: null, auto_reset: false, max_episode_steps: 500, use_spacemouse: true,
         max_steps_per_rollout_epoch: 100, override_cfg: {target_ee_pose: [0.5, 0.0, 0.1, 3.1416, 0.0, 0.0]},
         data_collection: {enabled: true, save_dir: None/collected_data, export_format: pickle, only_success: true}}
reward: {use_reward_model: true, model: {model_type: resnet}}
"""


TWO_ARMS = """
cluster:
  num_nodes: 1
  component_placement: {env: {node_group: arms, placement: 0}}
  node_groups:
    - {label: arms, node_ranks: 0, hardware: {type: DualFranka, configs: [{left_robot_ip: 10.0.0.2, node_rank: 0}]}}
runner: {task_type: embodied, num_data_episodes: 3, logger: {log_path: null, experiment_name: collected}}
env:
  eval: {env_type: realworld, init_params: {id: DualFrankaTCPEnv-v1}, total_num_envs: null, auto_reset: false,
         max_episode_steps: 300, max_steps_per_rollout_epoch: 100, use_pico: true,
         override_cfg: {task_description: Fold it., ee_pose_limit_min: [0.3]},
         data_collection: {enabled: true, save_dir: None/collected_data, export_format: lerobot, fps: 10}}
"""


def migrated(text: str) -> Migration:
    return migrate_recipe(yaml.safe_load(text))


def test_a_policy_gradient_recipe_becomes_valid() -> None:
    result = migrated(PPO)
    assert result.outcome == "complete", (result.problems, result.lost, result.missing, result.to_fill_in)
    cfg = validate_cfg(result.recipe)
    assert cfg.algorithm.loss_type == "actor_critic"
    for path, value in {
        "env.train.reward_coef": 2.0,
        "rollout.rollout_backend": "huggingface",
        "rollout.model.precision": "fp32",
        "actor.model.hidden_dims": [64, 64, 64],
        "actor.model.obs_dim": None,
        "actor.optim.lr_scheduler": "constant",
        "actor.optim.min_lr_ratio": None,
        "actor.fsdp_config.mixed_precision": {"param_dtype": "fp32"},
        "cluster.component_placement": {"actor,env,rollout": 0},
        "weight_syncer": {"type": "patch"},
        "critic": None,
        "reward": None,
    }.items():
        assert value_at(result.recipe, path) == value, path
    dropped = dict(result.dropped)
    assert dropped["algorithm.filter_rewards"] == "no groups are masked"
    assert ("rollout.backend", "rollout.rollout_backend") in result.renamed


def test_a_language_model_recipe_becomes_valid() -> None:
    result = migrated(GRPO)
    assert result.outcome == "reduced", (result.problems, result.missing, result.to_fill_in)
    assert {key for key, _ in result.lost} == {"algorithm.early_stop_imp_ratio"}
    validate_cfg(result.recipe)
    for path, value in {
        "actor.global_batch_size": 16,
        "actor.micro_batch_size": 2,
        "actor.enable_offload": True,
        "actor.training_backend": "megatron",
        "actor.megatron": {"tensor_model_parallel_size": 2, "recompute": "full", "overlap_grad_reduce": False},
        "actor.model.model_path": "/models/q",
        "actor.model.model_type": "qwen2.5",
        "actor.optim.lr_scheduler": "linear",
        "actor.optim.total_training_steps": 10,
        "actor.optim.lr_warmup_steps": 2,
        "algorithm.clip_ratio_low": 0.3,
        "algorithm.clip_ratio_high": 0.4,
        "algorithm.kl_penalty": "low_var_kl",
        "algorithm.importance_correction.upper_bound": 2.0,
        "data.train_data_paths": ["/data/train.jsonl"],
        "reward.rewards.answer": {
            "reward_type": "math",
            "weight": 5.0,
            "correct_reward": 1.0,
            "incorrect_reward": -1.0,
        },
        "rollout.sglang": {"attention_backend": "triton"},
        "rollout.vllm": None,
        "runner.logger": {"experiment_name": "grpo", "log_path": "../results"},
    }.items():
        assert value_at(result.recipe, path) == value, path
    assert value_at(result.recipe, "actor.optim.min_lr_ratio") == pytest.approx(0.1)


def test_a_recipe_that_only_collects_needs_a_driver_and_nothing_else() -> None:
    result = migrated(COLLECTION)
    assert (result.outcome, result.to_fill_in) == ("fill in", ["env.eval.client"])
    assert [key for key, _ in result.lost] == ["reward"]
    put(result.recipe, ("env", "eval", "client"), "mine.arms:Arm")
    cfg = validate_cfg(result.recipe)
    assert isinstance(cfg, CollectConfig)
    assert cfg.env.eval is not None
    assert (cfg.env.eval.rollout_epoch, cfg.env.eval.max_steps_per_rollout_epoch) == (7, 500)
    assert (cfg.env.eval.data_collection.policy, cfg.env.eval.data_collection.save_dir) == ("operator", None)
    assert [wrapper.name for wrapper in cfg.env.eval.wrappers] == ["intervention"]
    assert cfg.cluster.node_groups[0].hardware.configs == [{"robot_ip": "10.0.0.2", "node_rank": 0}]


def test_a_robot_of_another_kind_needs_a_driver_and_its_sizes() -> None:
    result = migrated(TWO_ARMS)
    assert (result.outcome, result.problems) == ("fill in", [])
    assert result.to_fill_in == ["env.eval.client", "env.eval.state_dim", "env.eval.action_dim"]
    for key, value in {"client": "mine.arms:Arms", "state_dim": 20, "action_dim": 20}.items():
        put(result.recipe, ("env", "eval", key), value)
    cfg = validate_cfg(result.recipe)
    assert isinstance(cfg, CollectConfig)
    env = cfg.env.eval
    assert env is not None
    assert (env.env_type, env.task_description, env.max_steps_per_rollout_epoch) == ("robot", "Fold it.", 300)  # type: ignore[attr-defined]
    assert env.wrappers[0].intervener.intervener_type == "client"  # type: ignore[attr-defined]
    hardware = cfg.cluster.node_groups[0].hardware
    assert hardware is not None
    assert (hardware.type, hardware.configs) == ("Robot", [{"left_robot_ip": "10.0.0.2", "node_rank": 0}])


def test_an_off_policy_recipe_becomes_valid() -> None:
    result = migrated(SAC)
    assert result.outcome == "reduced", (result.problems, result.missing, result.to_fill_in)
    assert dict(result.lost) == {"runner.weight_sync_interval": "weights are synchronised at every step"}
    for path, value in {
        "algorithm.loss_type": "embodied_crossq",
        "algorithm.adv_type": "embodied_crossq",
        "algorithm.num_min_q": 2,
        "algorithm.replay_buffer": {"min_buffer_size": 16, "capacity": 400},
        "actor.model.q_head_type": "crossq",
        "env.eval.wrappers": None,
    }.items():
        assert value_at(result.recipe, path) == value, path
    assert value_at(result.recipe, "env.train.wrappers")[0]["name"] == "intervention"
    reasons = dict(result.dropped)
    assert reasons["algorithm.loss_agg_func"] == "not used by loss_type=embodied_crossq"
    assert (
        reasons["runner.ckpt_path"] if "runner.ckpt_path" in reasons else result.recipe["runner"]["ckpt_path"] is None
    )


def test_what_has_no_counterpart_is_named_and_nothing_else_is_wrong() -> None:
    recipe = yaml.safe_load(PPO)
    recipe["env"]["train"]["env_type"] = recipe["env"]["eval"]["env_type"] = "diffusion"
    recipe["actor"]["model"] = {"model_type": "starvla", "model_path": "/m", "starvla": {"noise_level": 0.5}}
    recipe["agentloop"] = {"toolcall_parser": "mine"}
    result = migrate_recipe(recipe)
    assert result.outcome == "no counterpart"
    assert dict(result.missing) == {
        "env.train.env_type": "environment diffusion",
        "env.eval.env_type": "environment diffusion",
        "actor.model.model_type": "model starvla",
        "agentloop.toolcall_parser": "agents that call tools in another way",
    }
    assert result.problems == []


def test_keys_of_a_loss_without_a_counterpart_belong_to_it() -> None:
    recipe = yaml.safe_load(PPO)
    recipe["algorithm"] |= {"loss_type": "rlt_ac", "weight_of_proposals": 2.0}
    result = migrate_recipe(recipe)
    assert result.missing == [("algorithm.loss_type", "policy loss rlt_ac")]
    assert result.problems == []


def test_a_moved_value_gets_the_name_that_it_has_here() -> None:
    recipe = yaml.safe_load(GRPO)
    recipe["actor"]["lr_sched"]["lr_decay_style"] = "torch_linear"
    assert value_at(migrate_recipe(recipe).recipe, "actor.optim.lr_scheduler") == "linear"


PI = """
model_type: openpi
model_path: /models/pi
precision: bf16
num_action_chunks: 5
action_dim: 7
num_steps: 4
add_value_head: true
openpi: {config_name: pi05_libero, num_images_in_input: 1, noise_level: 0.3, noise_method: flow_sde, num_steps: 4,
         action_chunk: 5, action_env_dim: 7, add_value_head: true, detach_critic_input: true, train_expert_only: true,
         use_dsrl: false, dsrl_state_dim: 8, action_horizon: 10}
"""


def test_a_vision_language_action_policy_keeps_its_sizes() -> None:
    recipe = yaml.safe_load(PPO)
    for split in ("train", "eval"):
        recipe["env"][split] |= {"max_steps_per_rollout_epoch": 10, "max_episode_steps": 10}
    recipe["actor"] |= {"model": yaml.safe_load(PI), "global_batch_size": 8, "micro_batch_size": 8}
    result = migrate_recipe(recipe)
    assert result.lost == []
    model = result.recipe["actor"]["model"]
    assert "openpi" not in model
    assert (model["variant"], model["horizon"], model["num_steps"], model["noise_level"]) == ("pi05", 10, 4, 0.3)
    assert (model["value_detach"], model["freeze"]) == (True, ["vision", "projector", "language"])


@pytest.mark.parametrize(("config_name", "image"), [("pi0_libero", "image"), ("pi0_custom", None)])
def test_fine_tuning_finds_the_columns_of_the_published_data_set(config_name: str, image: str | None) -> None:
    actor = {"model": yaml.safe_load(PI) | {"add_value_head": False}, "global_batch_size": 8, "micro_batch_size": 8}
    actor["model"]["openpi"]["config_name"] = config_name
    recipe = {"runner": {"task_type": "sft", "max_steps": 10}, "data": {"train_data_paths": "/libero"}, "actor": actor}
    data = migrate_recipe(recipe).recipe["data"]
    assert data["path"] == "/libero"
    assert data.get("columns", {}).get("main_images") == image


LIBERO = """
env_type: libero
task_suite_name: libero_object
max_steps_per_rollout_epoch: 240
max_episode_steps: 240
reset_gripper_open: false
use_fixed_reset_state_ids: true
use_ordered_reset_state_ids: true
specific_reset_id: 103
init_params: {camera_heights: 224, camera_widths: 224}
"""


@pytest.mark.parametrize("together", [True, False])
def test_co_training_has_its_data_in_a_section(together: bool) -> None:
    keys = {"enable_sft_co_train": together, "sft_data_path": "/real", "sft_loss_weight": 0.2}
    published = yaml.safe_load(PPO)
    published["actor"] |= keys
    recipe = migrate_recipe(published).recipe
    assert recipe.get("data") == ({"format": "lerobot", "path": "/real"} if together else None)
    assert recipe["actor"].get("sft_loss_weight") == (0.2 if together else None)
    assert not keys.keys() & recipe["actor"].keys() - {"sft_loss_weight"}


def test_a_reward_by_a_vision_language_model_keeps_its_replies_and_history() -> None:
    published = yaml.safe_load(PPO)
    window = {"history_size": 5, "min_history_size": 4, "input_interval": 2, "history_keys": ["wrist_images"]}
    published["reward"] = {
        "use_reward_model": True,
        "reward_mode": "history_buffer",
        "reward_weight": 0.5,
        "model": {
            "model_type": "buffered_vlm",
            "model_path": "/qwen",
            "reward_parser_name": "trend",
            "reward_parser_params": {"positive_reward": 1.0, "negative_reward": -0.2, "invalid_reward": 0.1},
            "history_buffers": {"history_window": window},
            "max_new_tokens": 8,
            "do_sample": False,
        },
    }
    result = migrate_recipe(published)
    assert result.to_fill_in == ["reward.rewards.model.question"], (result.problems, result.missing)
    assert result.recipe["reward"]["rewards"]["model"] == {
        "reward_type": "vlm",
        "model_path": "/qwen",
        "weight": 0.5,
        "replies": {"positive": 1.0, "negative": -0.2},
        "invalid_reward": 0.1,
        "history_size": 5,
        "min_history_size": 4,
        "input_interval": 2,
        "image_keys": ["wrist_images"],
        "max_new_tokens": 8,
        "question": "???",
    }


def test_start_states_and_conventions_of_libero_are_kept() -> None:
    recipe = yaml.safe_load(PPO)
    for split in ("train", "eval"):
        recipe["env"][split] = {"total_num_envs": 8, "group_size": 1, **yaml.safe_load(LIBERO)}
    recipe["env"]["eval"] |= {"is_eval": True, "use_ordered_reset_state_ids": False, "specific_reset_id": None}
    recipe["actor"]["model"] = {
        "model_type": "openvla_oft",
        "model_path": "/models/oft",
        "precision": "bf16",
        "action_dim": 7,
        "num_action_chunks": 8,
        "add_value_head": True,
        "num_images_in_input": 2,
    }
    recipe["rollout"] = {"sampling_params": {"temperature_train": 1.6, "temperature_eval": 1.6, "top_k": -1}}
    result = migrate_recipe(recipe)
    train, evaluation = result.recipe["env"]["train"], result.recipe["env"]["eval"]
    for env in (train, evaluation):
        assert (env["num_settle_steps"], env["action_convention"], env["image_size"]) == (15, "rlds", 224)
        assert env["reset_gripper_open"] is False
        assert "use_fixed_reset_state_ids" not in env
    assert (train["task_id_filter"], train["trial_id_filter"]) == ([2], [3])
    assert "use_ordered_reset_state_ids" not in train
    assert "task_id_filter" not in evaluation
    assert evaluation["use_ordered_reset_state_ids"] is True
    model = result.recipe["actor"]["model"]
    assert (model["temperature"], model["image_keys"]) == (1.6, ["main_images", "wrist_images"])
    assert [key for key, _ in result.lost] == ["env.train.use_ordered_reset_state_ids"]


def test_a_model_of_another_task_has_no_counterpart() -> None:
    recipe = yaml.safe_load(GRPO)
    recipe["rollout"]["model"]["model_type"] = "mlp_policy"
    assert ("actor.model.model_type", "model mlp_policy in recipes of this task") in migrate_recipe(recipe).missing


def test_values_that_only_the_user_knows_are_to_be_filled_in() -> None:
    recipe = yaml.safe_load(PPO)
    recipe["actor"]["optim"] |= {"lr_scheduler": "torch_cosine"}
    recipe["env"]["train"]["total_num_envs"] = None
    result = migrate_recipe(recipe)
    assert result.outcome == "fill in"
    assert sorted(result.to_fill_in) == ["actor.optim.total_training_steps", "env.train.total_num_envs"]
    assert value_at(result.recipe, "actor.optim.total_training_steps") == "???"
    assert value_at(result.recipe, "actor.optim.lr_scheduler") == "cosine"


def test_the_rest_of_a_recipe_is_checked_although_values_are_to_be_filled_in() -> None:
    open_text = PPO.replace("total_num_envs: 4, is_eval: false", 'total_num_envs: "???", is_eval: false')
    result = migrated(open_text)
    assert (result.outcome, result.to_fill_in, result.problems) == ("fill in", ["env.train.total_num_envs"], [])
    assert result.recipe["env"]["train"]["total_num_envs"] == "???", "stand-ins stay outside"
    result = migrated(open_text.replace("add_value_head: true", "add_value_head: false"))
    assert result.outcome == "problems"
    assert {line.partition(":")[0] for line in result.problems} == {"actor.model.add_value_head"}


def test_an_operator_takes_over_only_where_the_loss_learns_from_it() -> None:
    lost = "env.train.use_spacemouse"
    recipe = yaml.safe_load(PPO)
    recipe["env"]["train"]["use_spacemouse"] = True
    result = migrate_recipe(recipe)
    assert (result.outcome, lost in dict(result.lost)) == ("reduced", True)
    assert "wrappers" not in result.recipe["env"]["train"]
    recipe["algorithm"]["loss_type"] = "embodied_sac"
    result = migrate_recipe(recipe)
    assert lost not in dict(result.lost)
    assert result.recipe["env"]["train"]["wrappers"][0]["name"] == "intervention"


def test_other_mistakes_are_reported_as_they_are() -> None:
    recipe = yaml.safe_load(PPO)
    recipe["actor"]["nonsense"] = 1
    result = migrate_recipe(recipe)
    assert result.outcome == "problems"
    assert [line.partition(":")[0] for line in result.problems] == ["actor.nonsense"]


def test_a_recipe_without_runner_is_that_of_a_script() -> None:
    result = migrate_recipe({"advantage": {"batch_size": 3}})
    assert result.outcome == "no counterpart"
    assert result.missing[0][0] == "runner"


def test_a_key_that_is_given_at_its_new_place_keeps_its_value() -> None:
    recipe = yaml.safe_load(PPO)
    recipe["env"]["train"]["reward_coef"] = 3.0
    result = migrate_recipe(recipe)
    assert value_at(result.recipe, "env.train.reward_coef") == 3.0
    assert "env.train.reward_coef is given too" in dict(result.dropped)["algorithm.reward_coef"]


def test_our_own_recipes_stay_as_they_are() -> None:
    from omegaconf import OmegaConf

    for name in ("gym_cartpole_ppo_mlp", "tiny_math_grpo", "gym_pendulum_sac_mlp"):
        plain: Any = OmegaConf.to_container(load_recipe(name), resolve=True)
        result = migrate_recipe(plain)
        assert result.problems == []
        assert result.lost == []
        ours, again = validate_cfg(plain), validate_cfg(result.recipe)
        assert (again.algorithm, again.runner, again.actor.optim) == (ours.algorithm, ours.runner, ours.actor.optim)


def samples(rule: KeyRule) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return keys that a rule is for, with a value, and a recipe in which the rule's conditions hold."""
    found = []
    for split, name in (("train", "some"), ("eval", "some"), ("train", "")):
        key = rule.key.replace("env.*", f"env.{split}", 1).replace("**", name).replace("*", name).rstrip(".")
        recipe: dict[str, Any] = {}
        for path, values in rule.where.items():
            put(recipe, tuple(path.split(".")), copy.deepcopy(values[0]))
        value: Any = rule.when[0] if rule.when else next(iter(rule.values), 7)
        if value_at(recipe, key) is None:
            put(recipe, tuple(key.split(".")), value)
        found.append((key, value_at(recipe, key), recipe))
    return found


def test_every_rule_is_reached() -> None:
    for rule in TABLE:
        firsts = [find_rule(*sample) for sample in samples(rule)]
        assert any(first is not None and first[0] is rule for first in firsts), (
            f"another one comes first: {rule} {firsts}"
        )


def test_every_conversion_is_used() -> None:
    assert {rule.target for rule in TABLE if rule.action == "convert"} == set(CONVERSIONS)


def test_a_critic_model_keeps_its_optimizer() -> None:
    recipe = yaml.safe_load(GRPO)
    recipe["algorithm"] |= {"adv_type": "gae", "loss_type": "actor_critic"}
    recipe["critic"] = {
        "use_critic_model": True,
        "group_name": "CriticGroup",
        "training_backend": "megatron",
        "offload_weight": True,
        "model": {"precision": "bf16", "tensor_model_parallel_size": 1},
        "optim": {"lr": 1.0e-5, "adam_beta2": 0.95, "optimizer": "adam", "overlap_grad_reduce": False},
        "megatron": {"use_hf_ckpt": True},
    }
    result = migrate_recipe(recipe)
    assert result.missing == []
    cfg = validate_cfg(result.recipe)
    assert result.recipe["critic"] == {
        "use_critic_model": True,
        "enable_offload": True,
        "optim": {"lr": 1.0e-5, "adam_beta2": 0.95},
    }
    assert (cfg.algorithm.loss_type, cfg.actor.model.add_value_head) == ("actor", False)


def test_megatron_runs_without_an_inference_group() -> None:
    recipe = yaml.safe_load(GRPO)
    recipe["cluster"]["component_placement"] = {"actor": "0-1", "rollout": 2, "inference": 3, "reward": "all"}
    recipe["inference"] = {"group_name": "InferenceGroup", "load_from_actor": True}
    result = migrate_recipe(recipe)
    assert "inference" in dict(result.lost)
    assert result.recipe["cluster"]["component_placement"] == {"actor": "0-1", "rollout": 2, "reward": "all"}
    validate_cfg(result.recipe)


def test_a_simulator_without_a_counterpart_runs_in_a_guest_and_says_so() -> None:
    published = yaml.safe_load(PPO)
    for name in ("train", "eval"):
        published["env"][name].update(env_type="genesis", init_params={"task_name": "cube_pick"})
    result = migrate_recipe(published)
    assert result.outcome == "adapter", result
    assert result.unproven == [
        (f"env.{name}", "adapter published_rlinf for genesis, unproven") for name in ("train", "eval")
    ]
    train = result.recipe["env"]["train"]
    assert (train["env_type"], train["init_params"]["init_params"]) == ("guest", {"task_name": "cube_pick"})
    # What the algorithm's section says of rewards and rollouts still arrives.
    assert train["reward_coef"] == 2.0
    validate_cfg(result.recipe)


@pytest.mark.parametrize(
    ("backend", "ours", "outcome"),
    [("gpu", "gpu", "complete"), ("physx_cuda", "gpu", "complete"), ("cpu", None, "complete"), ("x", None, "reduced")],
)
def test_maniskill_simulates_where_the_published_recipe_says(backend: str, ours: str | None, outcome: str) -> None:
    published = yaml.safe_load(PPO)
    for name in ("train", "eval"):
        published["env"][name].update(env_type="maniskill", init_params={"id": "PickCube-v1", "sim_backend": backend})
    published["algorithm"].update(bootstrap_type="standard")
    result = migrate_recipe(published)
    assert result.outcome == outcome, result
    for name in ("train", "eval"):
        section = result.recipe["env"][name]
        assert section.get("sim_backend") == ours
        assert section["init_params"] == {"id": "PickCube-v1"}
    validate_cfg(result.recipe)


SFT_OF_IMAGES = """
cluster: {num_nodes: 1, component_placement: {actor: all}}
runner: {task_type: sft, max_epochs: 2, max_steps: -1, val_check_interval: 5}
data: {type: vlm, dataset_name: robo2vlmsft, apply_chat_template: true, use_chat_template: true, lazy_loading: true,
       train_data_paths: /data/train, eval_data_paths: /data/eval, prompt_key: question, choice_key: choices,
       answer_key: correct_answer, image_keys: [image], max_prompt_length: 1024, answer_separator: ""}
algorithm: {adv_type: gae, sampling_params: {temperature: 1.0}}
actor:
  training_backend: megatron
  micro_batch_size: 4
  eval_batch_size: 1
  global_batch_size: 8
  model: {model_type: qwen2.5_vl, model_path: /models/q, precision: bf16, tensor_model_parallel_size: 2}
  optim: {lr: 1.0e-5, overlap_grad_reduce: true}
  megatron: {use_hf_ckpt: true}
"""


def test_fine_tuning_on_images_keeps_its_rows_and_says_that_no_tower_is_trained_by_megatron() -> None:
    result = migrate_recipe(yaml.safe_load(SFT_OF_IMAGES))
    assert result.outcome == "reduced", (result.problems, result.missing, result.to_fill_in)
    assert {key for key, _ in result.lost} == {"actor.training_backend", "actor.eval_batch_size", "data.lazy_loading"}
    assert result.recipe["data"] == {
        "apply_chat_template": True,
        "train_data_paths": ["/data/train"],
        "val_data_paths": ["/data/eval"],
        "prompt_key": "question",
        "choice_key": "choices",
        "answer_key": "correct_answer",
        "image_keys": ["image"],
        "max_length": 1024,
    }
    actor = result.recipe["actor"]
    assert (actor["training_backend"], actor["model"]["precision"]) == ("fsdp", "fp32")
    assert actor["fsdp_config"] == {"mixed_precision": {"param_dtype": "bf16"}}
    assert not {"algorithm", "megatron"} & {*result.recipe, *actor}


def test_prompts_with_videos_have_no_counterpart() -> None:
    published = yaml.safe_load(SFT_OF_IMAGES)
    published["data"]["dataset_name"] = "vlm_trend_reward_sft"
    assert ("data", "prompts with videos, which no model here reads") in migrate_recipe(published).missing


def test_a_teacher_or_expert_of_policies_is_read_from_its_own_folder() -> None:
    recipe = yaml.safe_load(PPO)
    for split in ("train", "eval"):
        recipe["env"][split] = {"total_num_envs": 8, "group_size": 1, **yaml.safe_load(LIBERO)}
    recipe["algorithm"] |= {"adv_type": "opd", "loss_type": "opd", "normalize_advantages": False}
    recipe["actor"]["model"] = {"model_type": "openvla_oft", "model_path": "/student", "action_dim": 7,
                                "num_action_chunks": 8, "unnorm_key": "libero"}  # fmt: skip
    recipe["rollout"] = {"expert_model": {"model_path": "/teacher", "precision": "bf16", "unnorm_key": "libero"}}
    result = migrate_recipe(recipe)
    assert result.outcome in {"reduced", "complete"}, (result.problems, result.missing, result.to_fill_in)
    assert result.recipe["algorithm"]["teacher"] == {"model_path": "/teacher", "enable_offload": True}
    assert "expert" not in result.recipe["algorithm"]
    published = {**recipe, "runner": {**recipe["runner"], "expert_ckpt_path": "/teacher.pt"}}
    assert migrate_recipe(published).recipe["algorithm"]["teacher"]["ckpt_path"] == "/teacher.pt"
    recipe["algorithm"] |= {"adv_type": "embodied_dagger", "loss_type": "embodied_dagger"}
    recipe["rollout"]["recompute_logprobs"] = False
    algorithm = migrate_recipe(recipe).recipe["algorithm"]
    assert algorithm["expert"] == {"expert_type": "policy", "model_path": "/teacher"}
    assert algorithm["recompute_logprobs"] is False


AGENTS = """
runner: {seq_length: 512}
algorithm:
  adv_type: grpo_dynamic
  advantage_mode: trajectory
  loss_agg_func: token-mean
  loss_scales: [group_level, agent_level, turn_level]
agentloop: {group_name: AgentLoopGroup, is_dynamic_rollout_batch: true, print_outputs: false}
tools: {search: {server_addr: "10.0.0.1:8000", topk: 5}}
"""


def published_agents(**sections: dict[str, Any]) -> dict[str, Any]:
    """Return a published recipe of agents: that of GRPO, with what they share and some sections of its own."""
    recipe, agents = yaml.safe_load(GRPO), yaml.safe_load(AGENTS)
    for name in {*agents, *sections}:
        recipe[name] = {**recipe.get(name, {}), **agents.get(name, {}), **sections.get(name, {})}
    return recipe


def test_an_agent_that_searches_keeps_its_service_its_turns_and_its_context() -> None:
    recipe = published_agents(agentloop={"toolcall_parser": "searchr1-qwen", "max_turns": 3})
    recipe["reward"]["reward_type"] = "searchr1"
    result = migrate_recipe(recipe)
    assert result.outcome == "reduced", (result.problems, result.missing, result.to_fill_in)
    assert result.recipe["agent"] == {
        "workflow": "search",
        "max_turns": 3,
        "max_context_tokens": 512,
        "tools": {"search": {"tool_type": "retrieval", "url": "http://10.0.0.1:8000/retrieve", "top_k": 5}},
    }
    assert result.recipe["algorithm"]["adv_type"] == "grpo"
    assert result.recipe["reward"]["rewards"]["answer"]["reward_type"] == "searchr1"


@pytest.mark.parametrize("alone", [False, True])
def test_agents_that_delegate_keep_their_sizes_and_what_is_not_rewarded_is_named(alone: bool) -> None:
    loop = {"toolcall_parser": "wideseek_r1-qwen", "workflow": "sa" if alone else "mas", "use_llm_judge": True}
    sizes = {"max_sa_turns": 50, "max_planner_turns": 10, "max_worker_turns": 20, "max_workers_per_planner": 4}
    rewards = {"format_reward": 0.1, "call_search_reward": 0.05, "length_penalty": 0.1, "length_limit": 3000}
    recipe = published_agents(agentloop={**loop, **sizes, **rewards}, data={"unique_columns": "unique_columns"})
    del recipe["reward"]
    result = migrate_recipe(recipe)
    assert result.outcome == "reduced", (result.problems, result.missing, result.to_fill_in)
    agent = result.recipe["agent"]
    assert (agent["workflow"], agent["max_turns"]) == (("tools", 50) if alone else ("delegate", 10))
    assert (agent.get("worker_turns"), agent.get("max_agents")) == ((None, None) if alone else (20, 4))
    assert result.recipe["reward"]["rewards"] == {"answer": {"reward_type": "wideseek_r1", "format_reward": 0.1}}
    assert result.recipe["data"]["metadata_keys"] == ["unique_columns"]
    lost = dict(result.lost)
    assert {"agentloop.use_llm_judge", "agentloop.call_search_reward", "agentloop.length_penalty"} <= set(lost)
    algorithm = result.recipe["algorithm"]
    assert "algorithm.loss_scales" not in lost
    assert algorithm["loss_agg_func"] == "seq-mean-token-mean", "not that of the published recipe, which is scaled"
    assert algorithm.get("credit") == (None if alone else "shared")


@pytest.mark.parametrize("scales", [["group_level"], ["group_level", "agent_level"]])
def test_other_scales_of_losses_are_named_as_lost(scales: list[str]) -> None:
    loop = {"toolcall_parser": "searchr1-qwen"}
    result = migrate_recipe(published_agents(agentloop=loop, algorithm={"loss_scales": scales}))
    assert "algorithm.loss_scales" in dict(result.lost)
    assert result.recipe["algorithm"]["loss_agg_func"] == "token-mean"


def test_sub_agents_of_another_model_have_no_counterpart() -> None:
    recipe = published_agents(
        agentloop={"toolcall_parser": "wideseek_r1-qwen", "workflow": "mas"},
        rollout={"use_fixed_worker": True},
        rollout_fixed_worker={"model": {"model_path": "/other"}},
    )
    assert migrate_recipe(recipe).missing == [("rollout_fixed_worker", "sub-agents of another model")]


def test_a_recipe_that_evaluates_agents_samples_as_often() -> None:
    recipe = published_agents(agentloop={"toolcall_parser": "searchr1-qwen"}, data={"val_data_paths": ["/rows.jsonl"]})
    recipe["runner"]["task_type"] = "reasoning_eval"
    recipe["cluster"]["component_placement"] = {"rollout,reward": "all"}
    del recipe["actor"], recipe["reward"]
    recipe["algorithm"] = {"group_size": 4, "sampling_params": {"max_new_tokens": 32}}
    recipe["rollout"]["model"] = {"model_path": "/m", "model_type": "qwen2.5"}
    result = migrate_recipe(recipe)
    assert not result.problems
    assert result.recipe["runner"]["only_eval"] is True
    assert result.recipe["runner"]["val_samples"] == 4
    assert result.recipe["cluster"]["component_placement"] == {"rollout,reward": "all", "actor": "all"}


def test_live_clients_are_served_by_one_process() -> None:
    recipe = published_agents(algorithm={"adv_type": "raw", "group_size": 1})
    del recipe["agentloop"], recipe["tools"]
    recipe["runner"] |= {"task_type": "coding_online_rl", "val_check_interval": 1}
    recipe["rollout_server"] = {"tracking_rollout": {"host": "0.0.0.0", "port": 8082}}
    recipe["reward"], recipe["data"] = {"use_reward_model": False}, {"max_prompt_length": 64, "rollout_batch_size": 8}
    result = migrate_recipe(recipe)
    assert (result.outcome, result.to_fill_in) == ("fill in", ["agent.api_key"]), (result.problems, result.missing)
    assert result.recipe["agent"] | {"api_key": ""} == {
        "workflow": "sessions", "api_key": "", "host": "0.0.0.0", "port": 8082, "max_context_tokens": 512
    }  # fmt: skip
    assert result.recipe["cluster"]["component_placement"]["reward"] == 0
    assert result.recipe["reward"]["rewards"] == {"feedback": {"reward_type": "workflow"}}


def test_agents_of_another_framework_are_programs_of_yours() -> None:
    recipe = published_agents(algorithm={"advantage_mode": "turn"})
    recipe["agentlightning"] = {"n_runners": 10}
    recipe["reward"] = {"reward_type": "code_offline", "reward_scale": 1.0}
    recipe |= {"eval": True}
    recipe["data"]["val_data_paths"] = ["/rows.parquet"]
    del recipe["tools"]
    result = migrate_recipe(recipe)
    assert (result.outcome, result.to_fill_in) == ("fill in", ["agent.command"]), (result.problems, result.missing)
    assert result.recipe["runner"]["only_eval"] is True
    assert result.recipe["reward"]["rewards"] == {"outcome": {"reward_type": "workflow"}}
    assert "algorithm.advantage_mode" in dict(result.lost)


def test_a_component_that_two_recipes_place_is_where_the_later_one_puts_it() -> None:
    recipe = yaml.safe_load(GRPO)
    recipe["cluster"]["component_placement"] = {"actor,reward": "all", "rollout": "all", "actor,rollout": "0-1"}
    result = migrate_recipe(recipe)
    assert result.recipe["cluster"]["component_placement"] == {"reward": "all", "actor,rollout": "0-1"}


@pytest.mark.parametrize(("task", "steps"), [("pen-human-v0", 100), ("hopper-medium-v2", None)])
def test_recordings_of_d4rl_are_evaluated_where_they_were_made(task: str, steps: int | None) -> None:
    recipe = yaml.safe_load(PPO)
    evaluation = {"env_type": "d4rl", "task_name": task, "total_num_envs": 1, "max_steps_per_rollout_epoch": 1000}
    recipe["runner"]["task_type"] = "offline"
    recipe["algorithm"] = {"adv_type": None, "loss_type": "offline_iql"}
    recipe["env"] = {"eval": evaluation}
    result = migrate_recipe(recipe)
    assert not [path for path, _ in result.missing if path.startswith("env")]
    section = result.recipe["env"]["eval"]
    assert (section["task_name"], section.get("max_episode_steps")) == (task, steps)
    evaluation["task_name"] = "antmaze-large-play-v0"
    assert "motors are five times as strong" in dict(migrate_recipe(recipe).missing)["env.eval.task_name"]
