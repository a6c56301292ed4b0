"""Make what the recipe ``tiny_math_grpo`` starts from: questions of addition, and a tiny model that can do some.

python examples/reasoning/make_tiny_math.py                  # into results/tiny_math, under a minute
python examples/reasoning/make_tiny_math.py --sft-steps 600  # a model that adds better from the start
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from pathlib import Path

import torch
from make_tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

BATCH_SIZE = 256
LEARNING_RATE = 3e-3


def write_questions(folder: Path, *, num_val: int, seed: int) -> list[tuple[str, str]]:
    """Write all sums of two numbers below 100, split into training and evaluation; return those to train on."""
    pairs = list(itertools.product(range(100), repeat=2))
    random.Random(seed).shuffle(pairs)
    rows = [(f"{a}+{b}=", str(a + b)) for a, b in pairs]
    for name, part in (("val", rows[:num_val]), ("train", rows[num_val:])):
        lines = (json.dumps({"question": question, "answer": answer}) + "\n" for question, answer in part)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return rows[num_val:]


def warm_up(model_folder: Path, rows: list[tuple[str, str]], *, num_steps: int, seed: int) -> float:
    """Teach the model by examples, and save it; return the last loss."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(model_folder), AutoTokenizer.from_pretrained(model_folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=num_steps)
    chance = random.Random(seed)
    loss = torch.zeros(())
    for _ in range(num_steps):
        batch = [encode(tokenizer, *row) for row in chance.sample(rows, BATCH_SIZE)]
        width = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([ids + [tokenizer.pad_token_id] * (width - len(ids)) for ids, _ in batch])
        labels = torch.tensor([[-100] * start + ids[start:] + [-100] * (width - len(ids)) for ids, start in batch])
        mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in batch])
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.save_pretrained(model_folder)
    return loss.item()


def encode(tokenizer, question: str, answer: str) -> tuple[list[int], int]:
    """Return the tokens of a question with its answer, and where the answer begins."""
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.encode(
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True), add_special_tokens=False
    )
    return [*prompt, *tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id], len(prompt)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("results/tiny_math"))
    parser.add_argument("--sft-steps", type=int, default=300)
    parser.add_argument("--num-val", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    rows = write_questions(args.folder, num_val=args.num_val, seed=args.seed)
    model = make_tiny_model(args.folder / "model", seed=args.seed, max_context_tokens=64)
    loss = warm_up(model, rows, num_steps=args.sft_steps, seed=args.seed)
    sys.stdout.write(f"{args.folder}: {len(rows)} training and {args.num_val} evaluation questions; loss {loss:.2f}\n")


if __name__ == "__main__":
    main()
