"""Keys that recipes of this field often carry and that mean nothing here, each with what to do instead.

Patterns are those of ``fnmatch`` on the full dotted path; the first that matches explains.
"""

from __future__ import annotations

import fnmatch

_ALGORITHM = "write algorithm.adv_type and algorithm.loss_type; PPO is gae with actor_critic, GRPO is grpo with actor."

_EXPLANATIONS: tuple[tuple[str, str], ...] = (
    ("seed", "write actor.seed, which seeds all of the run's sampling but what has a seed of its own."),
    (
        "critic.use_critic_model",
        "values come from the policy's own head: remove it and set actor.model.add_value_head.",
    ),
    ("critic*", "values come from the policy's own head: remove the section and set actor.model.add_value_head."),
    ("env.*.is_eval", "env.eval is always run without exploration: remove it."),
    ("env.*.data_collection.export_format", "data sets are in the LeRobot format: remove it."),
    ("env.*.init_params.num_envs", "set total_num_envs next to init_params instead."),
    ("env.*.use_spacemouse", "add the wrapper intervention with intervener_type: spacemouse."),
    ("env.*.main_image_key", "list that camera's serial number first in the robot's camera_serials."),
    ("env.*.override_cfg*", "write its keys directly next to env_type."),
    ("env.*.reset_gripper_open", "episodes begin with the gripper open: remove it."),
    ("rollout.backend", "write rollout.rollout_backend."),
    ("rollout.generation_backend", "write rollout.rollout_backend."),
    ("rollout.model.model_path", "the rollout takes the actor's weights: remove it."),
    ("rollout.model.*", "the rollout takes everything but precision from actor.model: remove it."),
    ("rollout.collect_*", "what is recorded follows from the algorithm: remove it."),
    ("rollout.recompute_logprobs", "log-probabilities are those sampled from: remove it."),
    ("rollout.sampling_params*", "write algorithm.sampling_params, of language models."),
    ("rollout.return_logprobs", "log-probabilities are always returned: remove it."),
    ("rollout.detokenize", "answers are always turned into text: remove it."),
    ("algorithm.name", _ALGORITHM),
    ("algorithm.rollout_epoch", "write env.train.rollout_epoch."),
    ("algorithm.reward_coef", "write env.train.reward_coef."),
    ("algorithm.replay_buffer.cache_size", "write algorithm.replay_buffer.memory_bytes, a size in bytes."),
    ("algorithm.replay_buffer.sample_window_size", "write algorithm.replay_buffer.capacity, a number of chunk steps."),
    ("algorithm.replay_buffer.enable_cache", "the newest transitions are always in host memory: remove it."),
    *(
        (f"algorithm.demo_buffer.{key}", "demonstrations are loaded whole and never change: remove it.")
        for key in ("auto_save", "cache_size", "enable_cache", "min_buffer_size", "sample_window_size")
    ),
    ("algorithm.target_update_type", "target critics follow all parameters of the critics: remove it."),
    ("algorithm.n_minibatches", "write actor.global_batch_size, the answers of an optimizer step."),
    ("algorithm.training_batch_size_per_gpu", "write runner.max_tokens_per_mbs or actor.micro_batch_size."),
    ("algorithm.logprob_forward_micro_batch_size", "write runner.max_tokens_per_mbs or actor.micro_batch_size."),
    ("algorithm.rollout_batch_size_per_gpu", "write rollout.max_running_requests."),
    ("algorithm.val_rollout_batch_size_per_gpu", "write rollout.max_running_requests."),
    ("algorithm.shuffle_rollout", "answers are shuffled at every update: remove it."),
    ("algorithm.calculate_entropy", "the entropy is always logged: remove it."),
    ("algorithm.use_valid_token_scale", "write algorithm.loss_agg_func."),
    ("algorithm.early_stop_imp_ratio", "write algorithm.importance_correction."),
    ("algorithm.sampling_params.do_sample", "write temperature: 0 for the most likely tokens, and remove it."),
    ("algorithm.kl_penalty_type", "write algorithm.kl_penalty."),
    ("algorithm.ratio_clip_eps", "write algorithm.clip_ratio_low and algorithm.clip_ratio_high."),
    ("actor.model.model_path", "write runner.ckpt_path to start from saved weights."),
    ("actor.model.value_type", "values follow algorithm.reward_type: remove it."),
    ("actor.model.policy_setup", "actions belong to the environment: remove it."),
    ("actor.model.hidden_dim", "write actor.model.hidden_dims, a list with one width per layer."),
    ("actor.fsdp_config.mixed_precision.buffer_dtype", "buffers keep their own precision: remove it."),
    ("actor.fsdp_config.use_orig_params", "fsdp2 always keeps original parameters: remove it."),
    ("actor.fsdp_config.amp*", "write actor.fsdp_config.mixed_precision.param_dtype."),
    (
        "actor.fsdp_config.backward_prefetch",
        "the next layer is always gathered while a gradient is computed: remove it.",
    ),
    (
        "actor.fsdp_config.grad_scaler*",
        "losses are scaled, by a factor that adapts, wherever mixed_precision.param_dtype is fp16: remove it.",
    ),
    ("actor.fsdp_config.use_liger_kernel", "the head computes log-probabilities without all logits: remove it."),
    ("actor.fsdp_config.gradient_checkpointing_use_reentrant", "it is never reentrant: remove it."),
    (
        "actor.fsdp_config.save_full_model_weights",
        "checkpoints are written by shards and load under any number of ranks: remove it.",
    ),
    ("actor.fsdp_config.wrap_policy*", "the decoder layers and embeddings are the units of sharding: remove it."),
    ("actor.fsdp_config.limit_all_gathers", "fsdp2 limits them by itself: remove it."),
    ("actor.optim.min_lr", "write actor.optim.min_lr_ratio, a share of lr."),
    ("actor.optim.lr_warmup_steps_ratio", "write actor.optim.lr_warmup_steps, a number of optimizer steps."),
    ("actor.tokenizer*", "the tokenizer is that of actor.model.model_path: remove it."),
    ("actor.enable_dp_load_balance", "answers are always shared out over actor ranks by their work: remove it."),
    ("actor.calculate_flops", "time/actor/mfu is logged wherever the device's peak is known: remove it."),
    ("actor.offload_*", "write actor.enable_offload."),
    ("actor.lr_sched*", "write actor.optim.lr_scheduler and lr_warmup_steps."),
    ("inference.load_from_actor", "its weights always come from the actor: remove it."),
    ("inference.model*", "it has the actor's model, whole on each rank: remove it."),
    ("data.type", "rows are read by their columns: remove it and set data.prompt_key and answer_key."),
    ("data.dataset_name", "rows are read by their columns: remove it and set data.prompt_key and answer_key."),
    ("data.val_rollout_batch_size", "write data.max_val_prompts."),
    ("runner.eval_policy_path", "write runner.ckpt_path."),
    ("runner.experiment_name", "write runner.logger.experiment_name."),
    ("runner.output_dir", "write runner.logger.log_path."),
    ("runner.logger.logger_type", "write runner.logger.logger_backends."),
    ("runner.max_prompt_length", "write data.max_prompt_length, of language models."),
    ("runner.seq_length", "write data.max_prompt_length and algorithm.sampling_params.max_new_tokens."),
    ("runner.weight_sync_interval", "weights are synchronised at every step: remove it."),
    ("reward.use_reward_model", "rewards are those listed in reward.rewards: remove it."),
    ("reward.model*", "write reward.rewards.<name>.model_path, with reward_type: model."),
    ("reward.reward_type", "write reward.rewards.<name>.reward_type."),
    ("reward.reward_scale", "write reward.rewards.<name>.weight."),
    ("reward.tokenizer*", "it belongs to language models: remove it."),
)

