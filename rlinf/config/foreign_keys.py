"""Keys that recipes of this field often carry and that mean nothing here, each with what to do instead.

Patterns are those of ``fnmatch`` on the full dotted path; the first that matches explains.
"""

from __future__ import annotations

import fnmatch

_EXPLANATIONS: tuple[tuple[str, str], ...] = (
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
    ("actor.fsdp_config.*prefetch", "fsdp2 prefetches by itself: remove it."),
    ("actor.fsdp_config.limit_all_gathers", "fsdp2 limits them by itself: remove it."),
    ("actor.fsdp_config.reshard_after_forward", "write actor.fsdp_config.sharding_strategy."),
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


def explain_foreign(path: str) -> str | None:
    """Return what to do about a key of other frameworks, or None when it is not one that is known of."""
    for pattern, text in _EXPLANATIONS:
        if fnmatch.fnmatchcase(path, pattern):
            return text
    return None
