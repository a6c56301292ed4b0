"""A reasoning recipe trains in every layout as it does on one rank, and one engine goes on with the other's run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from tests.e2e.conftest import read_metrics
from tests.e2e.tiny_math import make_questions

pytest.importorskip("megatron.core")
pytestmark = pytest.mark.timeout(400)
TWO = ("cluster.cpu_slots_per_node=2", "cluster.component_placement={actor: 0-1, rollout: 0, reward: 0}")
FOUR = ("cluster.cpu_slots_per_node=4", "cluster.component_placement={actor: 0-3, rollout: 0, reward: 0}")
BACKEND = ("actor.training_backend=megatron", "~actor.fsdp_config")
MEGATRON = (*BACKEND, *TWO)
STEPS = 3
LAYOUTS = {
    "fsdp": (),
    "CP2": (*TWO, "actor.fsdp_config.context_parallel_size=2"),
    "TP2": (*MEGATRON, "actor.megatron.tensor_model_parallel_size=2"),
    "PP2": (*MEGATRON, "actor.megatron.pipeline_model_parallel_size=2"),
    "TP2PP2": (
        *BACKEND,
        *FOUR,
        "actor.megatron.tensor_model_parallel_size=2",
        "actor.megatron.pipeline_model_parallel_size=2",
    ),
    "EP2": (*MEGATRON, "actor.megatron.expert_model_parallel_size=2"),
}


def run(folder: Path, name: str, *keys: str, steps: int = STEPS) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Train under a layout until a step; return the weights and the metrics of the last one."""
    from safetensors.torch import load_file

    from rlinf.runners.launch import launch_reasoning

    questions = folder / "questions"
    if not questions.exists():
        make_questions(questions)
    launch_reasoning(
        validate_cfg(
            load_recipe(
                "tiny_math_grpo",
                [
                    f"runner.max_epochs={steps}",
                    "runner.val_check_interval=-1",
                    "~runner.stop_at",
                    "data.rollout_batch_size=8",
                    "algorithm.group_size=4",
                    "+reward.rewards.short={reward_type: function, function: 'tests.e2e.reasoning_rewards:short'}",
                    "algorithm.kl_beta=0.01",
                    "actor.global_batch_size=16",
                    f"data.train_data_paths=[{questions}/train.jsonl]",
                    f"data.val_data_paths=[{questions}/val.jsonl]",
                    f"actor.model.model_path={questions}/model",
                    f"runner.logger.log_path={folder / name}",
                    *LAYOUTS[name.partition(" ")[0]],
                    *keys,
                ],
            )
        )
    )
    (weights,) = (folder / name).rglob(f"global_step_{steps}/**/model.safetensors")
    return load_file(weights), read_metrics(folder / name / "tiny_math_grpo")[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the questions and all runs are."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def under_fsdp(one_node: None, folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Return the weights and the last metrics of a run under FSDP2, which has a checkpoint of every step."""
    return run(folder, "fsdp", "runner.save_interval=1", "runner.keep_checkpoints=0")


def assert_alike(found: dict[str, float], expected: dict[str, float]) -> None:
    """Compare the metrics of a step, in which something was learned."""
    assert expected["train/grad_norm"] > 1e-3
    for key in ("train/grad_norm", "train/actor_kl_ref", "train/lr", "rollout/reward"):
        assert found[key] == pytest.approx(expected[key], rel=1e-3, abs=1e-6), key


def test_three_steps_under_any_layout_end_with_the_same_weights(
    under_fsdp: tuple[dict[str, torch.Tensor], dict[str, float]], folder: Path
) -> None:
    expected, metrics = under_fsdp
    for name in ("TP2", "PP2", "CP2"):
        weights, found = run(folder, name)
        assert weights.keys() == expected.keys()
        for key, tensor in expected.items():
            assert (weights[key] - tensor).abs().max() < 2e-4, (name, key)
        assert_alike(found, metrics)


def test_a_run_goes_on_under_the_other_engine_and_back(
    under_fsdp: tuple[dict[str, torch.Tensor], dict[str, float]], folder: Path
) -> None:
    expected, reference = under_fsdp

    def last(name: str, step: int) -> str:
        return f"runner.resume_dir={next((folder / name).rglob(f'global_step_{step}'))}"

    run(folder, "TP2PP2 resumed", last("fsdp", 1), steps=2)
    found, metrics = run(folder, "fsdp resumed", last("TP2PP2 resumed", 2))
    for key, tensor in expected.items():
        assert (found[key] - tensor).abs().max() < 2e-4, key
    assert_alike(metrics, reference)


def give_experts(folder: Path) -> None:
    """Replace the model of the questions by a Qwen3-MoE of random weights."""
    import transformers

    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
    ends = json.loads((folder / "model/generation_config.json").read_text())
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        **sizes, **heads, **experts, initializer_range=0.1, eos_token_id=ends["eos_token_id"]
    )
    transformers.Qwen3MoeForCausalLM(config).save_pretrained(folder / "model")


def test_a_model_with_experts_trains_with_and_without_replay(one_node: None, tmp_path: Path) -> None:
    give_experts(make_questions(tmp_path / "questions"))
    replay = ("actor.routing_replay=recompute", "actor.moe_aux_loss_coeff=0.01")
    live, _ = run(tmp_path, "EP2 live")
    expected, reference = run(tmp_path, "fsdp", *replay)
    found, metrics = run(tmp_path, "EP2 replayed", *replay)
    assert live.keys() == found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert (found[key] - tensor).abs().max() < 2e-4, key
    assert 0 <= metrics["train/expert_load_min"] < 1 < metrics["train/expert_load_max"] <= 2
    assert metrics["train/expert_load_max"] == pytest.approx(reference["train/expert_load_max"], rel=1e-3)


def test_the_routes_of_the_engine_are_replayed_under_either_engine(one_node: None, tmp_path: Path) -> None:
    give_experts(make_questions(tmp_path / "questions"))
    replay = ("actor.routing_replay=rollout", "actor.moe_aux_loss_coeff=0.01")
    expected, reference = run(tmp_path, "fsdp", *replay, steps=2)
    found, metrics = run(tmp_path, "EP2", *replay, steps=2)
    for key, tensor in expected.items():
        assert (found[key] - tensor).abs().max() < 2e-4, key
    for each in (metrics, reference):
        assert each["train/replayed_share"] == 1
        assert each["rollout/mismatch_max_probability_difference"] < 1e-4
    assert metrics["train/expert_load_max"] == pytest.approx(reference["train/expert_load_max"], rel=1e-3)


@pytest.mark.slow
def test_a_critic_of_its_own_is_next_to_either_engine(one_node: None, tmp_path: Path) -> None:
    critic = ("algorithm.adv_type=gae", "critic.use_critic_model=true", "critic.optim.lr=1e-3")
    sharded = "critic.fsdp_config.sharding_strategy=full_shard"
    expected, reference = run(tmp_path, "fsdp", *critic)
    found, metrics = run(tmp_path, "TP2", *critic, sharded)
    for key, tensor in expected.items():
        assert (found[key] - tensor).abs().max() < 2e-4, key
    assert metrics["train/critic_value_loss"] == pytest.approx(reference["train/critic_value_loss"], rel=1e-3)
    assert metrics["train/critic_grad_norm"] == pytest.approx(reference["train/critic_grad_norm"], rel=1e-3)
