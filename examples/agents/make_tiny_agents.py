"""Make what recipes of tiny agents start from: rows, and a tiny model that demonstrations have taught some of the task.

python examples/agents/make_tiny_agents.py calculator        # into results/tiny_calculator
python examples/agents/make_tiny_agents.py guessing --seed 1
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "reasoning")]
import needed

needed.check_packages(__file__)

import torch
from make_tiny_model import make_tiny_model, make_tokenizer
from tiny_tasks import TASKS, Parts, Row, Task
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

ROLES = ("tool",)
TAGS = (
    "<tool_call>",
    "</tool_call>",
    "<search>",
    "</search>",
    "<information>",
    "</information>",
    "<answer>",
    "</answer>",
)
LEARNING_RATE = 2e-3
BATCH_SIZE, NUM_TESTED = 32, 128
DECAY_STEPS, WARM_UP_STEPS, STEPS_BETWEEN_TESTS = 2000, 20, 5
IGNORED = -100
"""Label of a token that is not learned."""


def encode(tokenizer: PreTrainedTokenizerBase, parts: Parts) -> tuple[list[int], list[int]]:
    """Return the tokens of a conversation, and the labels: the model's own tokens, and ``IGNORED`` for others."""
    encoded = [(tokenizer.encode(text, add_special_tokens=False), is_own) for text, is_own in parts]
    ids = [token for tokens, _ in encoded for token in tokens]
    return ids, [token if is_own else IGNORED for tokens, is_own in encoded for token in tokens]


def collate(examples: Sequence[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and labels as [B, T]; padding comes last, so that no token attends to it."""
    width = max(len(ids) for ids, _ in examples)
    ids = [ids + [0] * (width - len(ids)) for ids, _ in examples]
    labels = [labels + [IGNORED] * (width - len(labels)) for _, labels in examples]
    return torch.tensor(ids), torch.tensor(labels)


@torch.no_grad()
def shares_repeated(model: nn.Module, examples: Sequence[tuple[list[int], list[int]]]) -> tuple[float, float]:
    """Return the shares of demonstrations that greedy sampling repeats, and that sampling does."""
    greedy = sampled = 0.0
    for begin in range(0, len(examples), BATCH_SIZE):
        ids, labels = collate(examples[begin : begin + BATCH_SIZE])
        wanted, is_own = labels[:, 1:].clamp(min=0), labels[:, 1:] != IGNORED
        logprobs = model(input_ids=ids).logits[:, :-1].log_softmax(dim=-1)
        greedy += float(((logprobs.argmax(dim=-1) == wanted) | ~is_own).all(dim=-1).sum())
        chosen = logprobs.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
        sampled += float((chosen * is_own).sum(dim=-1).exp().sum())
    return greedy / len(examples), sampled / len(examples)


def learning_rate(step: int) -> float:
    """Return the share of the learning rate: rising, then falling to a tenth."""
    if step < WARM_UP_STEPS:
        return (step + 1) / WARM_UP_STEPS
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * step / DECAY_STEPS))


def warm_up(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, task: Task, *, seed: int, rows: dict[str, list[Row]]
) -> int:
    """Teach a model by demonstrations, for as long as the task says; returns the steps that it took."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate)
    chance = random.Random(seed)
    tested: dict[str, list[tuple[list[int], list[int]]]] = {}
    for row in rows["val"][:NUM_TESTED]:
        tested.setdefault(row.get("kind", ""), []).append(encode(tokenizer, task.demonstrate(row, chance)))
    for step in range(1, task.max_steps + 1):
        taught = chance.choices(rows.get("taught", rows["train"]), k=BATCH_SIZE)
        ids, labels = collate([encode(tokenizer, task.demonstrate(row, chance)) for row in taught])
        model(input_ids=ids, labels=labels).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if task.accuracy is None or step % STEPS_BETWEEN_TESTS:
            continue
        shares = [shares_repeated(model, examples) for examples in tested.values()]
        if all(greedy >= task.accuracy and sampled >= task.sampled_accuracy for greedy, sampled in shares):
            break
    return step


def make(task: Task, folder: Path, *, seed: int) -> int:
    """Write rows and a model into a folder; returns the steps that demonstrations took."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = task.make_rows(seed)
    for name, part in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    tokenizer = make_tokenizer(roles=ROLES, tags=TAGS)
    # Few wide layers use a CPU better than many narrow ones.
    model_folder = make_tiny_model(
        folder / "model",
        hidden_size=128,
        num_layers=2,
        num_heads=8,
        num_kv_heads=4,
        seed=seed,
        max_context_tokens=task.max_context_tokens,
        initializer_range=0.06,
        tokenizer=tokenizer,
    )
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    steps = warm_up(model, tokenizer, task, seed=seed, rows=rows)
    model.save_pretrained(model_folder)
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--folder", type=Path, help="default: results/tiny_TASK")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    folder = args.folder or Path(f"results/tiny_{args.task}")
    torch.manual_seed(args.seed)
    # A second thread gains little with so small a model, and much is lost where it waits for its core.
    torch.set_num_threads(1)
    steps = make(TASKS[args.task], folder, seed=args.seed)
    sys.stdout.write(f"{folder}: a model after {steps} steps of demonstrations\n")


if __name__ == "__main__":
    main()
