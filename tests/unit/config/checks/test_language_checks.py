"""Algorithms of language models whose keys contradict each other."""

from __future__ import annotations

import pytest
from reasoning_problems import problems

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError

PLACEMENT = "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}"


@pytest.mark.parametrize(
    ("overrides", "path", "remedy"),
    [
        (
            ["algorithm.recompute_logprobs=false", "algorithm.importance_correction={level: token}"],
            "algorithm.recompute_logprobs",
            "algorithm.recompute_logprobs=true",
        ),
        *(
            (["algorithm.old_logprobs_in_update=true", *keys], "algorithm.old_logprobs_in_update", reason)
            for keys, reason in (
                (["algorithm.recompute_logprobs=false"], "recompute_logprobs=false"),
                (["algorithm.kl_in_reward={beta: 0.1}"], "kl_in_reward needs them before the advantages"),
                (["algorithm.update_epoch=2"], "update_epoch=2 trains on the first minibatch again"),
                (["algorithm.loss_type=decoupled_actor_critic"], "compares with the policy that answered"),
                (["actor.model.add_value_head=true"], "computes values in the same pass"),
                (["+inference={}", PLACEMENT], "the inference group computes them"),
                (["actor.routing_replay=recompute"], "actor.routing_replay=recompute needs the routes"),
                (["actor.moe_aux_loss_coeff=0.1"], "actor.moe_aux_loss_coeff needs the routes"),
                (["algorithm.adv_type=opd"], "adv_type=opd needs them before the advantages"),
            )
        ),
        (["algorithm.importance_correction={lower_bound: 1.5}"], "algorithm.importance_correction", "lower_bound=0.5"),
        (
            ["weight_syncer.bucket.bucket_dtype=bf16", "actor.model.is_lora=true"],
            "weight_syncer.bucket.bucket_dtype",
            "with actor.model.is_lora a receiver needs the weights in fp32",
        ),
        (
            ["weight_syncer.type=patch", "weight_syncer.bucket.bucket_device=cuda"],
            "weight_syncer.bucket.bucket_device",
            "Set bucket_device=cpu",
        ),
        (
            ["actor.routing_replay=recompute", "algorithm.recompute_logprobs=false"],
            "actor.routing_replay",
            "algorithm.recompute_logprobs=true",
        ),
        (["actor.moe_aux_loss_coeff=0.1", "+inference={}", PLACEMENT], "actor.moe_aux_loss_coeff", "Remove inference"),
        *(
            (["actor.routing_replay=rollout", f"rollout.rollout_backend={name}", *keys], "actor.routing_replay", remedy)
            for name, keys, remedy in (
                ("sglang", [], "Choose hf or vllm, or another value of the key"),
                ("server", ["+rollout.server={base_urls: ['http://a:1']}"], "Choose hf or vllm"),
                ("vllm", ["algorithm.sampling_params.top_p=0.9"], "set rollout.rollout_backend=hf"),
                ("vllm", ["algorithm.sampling_params.min_new_tokens=2"], "Leave them at their defaults"),
                ("vllm", ["+rollout.pipeline_parallel_size=2"], "Set rollout.pipeline_parallel_size=1"),
                ("vllm", ["+rollout.vllm={enable_prefix_caching: false}"], "enable_prefix_caching=true"),
                ("vllm", ["+rollout.vllm={speculative_config: {method: ngram}}"], "Remove rollout.vllm.speculative"),
            )
        ),
        (["actor.fsdp_config.context_parallel_size=2"], "actor.fsdp_config.context_parallel_size", "must divide the 1"),
        (
            ["actor.fsdp_config.context_parallel_size=2", "+inference={}", PLACEMENT],
            "actor.fsdp_config.context_parallel_size",
            "Remove the section inference",
        ),
        (
            ["weight_syncer.bucket.bucket_dtype=fp16", "+inference={}", PLACEMENT],
            "weight_syncer.bucket.bucket_dtype",
            "with inference a receiver needs the weights in fp32",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_mistake_names_its_key_and_its_remedy(overrides: list[str], path: str, remedy: str) -> None:
    found = problems(*overrides)
    assert any(line.startswith(f"{path}: ") and remedy in line for line in found), found


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.recompute_logprobs=false", "actor.moe_aux_loss_coeff=0.1"],
        ["algorithm.old_logprobs_in_update=true", "actor.moe_aux_loss_coeff=0.1"],
        ["+inference={}", PLACEMENT],
        ["rollout.rollout_backend=vllm"],
        ["algorithm.sampling_params.top_k=5"],
    ],
    ids=str,
)
def test_the_engines_routes_need_no_pass_that_records(overrides: list[str]) -> None:
    cfg = validate_cfg(load_recipe("tiny_math_grpo", ["actor.routing_replay=rollout", *overrides]))
    assert cfg.actor.routing_replay == "rollout"


@pytest.mark.parametrize(
    ("overrides", "precision"),
    [
        ([], "fp32"),
        (["rollout.model.precision=bf16"], "bf16"),
        (["actor.model.precision=bf16"], "bf16"),
        (["actor.model.precision=bf16", "weight_syncer.bucket.bucket_dtype=fp32"], "fp32"),
        (["weight_syncer.bucket.bucket_dtype=fp16"], "fp16"),
        (["actor.model.precision=bf16", "actor.model.is_lora=true"], None),
        (["actor.model.precision=bf16", "+inference={}", PLACEMENT], None),
    ],
    ids=str,
)
def test_weights_are_published_in_the_precision_of_the_engines(overrides: list[str], precision: str | None) -> None:
    cfg = validate_cfg(load_recipe("tiny_math_grpo", overrides))
    assert cfg.published_precision == precision


def test_policies_get_master_weights_unless_the_recipe_says_otherwise() -> None:
    for overrides, precision in (([], None), (["weight_syncer.bucket.bucket_dtype=bf16"], "bf16")):
        assert validate_cfg(load_recipe("gym_cartpole_ppo_mlp", overrides)).published_precision == precision


COUNTING = "tiny_counting_grpo"


@pytest.mark.parametrize(
    ("overrides", "path", "remedy"),
    [
        (["rollout.rollout_backend=vllm"], "rollout.rollout_backend", "Set it to hf"),
        (["actor.training_backend=megatron"], "actor.training_backend", "Set it to fsdp"),
        (["actor.fsdp_config.context_parallel_size=2"], "actor.fsdp_config.context_parallel_size", "Set it to 1"),
        (["actor.model.is_lora=true"], "actor.model.is_lora", "Set it to False"),
        (
            ["actor.model.attn_implementation=flash_attention_2"],
            "actor.model.attn_implementation",
            "positions of images and sharing need it. Set it to sdpa",
        ),
        (["actor.model.model_type=causal_lm"], "data.image_keys", "Set actor.model.model_type=vision_lm"),
        (["+agent={workflow: multi_turn}"], "agent.workflow", "Set it to rlvr"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_images_reach_engine_and_trainer_or_are_refused(overrides: list[str], path: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(COUNTING, overrides))
    assert any(f"{path}: " in line and remedy in line for line in str(caught.value).splitlines()), caught.value


@pytest.mark.parametrize("overrides", [[], ["+agent={workflow: vision_rlvr}"], ["actor.model.model_type=qwen3_vl"]])
def test_recipes_with_images_are_valid(overrides: list[str]) -> None:
    cfg = validate_cfg(load_recipe(COUNTING, overrides))
    assert cfg.data.image_keys == ["image"]


@pytest.mark.parametrize("overrides", [[], ["~rollout", "~reward", "~runner.stop_at", "~algorithm",
                                           "cluster.component_placement={actor: 0}"]])  # fmt: skip
def test_fine_tuning_reads_images_with_and_without_an_engine(overrides: list[str]) -> None:
    cfg = validate_cfg(load_recipe("tiny_counting_sft", overrides))
    assert cfg.data.image_keys == ["image"]
    with pytest.raises(ConfigError, match=r"data\.image_keys: .*Set actor\.model\.model_type=vision_lm"):
        validate_cfg(load_recipe("tiny_counting_sft", [*overrides, "actor.model.model_type=causal_lm"]))


@pytest.mark.parametrize("change", ["rollout.rollout_backend=vllm", "actor.training_backend=megatron"])
def test_fine_tuning_on_images_needs_what_reads_them(change: str) -> None:
    with pytest.raises(ConfigError, match=rf"{change.partition('=')[0]}: .*model_type=vision_lm"):
        validate_cfg(load_recipe("tiny_counting_sft", [change]))