_LR = "write actor.optim.lr."
_ENTROPY = "write algorithm.entropy_bonus; the temperature of SAC is algorithm.entropy_tuning.initial_alpha."
_CLIP = "write algorithm.clip_ratio_low and algorithm.clip_ratio_high."
_KL = "write algorithm.kl_beta."
_UPDATES = "write algorithm.update_epoch, the passes over a rollout."
_HORIZON = "write env.train.max_steps_per_rollout_epoch."
_NUM_ENVS = "write env.train.total_num_envs."
_STEPS = (
    "write runner.max_epochs, a number of steps; each takes env.train.total_num_envs * "
    "env.train.max_steps_per_rollout_epoch * env.train.rollout_epoch environment steps."
)
_BATCH = "write actor.global_batch_size, samples of an optimizer step, and actor.micro_batch_size, samples of one pass."

_GROUP = "write algorithm.group_size."
_NEW_TOKENS = "write algorithm.sampling_params.max_new_tokens."
_PROMPTS = "write data.rollout_batch_size, the prompts of a step."
_MODEL = "write actor.model.model_path."
_HIDDEN = "write actor.model.hidden_dims."
_GRADIENT = "write actor.optim.clip_grad."
_EVERY = "write runner.val_check_interval, a number of steps."
_SAVE = "write runner.save_interval, a number of steps."
_FOLDER = "write runner.logger.log_path."
_BACKENDS = "write runner.logger.logger_backends, a list."

