"""``vision_lm`` on packs of sequences with images against transformers on one sequence at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.data.packing import PackedSequences, pack_responses
from rlinf.data.prompt_images import ImageProcessor, Images
from rlinf.errors import AlgorithmError, ConfigError
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.models import get_model
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.models.tiny_vision_models import make_tiny_vision_model, picture, stock_logprobs, vision_config

SAME, OTHER, WIDE = picture(3), picture(5), picture(2, size=(140, 90))
ROWS: list[tuple[tuple[int, ...], Images, list[int]]] = [
    ((5, 6, -1, 7, 8), (SAME,), [20, 21, 1]),
    ((5, 6, -1, 7, 8), (OTHER,), [20, 22, 1]),
    ((5, 6, -1, 7, 8), (SAME,), [23, 1]),
    ((5, -1, 9, -1, 7), (WIDE, SAME), [30, 31, 32, 1]),
    ((9, 10, 11), (), [40, 1]),
]
"""Prompts (-1: an image), their images, and responses."""


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_vision_model(tmp_path_factory.mktemp(request.param), family=request.param)


def stock(folder: Path) -> Any:
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()


def pack(folder: Path, *, share: bool) -> tuple[PackedSequences, torch.Tensor, list[tuple[int, ...]]]:
    processor = ImageProcessor(str(folder))
    prompts = [
        processor.expand([processor.token_id if token < 0 else token for token in prompt], images)
        for prompt, images, _ in ROWS
    ]
    responses = [response for *_, response in ROWS]
    packed, is_response = pack_responses(
        prompts, responses, share_prompts=share, images=[images for _, images, _ in ROWS]
    )
    return packed, is_response, prompts


@pytest.mark.parametrize("share", [False, True])
def test_logprobs_and_gradients_of_a_pack_are_those_of_each_sequence_alone(folder: Path, share: bool) -> None:
    reference, processor = stock(folder), ImageProcessor(str(folder))
    model = get_model(vision_config(folder))
    packed, is_response, prompts = pack(folder, share=share)
    found = model(packed, scored=is_response).logprobs
    expected = [
        stock_logprobs(reference, processor, prompt, images, response)
        for prompt, (_, images, response) in zip(prompts, ROWS, strict=True)
    ]
    for end, one in zip(packed.boundaries[1:], expected, strict=True):
        torch.testing.assert_close(found[packed.places[end - len(one) : end]], one, rtol=0, atol=1e-5)
    assert (packed.num_tokens < sum(packed.lengths)) == share
    found.sum().backward()
    torch.cat(expected).sum().backward()
    gradients = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name].grad, rtol=1e-3, atol=1e-4, msg=name)


def test_only_prompts_with_the_same_images_share_their_tokens(folder: Path) -> None:
    packed, _, prompts = pack(folder, share=True)
    assert packed.shared == (0, 0, len(prompts[2]), 0, 0)


def test_a_placeholder_that_the_model_samples_is_text(folder: Path) -> None:
    processor = ImageProcessor(str(folder))
    prompt = processor.expand([5, processor.token_id, 7], (SAME,))
    model = get_model(vision_config(folder))
    rows = []
    for last in (20, processor.token_id):
        packed, is_response = pack_responses([prompt], [[21, last, 22]], images=[(SAME,)])
        rows.append(model(packed, scored=is_response).logprobs[is_response])
    torch.testing.assert_close(rows[0][:1], rows[1][:1])
    assert torch.isfinite(rows[1]).all()


def test_a_prompt_that_was_not_expanded_is_refused(folder: Path) -> None:
    token = ImageProcessor(str(folder)).token_id
    packed, is_response = pack_responses([(5, token, 7)], [[20]], images=[(SAME,)])
    with pytest.raises(AlgorithmError, match=r"1 image placeholders.*16 tokens"):
        get_model(vision_config(folder))(packed, scored=is_response)


def test_a_frozen_tower_learns_nothing_and_everything_else_does(folder: Path) -> None:
    model = get_model(vision_config(folder, freeze_vision=True))
    packed, is_response, _ = pack(folder, share=True)
    model(packed, scored=is_response).logprobs.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None) == (".visual." not in name), name
    assert not any(".visual." in name for name, unit in model.named_modules() if unit in model.recompute_units())


def one_rank(rank: int, folder: Path, strategy: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Train on images on the first rank, and on text alone on the second."""
    packed, is_response = pack_responses([(9, 10, 11)], [[40, 1]])
    if rank == 0:
        packed, is_response, _ = pack(folder, share=True)
    engine = FSDPEngine(
        get_model(vision_config(folder), on_meta=True),
        optim=OptimConfig(lr=1e-2),
        fsdp=FSDPConfig(sharding_strategy=strategy),
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=2,
    )

    def use(result: Any, batch: Any) -> Any:
        return -result.logprobs.sum(), {}

    engine.forward_backward([packed], Pass(lambda model, batch: model(batch, scored=is_response), use))
    norm = engine.step()
    return list(norm.values()), {name: tensor.clone() for name, tensor in engine.export_weights()}


@pytest.mark.parametrize("strategy", ["full_shard", "no_shard"])
def test_ranks_with_and_without_images_train_together(tmp_path: Path, strategy: str) -> None:
    folder = make_tiny_vision_model(tmp_path / "model")
    (norm, first), (other_norm, second) = run_ranks(2, one_rank, folder, strategy, limit_seconds=120)
    assert norm == other_norm
    assert all(torch.equal(first[name], second[name]) for name in first)
    start = dict(stock(folder).state_dict())
    assert any(not torch.equal(tensor, start[name]) for name, tensor in first.items() if ".visual." in name)


def test_another_family_is_refused_with_those_that_are_taken(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "qwen2_vl"}))
    with pytest.raises(ConfigError, match=r"qwen2_vl; model_type=vision_lm takes qwen2_5_vl, qwen3_vl"):
        get_model(vision_config(tmp_path))
