"""Make what the recipe ``tiny_math_grpo`` starts from: questions of addition, and a tiny model that can do some.

python examples/reasoning/make_tiny_math.py                 # into results/tiny_math, a minute or two
python examples/reasoning/make_tiny_math.py --accuracy 0.2  # a model that adds worse from the start
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import needed

needed.check_packages(__file__)

import torch
from make_tiny_model import make_tiny_model
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

Row = tuple[str, str]
BATCH_SIZE = 128
LEARNING_RATE = 2e-3
MAX_STEPS, WARM_UP_STEPS, STEPS_BETWEEN_TESTS = 400, 20, 10
NUM_TESTED = 256


def write_questions(folder: Path, *, num_val: int, seed: int) -> list[Row]:
    """Write all sums of two numbers of two digits, split into training and evaluation; return those to train on."""
    pairs = list(itertools.product(range(10, 100), repeat=2))
    random.Random(seed).shuffle(pairs)
    rows = [(f"{a}+{b}=", str(a + b)) for a, b in pairs]
    for name, part in (("val", rows[:num_val]), ("train", rows[num_val:])):
        lines = (json.dumps({"question": question, "answer": answer}) + "\n" for question, answer in part)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return rows[num_val:]


def warm_up(model_folder: Path, rows: list[Row], *, accuracy: float, seed: int) -> tuple[int, float]:
    """Teach the model by examples until it answers so many right that it has not seen, and save it.

    Returns:
        The steps that it took, and the share that it answers right by then.
    """
    model, tokenizer = AutoModelForCausalLM.from_pretrained(model_folder), AutoTokenizer.from_pretrained(model_folder)
    tested, seen = rows[:NUM_TESTED], rows[NUM_TESTED:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate)
    chance = random.Random(seed)
    step, right = 0, 0.0
    while step < MAX_STEPS and right < accuracy:
        loss = examples_loss(model, tokenizer, chance.sample(seen, BATCH_SIZE))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        step += 1
        if step % STEPS_BETWEEN_TESTS == 0:
            right = share_right(model, tokenizer, tested)
    model.save_pretrained(model_folder)
    return step, right


def learning_rate(step: int) -> float:
    """Return the share of the learning rate: rising, then falling to a tenth."""
    if step < WARM_UP_STEPS:
        return (step + 1) / WARM_UP_STEPS
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * step / MAX_STEPS))


def examples_loss(model: nn.Module, tokenizer: PreTrainedTokenizerBase, rows: list[Row]) -> torch.Tensor:
    """Return the mean loss of the answers' tokens."""
    end = tokenizer.eos_token_id
    batch = [(encode(tokenizer, question), [*tokenizer.encode(answer), end]) for question, answer in rows]
    width = max(len(prompt) + len(answer) for prompt, answer in batch)
    ids = [pad([*prompt, *answer], width, tokenizer.pad_token_id) for prompt, answer in batch]
    labels = [pad([-100] * len(prompt) + answer, width, -100) for prompt, answer in batch]
    # Padding comes last, so that no token looks at it.
    loss: torch.Tensor = model(input_ids=torch.tensor(ids), labels=torch.tensor(labels)).loss
    return loss


@torch.no_grad()
def share_right(model: nn.Module, tokenizer: PreTrainedTokenizerBase, rows: list[Row]) -> float:
    """Return the share of questions whose answer is the likeliest at each of its tokens: what greedy search finds."""
    right = 0
    for question, answer in rows:
        prompt, wanted = encode(tokenizer, question), [*tokenizer.encode(answer), tokenizer.eos_token_id]
        logits = model(input_ids=torch.tensor([[*prompt, *wanted]])).logits[0, len(prompt) - 1 : -1]
        right += logits.argmax(dim=-1).tolist() == wanted
    return right / len(rows)


def encode(tokenizer: PreTrainedTokenizerBase, question: str) -> list[int]:
    """Return the tokens of a question, as a recipe with ``data.apply_chat_template`` asks it."""
    messages = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


def pad(ids: list[int], width: int, value: int) -> list[int]:
    """Return ids followed by ``value`` up to ``width``."""
    return ids + [value] * (width - len(ids))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("results/tiny_math"))
    parser.add_argument("--accuracy", type=float, default=0.4, help="greedy accuracy at which the examples end")
    parser.add_argument("--num-val", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    # A second thread gains little with so small a model, and much is lost where it waits for its core.
    torch.set_num_threads(1)
    rows = write_questions(args.folder, num_val=args.num_val, seed=args.seed)
    # Few wide layers use a CPU better than many narrow ones. With fewer heads or smaller initial weights, which digits
    # belong together is found much later.
    model = make_tiny_model(
        args.folder / "model",
        hidden_size=256,
        num_layers=2,
        num_heads=8,
        num_kv_heads=4,
        seed=args.seed,
        max_context_tokens=64,
        initializer_range=0.06,
    )
    steps, right = warm_up(model, rows, accuracy=args.accuracy, seed=args.seed)
    sys.stdout.write(
        f"{args.folder}: {len(rows)} questions to learn from, {args.num_val} to be evaluated on; "
        f"after {steps} steps of examples the model answers {right:.0%} right\n"
    )


if __name__ == "__main__":
    main()