_NAMES_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("algo", "algo_name"), _ALGORITHM),
    # Stable-Baselines3 and CleanRL
    "learning_rate": _LR,
    "ent_coef": _ENTROPY,
    "entropy_coef": _ENTROPY,
    "entropy_coeff": _ENTROPY,
    "vf_coef": "write algorithm.value_loss_coef.",
    "total_timesteps": _STEPS,
    "n_steps": _HORIZON,
    "num_steps": _HORIZON,
    "n_epochs": _UPDATES,
    "update_epochs": _UPDATES,
    "n_envs": _NUM_ENVS,
    "num_envs": _NUM_ENVS,
    "clip_range": _CLIP,
    "clip_range_vf": "write algorithm.value_clip.",
    "clip_coef": _CLIP,
    "clip_vloss": "write algorithm.value_clip, a number or null.",
    "max_grad_norm": _GRADIENT,
    "batch_size": _BATCH,
    "minibatch_size": _BATCH,
    "num_minibatches": _BATCH,
    "anneal_lr": "write actor.optim.lr_scheduler=linear and actor.optim.total_training_steps.",
    "normalize_advantage": "write algorithm.normalize_advantages.",
    "norm_adv": "write algorithm.normalize_advantages.",
    "buffer_size": "write algorithm.replay_buffer.capacity.",
    "learning_starts": "write algorithm.replay_buffer.min_buffer_size.",
    "gradient_steps": _UPDATES,
    "policy_delay": "write algorithm.critic_actor_ratio.",
    "policy_frequency": "write algorithm.critic_actor_ratio.",
    "net_arch": _HIDDEN,
    "policy_kwargs": _HIDDEN,
    "env_id": "write env.train.init_params.id and env.eval.init_params.id.",
    # TRL
    "num_generations": _GROUP,
    "max_completion_length": _NEW_TOKENS,
    "num_train_epochs": "write runner.max_epochs.",
    "num_iterations": _UPDATES,
    "num_ppo_epochs": _UPDATES,
    "per_device_train_batch_size": _BATCH,
    "gradient_accumulation_steps": _BATCH,
    "epsilon": _CLIP,
    "epsilon_high": "write algorithm.clip_ratio_high.",
    "model_name_or_path": _MODEL,
    "output_dir": _FOLDER,
    "report_to": _BACKENDS,
    "save_steps": _SAVE,
    "eval_steps": _EVERY,
    # verl
    "kl_coef": _KL,
    "kl_loss_coef": _KL,
    "use_kl_loss": "write algorithm.kl_beta, 0 for none.",
    "adv_estimator": "write algorithm.adv_type.",
    "lam": "write algorithm.gae_lambda.",
    "clip_ratio": _CLIP,
    "grad_clip": _GRADIENT,
    "ppo_epochs": _UPDATES,
    "ppo_mini_batch_size": _BATCH,
    "ppo_micro_batch_size_per_gpu": _BATCH,
    "train_batch_size": _PROMPTS,
    "max_response_length": _NEW_TOKENS,
    "response_length": _NEW_TOKENS,
    "train_files": "write data.train_data_paths, a list.",
    "val_files": "write data.val_data_paths, a list.",
    "total_epochs": "write runner.max_epochs.",
    "save_freq": _SAVE,
    "test_freq": _EVERY,
    "n_gpus_per_node": "write cluster.component_placement.",
    "nnodes": "write cluster.num_nodes.",
    "default_local_dir": _FOLDER,
    "tensor_model_parallel_size": "write rollout.tensor_parallel_size.",
    "actor_rollout_ref": (
        "of verl's keys below it, model.path is actor.model.model_path, actor.optim.lr is actor.optim.lr, "
        "actor.ppo_mini_batch_size is actor.global_batch_size, actor.ppo_epochs is algorithm.update_epoch, "
        "actor.kl_loss_coef is algorithm.kl_beta, rollout.n is algorithm.group_size, rollout.name is "
        "rollout.rollout_backend and rollout.temperature is algorithm.sampling_params.temperature."
    ),
    "trainer": (
        "of verl's keys below it, total_epochs is runner.max_epochs, save_freq is runner.save_interval, test_freq is "
        "runner.val_check_interval, nnodes is cluster.num_nodes, logger is runner.logger.logger_backends and "
        "experiment_name is runner.logger.experiment_name."
    ),
}
"""Names that other frameworks give to what has another one here, wherever they are written."""

