"""The tiny model on disk, from which tests and the laptop recipe start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.reasoning.make_tiny_model import VOCAB_SIZE, make_tiny_model

ROOT = Path(__file__).resolve().parents[3]


def test_every_character_has_a_token_and_comes_back(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(make_tiny_model(tmp_path))
    text = "12 + 34 = ?\n\tYes, {it} is \\boxed{46}!"
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert len(tokenizer) <= VOCAB_SIZE


def test_a_chat_is_one_token_per_role_and_ends(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(make_tiny_model(tmp_path))
    chat = [{"role": "user", "content": "1+2="}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert prompt == "<user>1+2=<assistant>"
    assert len(tokenizer.encode(prompt)) == 6
    answered = tokenizer.apply_chat_template([*chat, {"role": "assistant", "content": "3"}], tokenize=False)
    assert answered == f"{prompt}3{tokenizer.eos_token}"
    assert tokenizer.encode(answered)[-1] == tokenizer.eos_token_id


def test_the_seed_makes_the_weights_and_leaves_global_randomness_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    first = torch.get_rng_state()
    folders = [make_tiny_model(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    assert torch.equal(torch.get_rng_state(), first)
    weights = [AutoModelForCausalLM.from_pretrained(folder).lm_head.weight for folder in folders]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_command_makes_a_model_of_the_size_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, "examples/reasoning/make_tiny_model.py", str(tmp_path), "--num-layers", "2"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.num_hidden_layers == 2
