"""Sizes of a step: updates, responses, samples and what evaluates them."""

from __future__ import annotations

import pytest

from rlinf.cli.main import main


def test_an_off_policy_plan_counts_updates_from_the_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gym_pendulum_sac_mlp"]) == 0
    text = capsys.readouterr().out
    assert "64 of the critics = update_epoch 64, each on a batch from the replay" in text
    assert "14976 optimizer steps, 14976 environment steps" in text


def test_a_plan_of_a_language_model_counts_responses(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ("algorithm.update_epoch=2", "runner.max_epochs=5", "algorithm.sampling_params.max_new_tokens=8")
    assert main(["plan", "tiny_math_grpo", *keys, "--accelerators-per-node", "0"]) == 0
    text = capsys.readouterr().out
    assert "256 on 1 engine(s), 4 responses to each" in text
    assert "1024, of up to 8 tokens each" in text
    assert "2 = 1024 / global_batch_size 1024 x update_epoch 2" in text
    assert "up to 4096 tokens on each actor rank" in text
    assert "5 steps, 10 optimizer steps" in text
    assert "every 10 steps, greedily, on results/tiny_math/val.jsonl" in text
    assert "log-probabilities" not in text
    keys = ("+inference={}", "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}")
    assert main(["plan", "tiny_math_grpo", *keys, "--accelerators-per-node", "0"]) == 0
    text = capsys.readouterr().out
    assert "by 1 inference rank(s), up to 4096 tokens in a pass, while further responses are generated" in text
    keys = ("runner.enable_dynamic_batch_size=false", "~runner.max_tokens_per_mbs", "runner.val_samples=4")
    assert main(["plan", "tiny_math_grpo", *keys]) == 0
    text = capsys.readouterr().out
    assert "64 responses on each actor rank" in text
    assert "every 10 steps, 4 responses to each prompt" in text
    assert "replaced" not in text
    assert main(["plan", "qwen2_5_7b_dapo_math"]) == 0
    assert "groups with zero advantages, until 1536 prompts have been submitted in a step" in capsys.readouterr().out


def test_a_plan_of_episodes_says_how_they_are_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "tiny_retry_grpo"]) == 0
    assert "workflow multi_turn, up to 3 turns within 128 tokens" in capsys.readouterr().out
    tools = "agent={workflow: tools, tools: {sum: {tool_type: calculator}}}"
    assert main(["plan", "tiny_retry_grpo", tools]) == 0
    assert "workflow tools, up to 3 turns within 128 tokens, tools sum" in capsys.readouterr().out


def test_a_plan_of_fine_tuning_counts_samples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "tiny_math_sft", "algorithm.update_epoch=2", "--accelerators-per-node", "0"]) == 0
    text = capsys.readouterr().out
    assert "512 = global_batch_size 256 x update_epoch 2, of up to 24 tokens each" in text
    assert "16 pass(es) over the data, counted when it has been read" in text
    assert "loss and token accuracy, and responses on 1 engine(s): greedily, on results/tiny_math/val.jsonl" in text
    assert main(["plan", "qwen2_5_1_5b_sft", "runner.max_steps=7", "--accelerators-per-node", "8"]) == 0
    text = capsys.readouterr().out
    assert "7 steps, 7 optimizer steps" in text
    assert "every 20 steps, loss and token accuracy, on openai/gsm8k:main" in text
