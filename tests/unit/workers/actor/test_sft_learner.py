"""Fine-tuning is the same however the work is cut up, and its yardstick is transformers itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import RLinfConfig
from rlinf.data.datasets.examples import Example
from rlinf.data.prompt_images import ImageProcessor
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor.sft_learner import SftLearner
from tests.ranks import run_ranks
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.models.tiny_vision_models import make_tiny_vision_model, picture, stock_logprobs

pytest.importorskip("transformers")

SIZES = [(3, 5), (3, 2), (3, 4), (3, 1), (1, 7), (1, 1), (1, 3), (1, 9)]
"""Tokens before the first one that is learned, and of the rest."""
BASE = (
    "data.max_length=12",
    "actor.global_batch_size=4",
    "actor.micro_batch_size=2",
    "actor.optim.lr=0.01",
    "actor.optim.lr_scheduler=constant",
    "~actor.optim.min_lr_ratio",
)
SAMPLES = ("runner.enable_dynamic_batch_size=false", "~runner.max_tokens_per_mbs")


def config(folder: Path, *overrides: str) -> RLinfConfig:
    return validate_cfg(load_recipe("tiny_math_sft", [*BASE, f"actor.model.model_path={folder}", *overrides]))


def make_learner(
    cfg: RLinfConfig, *, dtype: torch.dtype = torch.float32, rank: int = 0, world_size: int = 1
) -> SftLearner:
    torch.manual_seed(0)
    engine = FSDPEngine(
        get_model(cfg.actor.model).to(dtype),
        optim=cfg.actor.optim,
        fsdp=cfg.actor.fsdp_config,
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=world_size,
    )
    return SftLearner(engine, cfg=cfg)


def make_examples() -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    examples = []
    for number, (before, rest) in enumerate(SIZES):
        tokens = torch.randint(0, 40, (before + rest,), generator=generator).tolist()
        mask = [True] * rest
        if rest > 4:
            mask[1:3] = [False, False]  # A second question.
        if number == 2:
            mask[-2] = False
        examples.append(
            Example(prompt_ids=tuple(tokens[:before]), answer_ids=tuple(tokens[before:]), loss_mask=tuple(mask))
        )
    return examples


def loss_by_transformers(
    folder: Path, examples: Any, dtype: torch.dtype = torch.float64
) -> tuple[Any, Any, dict[str, torch.Tensor | None]]:
    """Return the loss of transformers on a padded batch with its own labels, and the model with its gradient."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    width = max(len(e.prompt_ids) + len(e.answer_ids) for e in examples)
    rows = []
    for example in examples:
        tokens = [*example.prompt_ids, *example.answer_ids]
        learned = [False] * len(example.prompt_ids) + list(example.loss_mask)
        gap = width - len(tokens)
        wanted = [token if taken else -100 for token, taken in zip(tokens, learned, strict=True)]
        rows.append((tokens + [0] * gap, [1] * len(tokens) + [0] * gap, wanted + [-100] * gap))
    ids, mask, labels = (torch.tensor([row[part] for row in rows]) for part in range(3))
    output = model(input_ids=ids, attention_mask=mask, labels=labels)
    output.loss.backward()
    right = (output.logits[:, :-1].argmax(-1) == labels[:, 1:])[labels[:, 1:] != -100]
    return output.loss.item(), right.double().mean().item(), {n: p.grad for n, p in model.named_parameters()}


def gradient(cfg: RLinfConfig, dtype: torch.dtype = torch.float64, **where: Any) -> dict[str, Any]:
    """The accumulated gradient of one update batch of all examples."""
    learner = make_learner(cfg, dtype=dtype, **where)
    learner.compute_advantages(make_examples())
    learner.forward_backward(learner.pack(learner.samples))
    parameters = learner.engine.model.named_parameters()
    found = {name: p.grad for name, p in parameters if p.grad is not None}
    return {name: g.full_tensor() if hasattr(g, "full_tensor") else g for name, g in found.items()}


def difference(actual: dict[str, Any], expected: dict[str, torch.Tensor | None]) -> float:
    assert set(actual) == set(expected)
    one, other = (torch.cat([g[name].flatten() for name in sorted(expected)]).double() for g in (actual, expected))
    assert other.norm() > 1e-3
    return ((one - other).norm() / other.norm()).item()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return folder


BUDGETS = [
    ("runner.max_tokens_per_mbs=100",),  # All in one pass.
    ("runner.max_tokens_per_mbs=12",),
    *((*SAMPLES, f"actor.micro_batch_size={size}") for size in (1, 3, 8)),
]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
def test_the_gradient_is_that_of_transformers_packed_or_not(folder: Path, dtype: torch.dtype, tolerance: float) -> None:
    _, _, expected = loss_by_transformers(folder, make_examples())
    for budget in BUDGETS:
        assert difference(gradient(config(folder, *budget), dtype), expected) < tolerance, budget