_VALUES_ELSEWHERE: dict[tuple[str, str], str] = {
    ("loss_type", "ppo"): "PPO is loss_type=actor_critic with adv_type=gae.",
    ("loss_type", "grpo"): "GRPO is loss_type=actor with adv_type=grpo.",
    ("loss_type", "dapo"): "DAPO is loss_type=actor with adv_type=grpo, and clip_ratio_high above clip_ratio_low.",
    ("loss_type", "reinforce"): "REINFORCE is loss_type=actor with adv_type=raw.",
    **{
        ("loss_type", name): f"It is loss_type={registered} with adv_type={registered}."
        for name, registered in (
            ("sac", "embodied_sac"),
            ("td3", "embodied_td3"),
            ("crossq", "embodied_crossq"),
            ("bc", "embodied_bc"),
            ("dagger", "embodied_dagger"),
            ("iql", "offline_iql"),
        )
    },
    ("loss_type", "nft"): "It is loss_type=embodied_nft.",
    ("adv_type", "ppo"): "PPO is adv_type=gae with loss_type=actor_critic.",
    ("adv_type", "dapo"): "DAPO is adv_type=grpo with loss_type=actor.",
    ("adv_type", "reinforce"): "REINFORCE is adv_type=raw with loss_type=actor.",
    ("adv_type", "reinforce++"): "REINFORCE++ is adv_type=reinpp with loss_type=actor.",
    ("adv_type", "sac"): "It is adv_type=embodied_sac with loss_type=embodied_sac.",
}
"""What other frameworks call choices of a discriminator, in lower case."""


def explain_foreign(path: str) -> str | None:
    """Return what to do about a key of other frameworks, or None when it is not one that is known of."""
    for pattern, text in _EXPLANATIONS:
        if fnmatch.fnmatchcase(path, pattern):
            return text
    return _NAMES_ELSEWHERE.get(path.rpartition(".")[2])


def explain_foreign_value(discriminator: str, value: str) -> str | None:
    """Return what a choice of other frameworks is called here, or None when it is not one that is known of."""
    return _VALUES_ELSEWHERE.get((discriminator, value.lower()))
