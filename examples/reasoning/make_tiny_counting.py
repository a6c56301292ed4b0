"""Make what the recipe ``tiny_counting_grpo`` starts from: pictures of squares, and a tiny model that counts some.

python examples/reasoning/make_tiny_counting.py                 # into results/tiny_counting, two minutes
python examples/reasoning/make_tiny_counting.py --accuracy 0.3  # a model that counts worse from the start
"""

from __future__ import annotations

import argparse
import io
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1]))
import needed

needed.check_packages(__file__)

import torch
from datasets import Dataset
from make_tiny_vision_model import FAMILIES, make_tiny_vision_model
from PIL import Image, ImageDraw
from torch import nn
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

QUESTION = "count"
IMAGE_SIZE, SQUARE_SIZE, MAX_SQUARES = 112, 12, 6
BATCH_SIZE, LEARNING_RATE = 64, 2e-3
MAX_STEPS, WARM_UP_STEPS, STEPS_BETWEEN_TESTS = 600, 20, 10
NUM_TESTED = 192


class Row(NamedTuple):
    """A picture and how many squares it shows."""

    image: bytes
    answer: str


def draw(chance: random.Random) -> Row:
    """Return a picture of 1 to 6 squares that do not touch."""
    count = chance.randint(1, MAX_SQUARES)
    corners: list[tuple[int, int]] = []
    while len(corners) < count:
        x, y = (chance.randrange(IMAGE_SIZE - SQUARE_SIZE) for _ in range(2))
        if all(max(abs(x - a), abs(y - b)) > SQUARE_SIZE for a, b in corners):
            corners.append((x, y))
    picture = Image.new("RGB", (IMAGE_SIZE, IMAGE_SIZE), "white")
    pen = ImageDraw.Draw(picture)
    for x, y in corners:
        pen.rectangle((x, y, x + SQUARE_SIZE - 1, y + SQUARE_SIZE - 1), fill=chance.choice(("black", "red", "blue")))
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return Row(buffer.getvalue(), str(count))


def write_rows(folder: Path, *, num_train: int, num_val: int, seed: int) -> list[Row]:
    """Write rows to train on, rows to evaluate on, and the latter with each other's images; return the first.

    Whoever answers without looking is as good on ``val_swapped`` as on ``val``.
    """
    chance = random.Random(seed)
    rows = [draw(chance) for _ in range(num_train + num_val)]
    train, val = rows[num_val:], rows[:num_val]
    swapped = [Row(other.image, row.answer) for row, other in zip(val, val[1:] + val[:1], strict=True)]
    for name, part in (("train", train), ("val", val), ("val_swapped", swapped)):
        columns = {"image": [row.image for row in part], "answer": [row.answer for row in part]}
        Dataset.from_dict(columns | {"question": [QUESTION] * len(part)}).to_parquet(folder / f"{name}.parquet")
    return train


class Examples:
    """Rows as the stock model of transformers reads them.

    Args:
        folder: Of the model.
    """

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
        self.image_token = self.tokenizer.convert_tokens_to_ids("<|image_pad|>")

    def batch(self, rows: list[Row]) -> dict[str, Any]:
        """Return the arguments of the model: all prompts and answers are equally long."""
        pictures = [Image.open(io.BytesIO(row.image)).convert("RGB") for row in rows]
        seen = self.processor(images=pictures, return_tensors="pt")
        size = int(seen["image_grid_thw"][0].prod()) // self.processor.merge_size**2
        content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        prompt = [
            token
            for each in self.tokenizer.encode(text, add_special_tokens=False)
            for token in [each] * (size if each == self.image_token else 1)
        ]
        end = self.tokenizer.eos_token_id
        ids = torch.tensor([[*prompt, *self.tokenizer.encode(row.answer), end] for row in rows])
        labels = ids.clone()
        labels[:, : len(prompt)] = -100
        return {
            "input_ids": ids,
            "labels": labels,
            "mm_token_type_ids": (ids == self.image_token).int(),
            "pixel_values": seen["pixel_values"],
            "image_grid_thw": seen["image_grid_thw"],
        }


def warm_up(model_folder: Path, rows: list[Row], *, accuracy: float, seed: int) -> tuple[int, float]:
    """Teach the model by examples until it counts so many right that it has not seen, and save it.

    Returns:
        The steps that it took, and the share that it counts right by then.
    """
    model, examples = AutoModelForImageTextToText.from_pretrained(model_folder), Examples(model_folder)
    tested, seen = rows[:NUM_TESTED], rows[NUM_TESTED:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARM_UP_STEPS))
    chance = random.Random(seed)
    step, right = 0, 0.0
    while step < MAX_STEPS and right < accuracy:
        model(**examples.batch(chance.sample(seen, BATCH_SIZE))).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        step += 1
        if step % STEPS_BETWEEN_TESTS == 0:
            right = share_right(model, examples.batch(tested))
    model.save_pretrained(model_folder)
    return step, right


@torch.no_grad()
def share_right(model: nn.Module, batch: dict[str, Any]) -> float:
    """Return the share of rows whose answer is the likeliest at each of its tokens: what greedy search finds."""
    labels = batch["labels"][:, 1:]
    chosen = model(**batch).logits[:, :-1].argmax(-1)
    return float(((chosen == labels) | (labels == -100)).all(1).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("results/tiny_counting"))
    parser.add_argument("--accuracy", type=float, default=0.4, help="greedy accuracy at which the examples end")
    parser.add_argument("--family", choices=FAMILIES, default=FAMILIES[0])
    parser.add_argument("--num-train", type=int, default=4000)
    parser.add_argument("--num-val", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    rows = write_rows(args.folder, num_train=args.num_train, num_val=args.num_val, seed=args.seed)
    model = make_tiny_vision_model(args.folder / "model", family=args.family, seed=args.seed)
    steps, right = warm_up(model, rows, accuracy=args.accuracy, seed=args.seed)
    sys.stdout.write(f"The model in {model} counts {right:.0%} right after {steps} steps of examples.\n")


if __name__ == "__main__":
    main()