def test_an_evaluation_measures_what_transformers_measures(folder: Path) -> None:
    examples = make_examples()
    loss, accuracy, _ = loss_by_transformers(folder, examples)
    for budget in BUDGETS:
        learner = make_learner(config(folder, *budget))
        assert learner.evaluate(examples) == pytest.approx({"loss": loss, "token_accuracy": accuracy}, rel=1e-5)
        assert all(p.grad is None for p in learner.engine.model.parameters())


def train(cfg: RLinfConfig, *, steps: int = 3, **where: int) -> tuple[torch.Tensor, list[Any]]:
    """Make steps of two optimizer updates; return the weights and all metrics."""
    learner = make_learner(cfg, **where)
    metrics = []
    for step in range(1, steps + 1):
        learner.compute_advantages(make_examples())
        metrics.append(learner.update(step))
    metrics.append(learner.evaluate(make_examples()))
    return torch.cat([tensor.flatten() for _, tensor in learner.engine.export_weights()]), metrics


def assert_same(found: Any, expected: Any) -> None:
    assert (found[0] - expected[0]).abs().max() < 2e-5
    for one, other in zip(found[1], expected[1], strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4)


def test_examples_are_learned_batch_by_batch_in_their_order(folder: Path) -> None:
    examples = make_examples()
    _, metrics = train(config(folder, "runner.max_tokens_per_mbs=16"), steps=1)
    learner = make_learner(config(folder))
    losses = []
    for half in (examples[:4], examples[4:]):
        learner.compute_advantages(half)
        losses.append(learner.update(1)["loss"])
    assert metrics[0]["loss"] == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert losses[0] == pytest.approx(loss_by_transformers(folder, examples[:4])[0], rel=1e-5)


def test_the_examples_are_learned(folder: Path) -> None:
    _, metrics = train(config(folder), steps=40)
    assert metrics[0]["loss"] > 1.0
    assert metrics[-1]["loss"] < 0.2
    assert metrics[-1]["token_accuracy"] == 1.0


RANKED = [
    ("no_shard", ()),
    ("full_shard", ("runner.max_tokens_per_mbs=16",)),
    ("full_shard", ("actor.model.is_lora=true", "actor.model.lora_rank=2")),
]


def run_rank(rank: int, port: int, folder: Path, results: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    found = []
    for sharding, keys in RANKED:
        cfg = config(folder, f"actor.fsdp_config.sharding_strategy={sharding}", *keys)
        found.append(train(cfg, rank=rank, world_size=2))
    if rank == 0:
        torch.save(found, results)


def test_two_ranks_make_the_updates_of_one(folder: Path, tmp_path: Path) -> None:
    run_ranks(run_rank, find_free_port(), str(folder), str(tmp_path / "found.pt"))
    for (_, keys), (weights, metrics) in zip(RANKED, torch.load(tmp_path / "found.pt"), strict=True):
        assert_same((weights, metrics), train(config(folder, *keys)))


def test_an_evaluation_counts_the_examples_of_all_ranks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(config(folder))
    alone = learner.evaluate(make_examples())
    other = torch.tensor([10.0, 0.0, 10.0], dtype=torch.float64)
    sums = []
    monkeypatch.setattr(learner.engine, "all_reduce", lambda tensor: sums.append(tensor) or tensor + other)
    together = learner.evaluate(make_examples())
    loss, right, count = (sums[0] + other).tolist()
    assert together == pytest.approx({"loss": loss / count, "token_accuracy": right / count})
    assert together != pytest.approx(alone)


def test_examples_with_images_are_learned_as_transformers_sees_them(tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText

    folder = make_tiny_vision_model(tmp_path / "model")
    processor = ImageProcessor(str(folder))
    image = processor.token_id
    rows: list[Any] = [((5, image, 7), (picture(3),)), ((5, image, 7), (picture(5),)), ((9, 10), ())]
    examples = [
        Example(
            prompt_ids=processor.expand(prompt, images), answer_ids=(20, 21, 22), loss_mask=(True, False, True),
            images=images,
        )
        for prompt, images in rows
    ]  # fmt: skip
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    found = [stock_logprobs(model, processor, e.prompt_ids, e.images, e.answer_ids) for e in examples]
    loss = -torch.stack(found)[:, [0, 2]].mean()
    loss.backward()
    cfg = config(folder, "actor.model.model_type=vision_lm", "data.max_length=64", "runner.max_tokens_per_mbs=100")
    learner = make_learner(cfg)
    assert learner.evaluate(examples)["loss"] == pytest.approx(loss.item(), rel=1e-5)
    learner.compute_advantages(examples)
    learner.forward_backward(learner.pack(learner.samples))
    mine = {name: p.grad for name, p in learner.engine.model.named_parameters() if p.grad is not None}
    tower = [(g, mine[name]) for name, p in model.named_parameters() if (g := p.grad) is not None and name in mine]
    assert len(tower) > 10
    for expected, got in tower:
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-5)
