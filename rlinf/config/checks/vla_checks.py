"""Rules about vision-language-action policies."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.algorithm import (
    ImitationLossConfig,
    NFTLossConfig,
    RegularizedLossConfig,
    RLTLossConfig,
    SACLossConfig,
    SupervisedLossConfig,
)
from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.config.schema.intervention import InterventionConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.schema.vla import (
    CENTER_AREA,
    FlowVLAConfig,
    Gr00tConfig,
    OpenVLAConfig,
    OpenVLAOFTConfig,
    PiConfig,
    VLAConfig,
)

_LORA_KEYS = ("lora_rank", "lora_alpha", "lora_target_modules", "lora_whole_modules")
_AREA_MARGIN = 0.01
_VALUE_KEYS = ("value_hidden_dims", "value_detach")
_STEP_KEYS = ("noise_steps", "ignore_last", "chain_reduction")
_FLOW_KEYS = ("freeze", "noise_method", "noise_level", "noise_range", *_STEP_KEYS, "start_std", "eval_start")
"""What matters only where the flow itself is trained or explores."""


def check_vla(check: Check[EmbodiedConfig]) -> None:
    """Keys of these models fit together."""
    model = check.cfg.actor.model
    if not isinstance(model, VLAConfig):
        return
    path, reason = "actor.model", f"with model_type={model.model_type}"
    if not isinstance(model, FlowVLAConfig):
        if model.add_q_head:
            check.problem(f"{path}.add_q_head", f"received true; {model.model_type} has no Q heads. Set it to false.")
        check.unused(model, ("num_q_heads", "q_head_type"), path, reason)
    if not model.image_keys or len(set(model.image_keys)) < len(model.image_keys):
        check.problem(
            f"{path}.image_keys",
            f"received {model.image_keys}; allowed: one or more different keys. Set it to [main_images].",
        )
    if not model.is_lora:
        check.unused(model, _LORA_KEYS, path, "without actor.model.is_lora")
    elif model.add_value_head and "value_head" not in model.lora_whole_modules:
        check.problem(
            f"{path}.lora_whole_modules",
            f"received {model.lora_whole_modules}; the value head is new and has to be trained. Add value_head, or set "
            f"{path}.add_value_head=false.",
        )
    if not model.add_value_head:
        keys = (*_VALUE_KEYS, *(("value_input",) if isinstance(model, FlowVLAConfig) else ()))
        check.unused(model, keys, path, "without actor.model.add_value_head")


def check_openvla(check: Check[EmbodiedConfig]) -> None:
    """OpenVLA chooses one action; the parts of OpenVLA-OFT have their keys."""
    model = check.cfg.actor.model
    if not isinstance(model, OpenVLAConfig):
        return
    path, loss = "actor.model", check.cfg.algorithm.loss
    has_numbers = isinstance(model, OpenVLAOFTConfig) and model.head == "l1"
    if isinstance(loss, ImitationLossConfig) and loss.imitation_loss == "mse" and not has_numbers:
        check.problem(
            "algorithm.imitation_loss", "received mse; action tokens have no distance between actions. Set it to nll."
        )
    if isinstance(loss, SupervisedLossConfig):
        check.unused(model, ("temperature", "top_k"), path, f"by loss_type={check.cfg.algorithm.loss_type}")
    elif isinstance(loss, ImitationLossConfig) and loss.imitation_loss == "nll" and model.top_k is not None:
        check.problem(
            f"{path}.top_k",
            f"received {model.top_k}; imitation_loss=nll learns tokens that the policy would not have sampled. Set it "
            "to null, or algorithm.imitation_loss to model.",
        )
    if not isinstance(model, OpenVLAOFTConfig):
        if model.num_action_chunks != 1:
            check.problem(
                f"{path}.num_action_chunks",
                f"received {model.num_action_chunks}; openvla chooses one action at a time. Set it to 1, or "
                "model_type to openvla_oft.",
            )
        if model.image_keys[1:]:
            check.problem(
                f"{path}.image_keys", f"received {model.image_keys}; openvla sees one image. Name one camera."
            )
        check.unused(model, ("state_dim",), path, "with model_type=openvla")
        return
    if not model.use_proprio:
        check.unused(model, ("state_dim",), path, "without actor.model.use_proprio")
    if model.head == "l1":
        check.unused(model, ("temperature", "top_k"), path, "with actor.model.head=l1")
    else:
        check.unused(model, ("l1_std",), path, "with actor.model.head=tokens")


def check_flow_vla(check: Check[EmbodiedConfig]) -> None:
    """A flow executes a part of what it predicts, reads states, and explores by noise that the loss accounts for."""
    model, loss = check.cfg.actor.model, check.cfg.algorithm.loss
    if not isinstance(model, FlowVLAConfig):
        return
    path = "actor.model"
    if model.horizon is not None and model.num_action_chunks > model.horizon:
        check.problem(
            f"{path}.num_action_chunks",
            f"received {model.num_action_chunks}; the model predicts {path}.horizon {model.horizon} actions. Set it to "
            f"{model.horizon} or less.",
        )
    if 0 in model.delta_actions or sum(map(abs, model.delta_actions)) > model.action_dim:
        check.problem(
            f"{path}.delta_actions",
            f"received {model.delta_actions}; runs of actor.model.action_dim {model.action_dim} numbers together, or "
            "fewer, none of them 0. Correct it, as [6, -1] is six numbers relative to the state and one that is not.",
        )
    if isinstance(model, PiConfig) and model.variant == "pi0":
        check.unused(model, ("discrete_state_input",), path, "with actor.model.variant=pi0")
    if model.add_q_head:
        return
    check.unused(model, ("noise_policy", "refine_actions", "action_policy"), path, "without actor.model.add_q_head")
    _check_step_noise(check, model)
    if model.noise_method == "flow_ode":
        if loss.needs_logprobs:
            check.problem(
                f"{path}.noise_method",
                f"received flow_ode; loss_type={check.cfg.algorithm.loss_type} needs log-probabilities, which only "
                "noise in the steps gives. Set it to flow_sde.",
            )
    elif isinstance(loss, NFTLossConfig) and model.noise_steps == "one":
        check.problem(
            f"{path}.noise_steps",
            f"received one; loss_type={check.cfg.algorithm.loss_type} needs both ends of the chain. Set it to all.",
        )
    elif model.noise_method == "flow_sde" and isinstance(loss, RegularizedLossConfig) and loss.entropy_bonus > 0:
        check.problem(
            "algorithm.entropy_bonus",
            f"received {loss.entropy_bonus}; the entropy of noise_method=flow_sde is constant. Set it to 0, or "
            f"{path}.noise_method=flow_noise.",
        )


def _check_step_noise(check: Check[EmbodiedConfig], model: FlowVLAConfig) -> None:
    path = "actor.model"
    if model.noise_method != "flow_sde":
        check.unused(model, ("noise_level",), path, f"by noise_method={model.noise_method}")
    if model.noise_method != "flow_noise":
        check.unused(model, ("noise_range",), path, f"by noise_method={model.noise_method}")
    elif len(model.noise_range) != 2 or model.noise_range[0] >= model.noise_range[1]:
        check.problem(
            f"{path}.noise_range",
            f"received {model.noise_range}; allowed: the least deviation and a larger one. Set it to [0.08, 0.16].",
        )
    if not model.has_step_noise:
        check.unused(model, _STEP_KEYS, path, "by noise_method=flow_ode")
    elif model.noise_steps == "all":
        check.unused(model, ("ignore_last",), path, "with actor.model.noise_steps=all")
    else:
        check.unused(model, ("chain_reduction",), path, "with actor.model.noise_steps=one")
        if model.ignore_last and model.num_steps == 1:
            check.problem(
                f"{path}.ignore_last", "received true; with actor.model.num_steps=1 no step is left. Set it to false."
            )


def check_guidance(check: Check[EmbodiedConfig]) -> None:
    """What is requested has been learned, and guidance that compares leaves no log-probabilities or values."""
    cfg = check.cfg
    model, data, path = cfg.actor.model, cfg.data, "actor.model.guidance"
    has_labels = isinstance(data, LeRobotDataConfig) and data.advantage_tag is not None
    if has_labels and not (isinstance(model, FlowVLAConfig) and isinstance(cfg.algorithm.loss, SupervisedLossConfig)):
        check.problem(
            "data.advantage_tag",
            "is not used: labels are learned by loss_type=embodied_sft and a model with actor.model.guidance (openpi, "
            "smolvla, gr00t). Remove it, or choose these.",
        )
    if not isinstance(model, FlowVLAConfig):
        return
    guidance = model.guidance
    if not has_labels and data is not None and cfg.algorithm.loss.learns_offline:
        check.unused(guidance, ("unconditional_prob", "positive_only_conditional"), path, "without data.advantage_tag")
    if guidance.type == "negative" and guidance.positive_only_conditional:
        check.problem(
            f"{path}.type",
            f"received negative; with {path}.positive_only_conditional the model has never seen that word. Set it to "
            "positive, or that to false.",
        )
    if guidance.type == "none":
        check.unused(guidance, ("scale",), path, f"with {path}.type=none")
        return
    if isinstance(cfg.algorithm.loss, ImitationLossConfig):
        check.problem(
            f"{path}.type",
            f"received {guidance.type}; loss_type={cfg.algorithm.loss_type} learns from the task alone. Set it "
            "to none.",
        )
    learned = [name for name in ("add_value_head", "add_q_head") if getattr(model, name)]
    if guidance.scale != 1.0 and (learned or not cfg.algorithm.loss.learns_offline):
        check.problem(
            f"{path}.scale",
            f"received {guidance.scale:g}; actions are then those of no single prompt, which loss_type="
            f"{cfg.algorithm.loss_type} would have to learn from. Set it to 1.",
        )


def check_steering(check: Check[EmbodiedConfig]) -> None:
    """A policy over noise is learned by SAC from its own noise, while the flow keeps its weights."""
    cfg = check.cfg
    model, loss = cfg.actor.model, cfg.algorithm.loss
    path = "actor.model"
    if isinstance(loss, RLTLossConfig) and not isinstance(model, FlowVLAConfig):
        check.problem(
            f"{path}.model_type",
            f"received {model.model_type}, which proposes no actions; loss_type={cfg.algorithm.loss_type} holds a "
            "policy near those of a flow. Set it to openpi, or algorithm.loss_type to embodied_td3.",
        )
    if not isinstance(model, FlowVLAConfig) or not model.add_q_head:
        return
    unused = (*_FLOW_KEYS, "add_value_head", "is_lora")
    check.unused(model, unused, path, "with actor.model.add_q_head, which leaves the flow as it is")
    if model.refine_actions:
        check.unused(model, ("noise_policy",), path, "with actor.model.refine_actions")
        if not isinstance(loss, RLTLossConfig):
            check.problem(
                "algorithm.loss_type",
                f"received {cfg.algorithm.loss_type}; a policy next to a flow is held near it. Set it to rlt_td3, or "
                f"{path}.refine_actions=false.",
            )
        return
    check.unused(model, ("action_policy",), path, "without actor.model.refine_actions")
    if not isinstance(loss, SACLossConfig):
        check.problem(
            "algorithm.loss_type",
            f"received {cfg.algorithm.loss_type}; the noise of a flow is chosen by a Gaussian, which soft actor-critic "
            "trains. Set it to embodied_sac or embodied_crossq.",
        )
    keys = model.noise_policy
    if not keys.image_keys or len(set(keys.image_keys)) < len(keys.image_keys):
        check.problem(
            f"{path}.noise_policy.image_keys",
            f"received {keys.image_keys}; allowed: one or more different keys. Set it to [main_images].",
        )
    if not -5 < keys.initial_log_std < 2:
        check.problem(
            f"{path}.noise_policy.initial_log_std",
            f"received {keys.initial_log_std}; a squashed Gaussian keeps it in (-5, 2). Set it to 0.0.",
        )
    if any(isinstance(wrapper, InterventionConfig) for wrapper in cfg.env.train.wrappers):
        check.problem(
            "env.train.wrappers",
            "holds 'intervention'; the noise that leads to an operator's actions is not known. Remove the wrapper, or "
            "set actor.model.add_q_head=false.",
        )


def check_token(check: Check[EmbodiedConfig]) -> None:
    """A token is learned by fine-tuning, or seen by a policy that refines actions."""
    cfg = check.cfg
    model, path = cfg.actor.model, "actor.model"
    if not isinstance(model, FlowVLAConfig):
        return
    if not model.use_rlt:
        check.unused(model, ("rlt",), path, "without actor.model.use_rlt")
        return
    keys, learns = model.rlt, isinstance(cfg.algorithm.loss, SupervisedLossConfig)
    if not learns and not (model.add_q_head and model.refine_actions):
        check.problem(
            f"{path}.use_rlt",
            f"received true; a token is learned by loss_type=embodied_sft and seen by policies with {path}.add_q_head "
            f"and refine_actions, while loss_type={cfg.algorithm.loss_type} has no use for it. Set it to false.",
        )
    if not learns:
        check.unused(keys, ("vla_loss_weight",), f"{path}.rlt", f"by loss_type={cfg.algorithm.loss_type}")
    elif not keys.vla_loss_weight:
        reason = f"with {path}.rlt.vla_loss_weight=0, which leaves the flow as it is"
        check.unused(model, ("freeze", "is_lora"), path, reason)
        if isinstance(cfg.data, LeRobotDataConfig) and cfg.data.advantage_tag is not None:
            check.problem("data.advantage_tag", f"is not used {reason}. Remove it.")
    elif model.is_lora:
        check.problem(
            f"{path}.is_lora", f"received true; with {path}.use_rlt all weights are trained, or none. Set it to false."
        )
    if keys.embed_dim is not None and keys.embed_dim % keys.num_heads:
        check.problem(
            f"{path}.rlt.embed_dim",
            f"received {keys.embed_dim}; must be a multiple of {path}.rlt.num_heads {keys.num_heads}. Set it to "
            f"{-(-keys.embed_dim // keys.num_heads) * keys.num_heads}.",
        )


def check_real_time(check: Check[EmbodiedConfig]) -> None:
    """What is planned is long enough to act on while the next chunk is computed, and every episode begins at rest."""
    cfg, path = check.cfg, "actor.model.real_time_chunking"
    model, evaluation = cfg.actor.model, cfg.env.eval
    if not isinstance(model, FlowVLAConfig):
        return
    keys = model.real_time_chunking
    if not keys.enabled:
        check.unused(
            keys,
            ("inference_delay", "max_guidance_weight", "prefix_attention_schedule"),
            path,
            f"without {path}.enabled",
        )
        return
    size, delay = model.num_action_chunks, keys.inference_delay
    planned = size + delay if model.horizon is None else model.horizon
    if delay >= size or size + delay > planned:
        check.problem(
            f"{path}.inference_delay",
            f"received {delay}; a chunk executes actor.model.num_action_chunks {size} of actor.model.horizon "
            f"{planned} planned actions. Set it to {max(min(size - 1, planned - size), 0)} or less.",
        )
    if not keys.max_guidance_weight:
        check.unused(keys, ("prefix_attention_schedule",), path, f"with {path}.max_guidance_weight=0")
    if model.add_q_head:
        check.problem(
            f"{path}.enabled", "received true; with actor.model.add_q_head another policy acts. Set it to false."
        )
    if evaluation is None:
        check.problem(
            f"{path}.enabled", "received true; only evaluation acts so, and there is no env.eval. Set it to false."
        )
        return
    if evaluation.auto_reset:
        check.problem(
            "env.eval.auto_reset",
            f"received true; with {path}.enabled a new episode would begin with actions that were planned for the one "
            "before. Set it to false.",
        )
    if evaluation.data_collection.enabled:
        check.problem(
            f"{path}.enabled",
            "received true; env.eval.data_collection records chunks that are executed as they were chosen. Set it to "
            "false.",
        )


def check_crops(check: Check[EmbodiedConfig]) -> None:
    """Evaluation shows as much of an image as training does: its middle, where training shows any part of that size."""
    model, data = check.cfg.actor.model, check.cfg.data
    if not isinstance(data, LeRobotDataConfig) or data.augmentation.crop_area == 1.0:
        return
    area, key = data.augmentation.crop_area, "data.augmentation.crop_area"
    if isinstance(model, OpenVLAConfig) and not model.center_crop:
        check.problem(
            "actor.model.center_crop",
            f"received false; with {key} {area:g} evaluation would show more than training. Set it to true.",
        )
    elif isinstance(model, OpenVLAConfig) and abs(area - CENTER_AREA) > _AREA_MARGIN:
        check.problem(key, f"received {area:g}; actor.model.center_crop shows {CENTER_AREA:g}. Set it to that.")
    elif isinstance(model, Gr00tConfig) and abs(area - model.crop_scale**2) > _AREA_MARGIN:
        shown = model.crop_scale**2
        check.problem(
            key, f"received {area:g}; actor.model.crop_scale {model.crop_scale:g} shows {shown:.6g}. Set it to that."
        )


def check_compiled(check: Check[EmbodiedConfig]) -> None:
    """Layers that are compiled are there, and graphs find the weights where they were."""
    cfg, rollout = check.cfg, check.cfg.rollout
    if not isinstance(cfg.actor.model, VLAConfig):
        keys = ("enable_torch_compile", "enable_cuda_graph")
        check.unused(rollout, keys, "rollout", f"with model_type={cfg.actor.model.model_type}, which is small")
    elif rollout.enable_cuda_graph and rollout.enable_offload:
        check.problem(
            "rollout.enable_cuda_graph",
            "received true; with rollout.enable_offload weights leave the GPU, where graphs expect them. Set one of "
            "them to false.",
        )


RULES = (
    check_vla,
    check_openvla,
    check_flow_vla,
    check_guidance,
    check_steering,
    check_token,
    check_real_time,
    check_crops,
    check_compiled,
)
