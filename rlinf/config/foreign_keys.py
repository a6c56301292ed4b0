"""Keys that recipes of this field often carry and that mean nothing here, each with what to do instead.

Those of the published system are in the table of ``rlinf.config.published_keys``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf.config.published_keys import explain_published

_ALGORITHM = "write algorithm.adv_type and algorithm.loss_type; PPO is gae with actor_critic, GRPO is grpo with actor."

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

_PATHS_ELSEWHERE = {"algorithm.name": _ALGORITHM}
"""Names that mean something else at other places."""

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
    **{
        ("env_type", name): f"It is env_type=guest with adapter={name}, an adapter that is unproven."
        for name in ("robocasa", "robotwin", "isaaclab", "behavior", "habitat")
    },
    ("model_type", "cma"): (
        "The cross-modal attention policy of VLN-CE is published as a name alone, and there is no network for "
        "model_type=cma; its simulator, Habitat, is env_type=guest with adapter=habitat, an adapter that is unproven."
    ),
}
"""What other frameworks, and published recipes, call choices of a discriminator, in lower case."""


def explain_foreign(path: str, recipe: Mapping[str, Any] | None = None) -> str | None:
    """Return what to do about a key of other frameworks, or None when it is not one that is known of.

    Args:
        path: The key.
        recipe: The recipe that has it, where there is one.
    """
    return (
        explain_published(path, recipe) or _PATHS_ELSEWHERE.get(path) or _NAMES_ELSEWHERE.get(path.rpartition(".")[2])
    )


def explain_foreign_value(discriminator: str, value: str) -> str | None:
    """Return what a choice of other frameworks is called here, or None when it is not one that is known of."""
    return _VALUES_ELSEWHERE.get((discriminator, value.lower()))
