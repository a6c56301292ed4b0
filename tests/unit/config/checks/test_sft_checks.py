"""What a recipe of fine-tuning must say, and what is said of one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.config import build_config, load_recipe, to_dict, validate_cfg
from rlinf.errors import ConfigError

RECIPE = "tiny_math_sft"
ALONE = (
    "~rollout",
    "~reward",
    "~runner.stop_at",
    "~algorithm",
    "cluster.component_placement={actor: 0}",
)
"""Without engines."""
CHAT = ("~data.prompt_key", "~data.answer_key", "~data.apply_chat_template", "data.messages_key=messages")


def problems(*overrides: str) -> list[Any]:
    try:
        validate_cfg(load_recipe(RECIPE, overrides))
    except ConfigError as error:
        return [line.strip().removeprefix("- ") for line in str(error).splitlines()]
    return []


@pytest.mark.parametrize(
    ("overrides", "path", "remedy"),
    [
        # Keys that are not known here, and those of something else.
        (["data.max_lenght=9"], "data.max_lenght", "Did you mean 'data.max_length'?"),
        (["data.rollout_batch_size=9"], "data.rollout_batch_size", "unknown key"),
        (["algorithm.clip_ratio_low=0.1"], "algorithm.clip_ratio_low", "not used by loss_type=sft"),
        (["data.on_too_long=cut"], "data.on_too_long", "drop, truncate, error"),
        # Sections that do not fit together.
        (["data.train_data_paths=[]"], "data.train_data_paths", "nothing to train on"),
        (["data.val_data_paths=[]"], "data.val_data_paths", "runner.val_check_interval=-1"),
        (["~reward", "cluster.component_placement={actor: 0, rollout: 0}"], "reward", "Add it, or remove rollout"),
        (["~rollout", "cluster.component_placement={actor: 0, reward: 0}"], "reward", "Remove it, or add rollout"),
        (["runner.val_check_interval=-1"], "rollout", "Set runner.val_check_interval"),
        (["reward.rewards.math.weight=0.0"], "reward.rewards", "received weights [0.0]"),
        ([*ALONE, "cluster.component_placement={actor: 0, rollout: 0}"], "cluster.component_placement.rollout",
         "without a section rollout"),
        (["algorithm.loss_type=actor"], "algorithm.loss_type", "runner.task_type=reasoning"),
        (["algorithm.adv_type=grpo"], "algorithm.adv_type", "Remove it"),
        (["data.answer_key=null"], "data.answer_key", "data.messages_key"),
        (["data.max_length=5000"], "runner.max_tokens_per_mbs", "data.max_length = 5000"),
        (["actor.model.add_value_head=true"], "actor.model.add_value_head", "Remove it"),
        (["actor.optim.lr_warmup_steps=9", "actor.optim.total_training_steps=5"], "actor.optim.lr_warmup_steps",
         "Lower it"),
        (["cluster.cpu_slots_per_node=2", "cluster.component_placement.actor=0-1", "actor.global_batch_size=1"],
         "actor.global_batch_size", "2 actor ranks need an answer each"),
        (["cluster.profiling={enable: true, groups: [actor, env]}"], "cluster.profiling.groups", "received env"),
        # Keys without effect.
        (["algorithm.group_size=4"], "algorithm.group_size", "task_type=sft"),
        (["algorithm.staleness_threshold=1"], "algorithm.staleness_threshold", "task_type=sft"),
        (["actor.optim.value_lr=1e-3"], "actor.optim.value_lr", "task_type=sft"),
        (["data.train_turns=last"], "data.train_turns", "without data.messages_key"),
        (["data.messages_key=messages"], "data.prompt_key", "with data.messages_key"),
        (["data.messages_key=messages", "data.choice_key=options"], "data.choice_key", "with data.messages_key"),
        ([*ALONE, "+algorithm.sampling_params.top_k=3"], "algorithm.sampling_params", "without a section rollout"),
        ([*ALONE, "runner.val_samples=3"], "runner.val_samples", "without a section rollout"),
        ([*ALONE, "data.metadata_keys=[level]"], "data.metadata_keys", "without a section rollout"),
        ([*ALONE, "actor.enable_offload=true"], "actor.enable_offload", "without a section rollout"),
        ([*ALONE, "+weight_syncer.bucket.bucket_size=9"], "weight_syncer", "without a section rollout"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_mistake_names_its_key_and_its_remedy(overrides: list[str], path: str, remedy: str) -> None:
    found = problems(*overrides)
    assert any(line.startswith(f"{path}: ") and remedy in line for line in found), found


@pytest.mark.parametrize(
    "overrides",
    [
        ALONE,
        (*ALONE, "runner.val_check_interval=-1", "data.val_data_paths=[]"),
        CHAT,
        (*CHAT, "data.train_turns=last"),
        ("algorithm.loss_agg_func=seq-mean-token-mean", "algorithm.update_epoch=4"),
        ("rollout.rollout_backend=vllm", "rollout.enable_offload=true", "actor.enable_offload=true"),
        ("actor.model.is_lora=true", "actor.model.lora_rank=4"),
        ("runner.only_eval=true", "data.train_data_paths=[]"),
        ("runner.max_steps=100", "actor.optim.lr_scheduler=constant", "~actor.optim.min_lr_ratio"),
    ],
)
def test_what_fits_together_is_valid_and_reversible(overrides: tuple[str, ...]) -> None:
    cfg = validate_cfg(load_recipe(RECIPE, overrides))
    assert build_config(to_dict(cfg)) == cfg


def test_a_reasoning_recipe_cannot_learn_given_answers() -> None:
    keys = [f"~algorithm.{key}" for key in ("clip_ratio_low", "clip_ratio_high")]
    with pytest.raises(ConfigError, match=r"algorithm\.loss_type: received sft, which does not learn"):
        validate_cfg(load_recipe("tiny_math_grpo", [*keys, "algorithm.loss_type=sft"]))
