"""Language models: who can use them, and keys of theirs that have no effect."""

from __future__ import annotations

from urllib.parse import urlsplit

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.agent import MultiTurnConfig, ProgramConfig, SessionsConfig, ToolsConfig
from rlinf.config.schema.algorithm import TextAlgorithmConfig
from rlinf.config.schema.generation import ServerGenerationConfig, VLLMGenerationConfig
from rlinf.config.schema.model import CausalLMConfig, VisionLMConfig
from rlinf.config.schema.root import LanguageConfig, ReasoningConfig, RLinfConfig


def check_language_model(check: Check[RLinfConfig]) -> None:
    """Environments need a policy that acts, and adapters are there or not."""
    model, task_type = check.cfg.actor.model, check.cfg.runner.task_type
    if not isinstance(model, CausalLMConfig):
        return
    if task_type in {"embodied", "offline"}:
        check.problem(
            "actor.model.model_type",
            f"received {model.model_type}, which writes text; runner.task_type={task_type} needs a policy that acts. "
            "Set actor.model.model_type=mlp_policy, say.",
        )
    if not model.is_lora:
        names = ("lora_rank", "lora_alpha", "lora_path", "lora_target_modules")
        check.unused(model, names, "actor.model", "without actor.model.is_lora")


def check_vision(check: Check[RLinfConfig]) -> None:
    """Images reach engine and trainer, or the recipe has none."""
    cfg = check.cfg
    keys = cfg.data.image_keys if isinstance(cfg, LanguageConfig) else []
    path, model = "actor.model.model_type", cfg.actor.model
    if not isinstance(model, VisionLMConfig):
        if keys:
            check.problem(
                "data.image_keys",
                f"received {keys}; {path}={model.model_type} reads no images. Set {path}=vision_lm, or remove the key.",
            )
        return
    if not isinstance(cfg, LanguageConfig):
        # ``check_model`` refuses it.
        return
    needed = _needed_for_images(cfg, model)
    for key, (received, allowed, reason) in needed.items():
        if received != allowed:
            check.problem(
                key, f"received {received}; not possible with {path}={model.model_type}: {reason}. Set it to {allowed}."
            )


def _needed_for_images(cfg: LanguageConfig, model: VisionLMConfig) -> dict[str, tuple[object, object, str]]:
    """Return by their keys what a recipe has, what a model that reads images needs, and why."""
    attention = "sdpa" if model.attn_implementation == "auto" else model.attn_implementation
    context = cfg.actor.fsdp_config.context_parallel_size
    needed: dict[str, tuple[object, object, str]] = {
        "actor.training_backend": (cfg.actor.training_backend, "fsdp", "it has no vision tower"),
        "actor.fsdp_config.context_parallel_size": (context, 1, "the tokens of an image stay on one rank"),
        "actor.model.is_lora": (model.is_lora, False, "adapters are tested on language models alone"),
        "actor.model.attn_implementation": (attention, "sdpa", "positions of images and sharing need it"),
    }
    if cfg.rollout is not None:
        backend = cfg.rollout.rollout_backend
        needed["rollout.rollout_backend"] = (backend, "hf", "other engines are given no images")
    if isinstance(cfg, ReasoningConfig):
        with_chats = (MultiTurnConfig, ToolsConfig, ProgramConfig, SessionsConfig)
        workflow = cfg.agent.workflow if isinstance(cfg.agent, with_chats) else "rlvr"
        uses_critic = cfg.critic.use_critic_model
        needed["critic.use_critic_model"] = (uses_critic, False, "a critic of its own reads no images")
        needed["agent.workflow"] = (workflow, "rlvr", "chats carry no images")
    return needed


def check_importance_correction(check: Check[RLinfConfig]) -> None:
    """A correction compares two probabilities of a token, and leaves alone what is equal."""
    algorithm = check.cfg.algorithm
    if not isinstance(algorithm, TextAlgorithmConfig):
        return
    correction, path = algorithm.importance_correction, "algorithm.importance_correction"
    for needs_it, key in (
        (correction is not None, path),
        (algorithm.loss.needs_proximal_logprobs, f"algorithm.loss_type={algorithm.loss_type}"),
    ):
        if needs_it and not algorithm.recompute_logprobs:
            check.problem(
                "algorithm.recompute_logprobs",
                f"received False; {key} needs the trainer's log-probabilities. Set algorithm.recompute_logprobs=true.",
            )
    if correction is None:
        return
    if algorithm.loss.needs_proximal_logprobs:
        check.problem(
            path, f"loss_type={algorithm.loss_type} weighs samples by itself (behave_weight_threshold). Remove it."
        )
    if not correction.lower_bound <= 1 <= correction.upper_bound:
        check.problem(
            path,
            f"received bounds {correction.lower_bound} and {correction.upper_bound}; equal probabilities have weight "
            "1, which must lie between them. Set lower_bound=0.5 and upper_bound=2.0, say.",
        )


def check_old_logprobs(check: Check[RLinfConfig]) -> None:
    """Log-probabilities of the start of the update are needed no earlier than the update has them."""
    cfg = check.cfg
    if not isinstance(cfg, ReasoningConfig) or not cfg.algorithm.old_logprobs_in_update:
        return
    algorithm, actor = cfg.algorithm, cfg.actor
    obstacles = {
        "algorithm.recompute_logprobs=false takes the engine's": not algorithm.recompute_logprobs,
        "algorithm.kl_in_reward needs them before the advantages": algorithm.kl_in_reward is not None,
        f"algorithm.adv_type={algorithm.adv_type} needs them before the advantages": (
            algorithm.advantage.needs_reference
        ),
        f"algorithm.update_epoch={algorithm.update_epoch} trains on the first minibatch again": (
            algorithm.update_epoch > 1
        ),
        f"algorithm.loss_type={algorithm.loss_type} also compares with the policy that answered": (
            algorithm.loss.needs_proximal_logprobs
        ),
        "actor.model.add_value_head=true computes values in the same pass": actor.model.add_value_head,
        "the inference group computes them": cfg.inference is not None,
        "actor.routing_replay=recompute needs the routes of that pass": actor.routing_replay == "recompute",
        "actor.moe_aux_loss_coeff needs the routes of that pass": (
            actor.moe_aux_loss_coeff > 0 and actor.routing_replay != "rollout"
        ),
    }
    for reason in (reason for reason, is_there in obstacles.items() if is_there):
        check.problem("algorithm.old_logprobs_in_update", f"received true; {reason}. Remove the key.")


