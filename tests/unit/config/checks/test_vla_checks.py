"""Keys of vision-language-action policies that do not fit together are refused, with what to set instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlinf.config import load_recipe
from rlinf.config.validate import validate_cfg
from rlinf.errors import ConfigError

MODEL = "actor.model"
OFT = {MODEL: {"model_type": "openvla_oft", "model_path": "models/any", "action_dim": 2}}
OFT |= {"algorithm": {"adv_type": "raw", "loss_type": "actor"}}
L1 = {f"{MODEL}.head": "l1"}
OPENVLA = {f"{MODEL}.model_type": "openvla"}
SAC = {"algorithm": {"adv_type": "embodied_sac", "loss_type": "embodied_sac"}, f"{MODEL}.add_q_head": True}
PI = {f"{MODEL}.model_type": "openpi", f"{MODEL}.variant": "pi0", f"{MODEL}.state_dim": 2}
STEERED = PI | SAC
RLT = {"algorithm": {"adv_type": "rlt_td3", "loss_type": "rlt_td3"}}
REFINED = STEERED | RLT | {f"{MODEL}.refine_actions": True}
TOKEN = {f"{MODEL}.use_rlt": True}
ODE, LEARNED = ({f"{MODEL}.noise_method": method} for method in ("flow_ode", "flow_noise"))
ONE = {f"{MODEL}.noise_steps": "one"}
NFT = {"algorithm": {"adv_type": "raw", "loss_type": "embodied_nft"}}
DAGGER: dict[str, Any] = {"algorithm": {"adv_type": "embodied_dagger", "loss_type": "embodied_dagger"}}
DAGGER["algorithm"] |= {"expert": {"expert_type": "scripted", "policy": "metaworld"}}
OPERATOR = {"intervener_type": "scripted", "policy": "metaworld", "stall_steps": 5}
INTERVENTION = {"name": "intervention", "intervener": OPERATOR}
CHUNKING = f"{MODEL}.real_time_chunking"
REAL_TIME = PI | {f"{MODEL}.num_action_chunks": 4, f"{MODEL}.horizon": 10, CHUNKING: {"enabled": True}}
REAL_TIME |= {"env.train.max_steps_per_rollout_epoch": 400, "env.eval.auto_reset": False}
CO_TRAINING: dict[str, Any] = {"actor.sft_loss_weight": 0.1, "data": {"format": "lerobot", "path": "x", "weight": 2.0}}
PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    (SAC, f"{MODEL}.add_q_head", "has no Q heads"),
    ({f"{MODEL}.image_keys": []}, f"{MODEL}.image_keys", "Set it to [main_images]"),
    ({f"{MODEL}.lora_rank": 8}, f"{MODEL}.lora_rank", "without actor.model.is_lora"),
    (
        {f"{MODEL}.is_lora": True, "weight_syncer.bucket.bucket_dtype": "bf16"},
        "weight_syncer.bucket.bucket_dtype",
        "with actor.model.is_lora a receiver needs the weights in fp32",
    ),
    ({f"{MODEL}.value_detach": True}, f"{MODEL}.value_detach", "without actor.model.add_value_head"),
    ({f"{MODEL}.state_dim": 8}, f"{MODEL}.state_dim", "without actor.model.use_proprio"),
    ({f"{MODEL}.l1_std": 0.1}, f"{MODEL}.l1_std", "with actor.model.head=tokens"),
    (L1 | {f"{MODEL}.top_k": 3}, f"{MODEL}.top_k", "with actor.model.head=l1"),
    (DAGGER | {f"{MODEL}.top_k": 3}, f"{MODEL}.top_k", "or algorithm.imitation_loss to model"),
    (OPENVLA | {f"{MODEL}.num_action_chunks": 2}, f"{MODEL}.num_action_chunks", "model_type to openvla_oft"),
    (OPENVLA | {f"{MODEL}.image_keys": ["a", "b"]}, f"{MODEL}.image_keys", "openvla sees one image"),
    (
        PI | {f"{MODEL}.num_action_chunks": 60, f"{MODEL}.horizon": 50},
        f"{MODEL}.num_action_chunks",
        "Set it to 50 or less",
    ),
    (PI | {f"{MODEL}.delta_actions": [2, -1]}, f"{MODEL}.delta_actions", "actor.model.action_dim 2 numbers together"),
    (PI | {f"{MODEL}.delta_actions": [1, 0, 1]}, f"{MODEL}.delta_actions", "none of them 0"),
    (PI | {f"{MODEL}.discrete_state_input": True}, f"{MODEL}.discrete_state_input", "with actor.model.variant=pi0"),
    (PI | {f"{MODEL}.state_dim": 0}, f"{MODEL}.state_dim", "allowed: integer > 0 or null"),
    (PI | {f"{MODEL}.noise_method": "flow_ode"}, f"{MODEL}.noise_method", "Set it to flow_sde"),
    (
        {f"{MODEL}.is_lora": True, f"{MODEL}.lora_whole_modules": [], f"{MODEL}.add_value_head": True},
        f"{MODEL}.lora_whole_modules",
        "Add value_head",
    ),
    ({f"{MODEL}.lora_whole_modules": ["scale"]}, f"{MODEL}.lora_whole_modules", "without actor.model.is_lora"),
    (PI | {f"{MODEL}.noise_range": [0.1, 0.2]}, f"{MODEL}.noise_range", "by noise_method=flow_sde"),
    (PI | LEARNED | {f"{MODEL}.noise_level": 0.3}, f"{MODEL}.noise_level", "by noise_method=flow_noise"),
    (PI | LEARNED | {f"{MODEL}.noise_range": [0.2, 0.1]}, f"{MODEL}.noise_range", "Set it to [0.08, 0.16]"),
    (PI | LEARNED | {f"{MODEL}.noise_range": [0.2]}, f"{MODEL}.noise_range", "Set it to [0.08, 0.16]"),
    (PI | {"algorithm.entropy_bonus": 0.1}, "algorithm.entropy_bonus", "actor.model.noise_method=flow_noise"),
    (PI | ODE | {f"{MODEL}.noise_steps": "one"}, f"{MODEL}.noise_steps", "by noise_method=flow_ode"),
    (PI | {f"{MODEL}.ignore_last": True}, f"{MODEL}.ignore_last", "with actor.model.noise_steps=all"),
    (PI | ONE | {f"{MODEL}.chain_reduction": "mean"}, f"{MODEL}.chain_reduction", "noise_steps=one"),
    (PI | ONE | {f"{MODEL}.ignore_last": True, f"{MODEL}.num_steps": 1}, f"{MODEL}.ignore_last", "no step is left"),
    (PI | NFT | {"algorithm": NFT["algorithm"] | {"early_stop_kl": 0.1}}, "algorithm.early_stop_kl", "embodied_nft"),
    (PI | NFT | ONE, f"{MODEL}.noise_steps", "Set it to all"),
    (PI | {f"{MODEL}.value_input": "expert_mean"}, f"{MODEL}.value_input", "without actor.model.add_value_head"),
    (STEERED | {f"{MODEL}.eval_start": "zeros"}, f"{MODEL}.eval_start", "which leaves the flow as it is"),
    (PI | {f"{MODEL}.noise_policy": {"image_size": 32}}, f"{MODEL}.noise_policy", "without actor.model.add_q_head"),
    (STEERED | {f"{MODEL}.freeze": ["vision"]}, f"{MODEL}.freeze", "which leaves the flow as it is"),
    (STEERED | {f"{MODEL}.noise_level": 0.1}, f"{MODEL}.noise_level", "which leaves the flow as it is"),
    (STEERED | {f"{MODEL}.is_lora": True}, f"{MODEL}.is_lora", "which leaves the flow as it is"),
    (
        STEERED | {f"{MODEL}.noise_policy": {"image_keys": ["a", "a"]}},
        f"{MODEL}.noise_policy.image_keys",
        "[main_images]",
    ),
    (STEERED | {f"{MODEL}.noise_policy": {"initial_log_std": 2.0}}, f"{MODEL}.noise_policy.initial_log_std", "(-5, 2)"),
    (
        STEERED | {"algorithm": {"adv_type": "embodied_td3", "loss_type": "embodied_td3"}},
        "algorithm.loss_type",
        "Set it to embodied_sac or embodied_crossq",
    ),
    (
        STEERED | {"env.train.wrappers": [INTERVENTION], f"{MODEL}.num_action_chunks": 1},
        "env.train.wrappers",
        "the noise that leads to an operator's actions is not known",
    ),
    (REFINED | SAC, "algorithm.loss_type", "Set it to rlt_td3"),
    (STEERED | RLT, f"{MODEL}.refine_actions", f"Set {MODEL}.refine_actions=true"),
    (SAC | RLT, f"{MODEL}.model_type", "which proposes no actions"),
    (STEERED | {f"{MODEL}.action_policy": {"activation": "tanh"}}, f"{MODEL}.action_policy", "without"),
    (REFINED | {f"{MODEL}.noise_policy": {"image_size": 32}}, f"{MODEL}.noise_policy", "with actor.model.refine"),
    (PI | {f"{MODEL}.refine_actions": True}, f"{MODEL}.refine_actions", "without actor.model.add_q_head"),
    (PI | TOKEN, f"{MODEL}.use_rlt", "seen by policies with actor.model.add_q_head and refine_actions"),
    (STEERED | TOKEN, f"{MODEL}.use_rlt", "Set it to false"),
    (REFINED | {f"{MODEL}.rlt": {"num_heads": 4}}, f"{MODEL}.rlt", "without actor.model.use_rlt"),
    (
        REFINED | TOKEN | {f"{MODEL}.rlt": {"vla_loss_weight": 0.5}},
        f"{MODEL}.rlt.vla_loss_weight",
        "by loss_type=rlt_td3",
    ),
    (
        REFINED | TOKEN | {f"{MODEL}.rlt": {"embed_dim": 30, "num_heads": 4}},
        f"{MODEL}.rlt.embed_dim",
        "Set it to 32",
    ),
    (PI | {CHUNKING: {"inference_delay": 2}}, f"{CHUNKING}.inference_delay", f"without {CHUNKING}.enabled"),
    (REAL_TIME | {CHUNKING: {"enabled": True, "inference_delay": 4}}, f"{CHUNKING}.inference_delay", "3 or less"),
    (
        REAL_TIME | {CHUNKING: {"enabled": True, "inference_delay": 3}, f"{MODEL}.horizon": 6},
        f"{CHUNKING}.inference_delay",
        "2 or less",
    ),
    (
        REAL_TIME | {CHUNKING: {"enabled": True, "max_guidance_weight": 0.0, "prefix_attention_schedule": "ones"}},
        f"{CHUNKING}.prefix_attention_schedule",
        f"with {CHUNKING}.max_guidance_weight=0",
    ),
    (REAL_TIME | {"env.eval.auto_reset": True}, "env.eval.auto_reset", "Set it to false"),
    (REAL_TIME | {"env.eval": None}, f"{CHUNKING}.enabled", "there is no env.eval"),
    (
        REAL_TIME | {"env.eval.data_collection": {"enabled": True, "save_dir": "x"}},
        f"{CHUNKING}.enabled",
        "env.eval.data_collection",
    ),
    (REAL_TIME | SAC, f"{CHUNKING}.enabled", "another policy acts"),
    (
        PI | {"rollout": {"enable_cuda_graph": True, "enable_offload": True}},
        "rollout.enable_cuda_graph",
        "Set one of them to false",
    ),
    (PI | {"algorithm.entropy_bonus": 0.1}, "algorithm.entropy_bonus", "is constant"),
    (PI | {"actor.sft_loss_weight": 0.1}, "actor.sft_loss_weight", "there is no data section. Add data.format=lerobot"),
    (
        PI | CO_TRAINING | {"data": {"format": "minari", "path": "x"}},
        "actor.sft_loss_weight",
        "data.format=minari. Add data.format",
    ),
    (PI | CO_TRAINING | {"data.reward_coef": 2.0}, "data.reward_coef", "by actor.sft_loss_weight"),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), PROBLEMS, ids=lambda value: str(value)[:60])
def test_what_does_not_fit_is_located_and_mended(
    recipe: Callable[[dict[str, Any]], Any], changes: dict[str, Any], path: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe(OFT | changes))
    line = next(text for text in str(caught.value).splitlines() if text.removeprefix("  - ").startswith(f"{path}:"))
    assert remedy in line


FITTING = {
    "tokens": {},
    "states": {f"{MODEL}.use_proprio": True},
    "states of some length": {f"{MODEL}.use_proprio": True, f"{MODEL}.state_dim": 8},
    "l1": L1,
    "openvla": OPENVLA,
    "pi0": PI,
    "nft": PI | NFT,
    "nft of adapters": PI | NFT | {f"{MODEL}.is_lora": True},
    "steered": STEERED,
    "refined": REFINED,
    "refined by a token": REFINED | TOKEN | {f"{MODEL}.rlt": {"embed_dim": 32, "num_heads": 4}},
    "real time": REAL_TIME,
    "compiled": PI | {"rollout": {"enable_torch_compile": True, "enable_offload": True}},
    "graphs": {"rollout": {"enable_torch_compile": True, "enable_cuda_graph": True}},
    "real time to the last planned action": REAL_TIME
    | {CHUNKING: {"enabled": True, "inference_delay": 2}, f"{MODEL}.horizon": 6},
    "real time without guidance": REAL_TIME | {CHUNKING: {"enabled": True, "max_guidance_weight": 0.0}},
}
FITTING |= {"co-training": PI | CO_TRAINING, "co-training of velocities": PI | NFT | CO_TRAINING}


@pytest.mark.parametrize("changes", FITTING.values(), ids=FITTING)
def test_what_fits_passes(recipe: Callable[[dict[str, Any]], Any], changes: dict[str, Any]) -> None:
    validate_cfg(recipe(OFT | changes))


STAGE_ONE, JOINT = "pixel_reach_rlt_stage1_sft_openpi_tiny", "actor.model.rlt.vla_loss_weight=0.5"
OFT_SFT, CENTER = "langpick_sft_oft_tiny", "actor.model.center_crop=true"
GUIDED = "metaworld_mt3_sft_openpi_tiny"
LABELS = "data.advantage_tag=q30"


@pytest.mark.parametrize(
    ("recipe", "overrides", "text"),
    [
        (GUIDED, ["actor.model.guidance.type=negative", LABELS], "guidance.type: received negative; with"),
        (GUIDED, ["actor.model.guidance.scale=2.0"], "guidance.scale: received 2.0; not used with"),
        (GUIDED, ["actor.model.guidance.unconditional_prob=0.2"], "unconditional_prob: received 0.2; not used without"),
        ("langpick_sft_oft_tiny", [LABELS], "data.advantage_tag: is not used: labels are learned by"),
        (
            OFT_SFT,
            ["actor.model.top_k=3"],
            "model.top_k: received 3; not used by loss_type=embodied_sft",
        ),
        (OFT_SFT, ["data.augmentation.crop_area=0.9"], "center_crop: received false; with data.augmentation"),
        (OFT_SFT, ["data.augmentation.crop_area=0.8", CENTER], "crop_area: received 0.8; actor.model.center_crop"),
        ("pixel_reach_iql_cnn", ["data.advantage_tag=x"], "data.advantage_tag: is not used"),
        (STAGE_ONE, [LABELS], "data.advantage_tag: is not used with actor.model.rlt.vla_loss_weight=0"),
        (STAGE_ONE, ["actor.model.freeze=[vision]"], "freeze: received ['vision']; not used with actor.model.rlt"),
        (STAGE_ONE, ["actor.model.is_lora=true"], "is_lora: received True; not used with actor.model.rlt"),
        (STAGE_ONE, ["actor.model.is_lora=true", JOINT], "is_lora: received true; with actor.model.use_rlt all"),
        (
            "pixel_reach_ppo_openpi_tiny",
            ["actor.model.guidance={type: positive, scale: 2.0}"],
            "guidance.scale: received 2; actions are then those of no single prompt",
        ),
        (
            "langpick_grpo_openpi_tiny",
            ["actor.model.guidance={type: positive, scale: 0.5}"],
            "which loss_type=actor would have to learn from. Set it to 1",
        ),
    ],
)
def test_keys_that_fine_tuning_does_not_read_are_refused(recipe: str, overrides: list[str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(recipe, overrides))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        (GUIDED, [LABELS, "actor.model.guidance={type: positive, scale: 2.0, unconditional_prob: 0.3}"]),
        (GUIDED, [LABELS, "actor.model.guidance={type: negative, positive_only_conditional: false}"]),
        ("langpick_grpo_openpi_tiny", ["actor.model.guidance.type=positive"]),
        (OFT_SFT, ["data.augmentation={crop_area: 0.9, saturation: 0.2, hue: 0.05}", CENTER]),
        (GUIDED, ["data.augmentation.crop_area=0.8"]),
        (STAGE_ONE, [JOINT, LABELS, "actor.model.freeze=[vision]"]),
    ],
)
def test_keys_that_fine_tuning_reads_pass(recipe: str, overrides: list[str]) -> None:
    validate_cfg(load_recipe(recipe, overrides))


@pytest.mark.parametrize("key", ["enable_torch_compile", "enable_cuda_graph"])
def test_small_policies_are_not_compiled(key: str) -> None:
    with pytest.raises(ConfigError, match=f"rollout.{key}: received True; not used with model_type=mlp_policy"):
        validate_cfg(load_recipe("gym_cartpole_ppo_mlp", [f"rollout.{key}=true"]))