def check_published_precision(check: Check[RLinfConfig]) -> None:
    """Weights are not rounded on their way to who needs them as they are."""
    cfg = check.cfg
    chosen, reason = cfg.weight_syncer.bucket.bucket_dtype, cfg.needs_master_weights
    if chosen not in {None, "fp32"} and reason is not None:
        check.problem(
            "weight_syncer.bucket.bucket_dtype",
            f"received {chosen}; with {reason} a receiver needs the weights in fp32. Remove the key.",
        )


def check_bucket_device(check: Check[RLinfConfig]) -> None:
    """Patches are made and applied on the host."""
    syncer = check.cfg.weight_syncer
    if syncer.type == "patch" and syncer.bucket.bucket_device != "cpu":
        check.problem(
            "weight_syncer.bucket.bucket_device",
            f"received {syncer.bucket.bucket_device}; with weight_syncer.type=patch both ends keep buckets in host "
            "memory. Set bucket_device=cpu.",
        )


def check_experts(check: Check[RLinfConfig]) -> None:
    """Routes are replayed and balanced where the engine returns them, or a pass before the update records them."""
    cfg = check.cfg
    if not isinstance(cfg, LanguageConfig):
        return
    keys = {
        "routing_replay": cfg.actor.routing_replay != "none",
        "moe_aux_loss_coeff": cfg.actor.moe_aux_loss_coeff > 0,
    }
    for key in (f"actor.{name}" for name, is_set in keys.items() if is_set):
        if not isinstance(cfg, ReasoningConfig):
            check.problem(key, f"not possible with runner.task_type={cfg.runner.task_type}: no pass records routes.")
        elif cfg.actor.routing_replay == "rollout":
            if key == "actor.routing_replay":
                _check_engine_routes(check, cfg)
        elif not cfg.algorithm.recompute_logprobs:
            check.problem(key, "needs the pass that records routes. Set algorithm.recompute_logprobs=true.")
        elif cfg.inference is not None:
            check.problem(
                key, "not possible with an inference group: the actor's pass records routes. Remove inference."
            )


def _check_engine_routes(check: Check[RLinfConfig], cfg: ReasoningConfig) -> None:
    """The engine returns routes, under the recipe's sampling, too."""
    key, obstacle, sampling = "actor.routing_replay", cfg.rollout.routes_obstacle, cfg.algorithm.sampling_params
    if obstacle:
        check.problem(key, f"received rollout; {obstacle}, or another value of the key.")
    filters = sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0 or sampling.min_new_tokens > 0
    if filters and isinstance(cfg.rollout, VLLMGenerationConfig):
        check.problem(
            key,
            "received rollout; vLLM then samples without algorithm.sampling_params.{top_k,top_p,min_p,min_new_tokens}. "
            "Leave them at their defaults, or set rollout.rollout_backend=hf.",
        )


def check_context(check: Check[RLinfConfig]) -> None:
    """Ranks that share tokens under FSDP2 are as many as there are, and their model is a language model."""
    cfg, size, path = (
        check.cfg,
        check.cfg.actor.fsdp_config.context_parallel_size,
        "actor.fsdp_config.context_parallel_size",
    )
    if size == 1:
        return
    if not isinstance(cfg, LanguageConfig):
        check.problem(path, f"received {size}; only packs of language models are split over ranks. Set it to 1.")
        return
    if check.world.actor is not None and check.world.actor % size:
        check.problem(path, f"received {size}; must divide the {check.world.actor} actor rank(s).")
    if isinstance(cfg, ReasoningConfig) and cfg.inference is not None:
        check.problem(path, f"received {size}; not possible with an inference group. Remove the section inference.")


def check_engine_servers(check: Check[RLinfConfig]) -> None:
    """One rank reaches all engine servers, wherever they are."""
    rollout = check.cfg.rollout if isinstance(check.cfg, LanguageConfig) else None
    if not isinstance(rollout, ServerGenerationConfig):
        return
    path, urls = "rollout.server.base_urls", rollout.server.base_urls
    if not urls:
        check.problem(path, "received none; rollout_backend=server needs at least one, such as [http://node1:8000].")
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            check.problem(path, f"received '{url}'; must be the address of an `rlinf serve`, http://HOST:PORT.")
    if len(set(urls)) < len(urls):
        check.problem(path, "names a server twice; each gets its weights once. Remove one.")
    if check.world.rollout not in {None, 1}:
        check.problem(
            "cluster.component_placement.rollout",
            f"received {check.world.rollout} processes; with rollout_backend=server one process reaches all servers. "
            "Place rollout on one slot.",
        )
    if rollout.enable_offload:
        check.problem(
            "rollout.enable_offload",
            "received True; servers do not share the actor's devices, and may serve other runs. Remove the key.",
        )


RULES = (
    check_language_model,
    check_vision,
    check_importance_correction,
    check_old_logprobs,
    check_published_precision,
    check_bucket_device,
    check_experts,
    check_context,
    check_engine_servers,
)
