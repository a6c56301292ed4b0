"""Build a tiny vision-language model with a character tokenizer on disk: Qwen2.5-VL or Qwen3-VL with random weights.

python examples/reasoning/make_tiny_vision_model.py /tmp/tiny_vision_model
python examples/reasoning/make_tiny_vision_model.py /tmp/tiny_vision_model --family qwen3_vl
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path += [str(folder) for folder in Path(__file__).resolve().parents[:2]]
import needed

needed.check_packages(__file__)

import torch
import transformers
from make_tiny_model import VOCAB_SIZE, make_tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

FAMILIES = ("qwen2_5_vl", "qwen3_vl")
PATCH_SIZE, MERGE_SIZE = 14, 2
IMAGE_TOKENS = {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>", "image": "<|image_pad|>"}
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ '<|im_end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
"""As that of ``make_tiny_model``, with a placeholder for each image."""


def make_vision_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token for each printable character, and special ones for roles, ends and images."""
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(IMAGE_TOKENS.values())})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_tiny_vision_model(
    folder: Path, *, family: str = "qwen2_5_vl", hidden_size: int = 128, num_layers: int = 2, seed: int = 0
) -> Path:
    """Write a vision-language model with random weights, its tokenizer and its image processor.

    Args:
        folder: Where to; made if it does not exist.
        family: One of ``FAMILIES``.
        hidden_size: Width of the language model and, halved, of the vision tower.
        num_layers: Layers of each.
        seed: Of the weights.

    Returns:
        The folder.
    """
    tokenizer = make_vision_tokenizer()
    names = {"qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}
    config_class = getattr(transformers, f"{names[family]}Config")
    model_class = getattr(transformers, f"{names[family]}ForConditionalGeneration")
    config = config_class(
        text_config=_text_settings(family, hidden_size, num_layers, tokenizer),
        vision_config=_vision_settings(family, hidden_size, num_layers),
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE_TOKENS["image"]),
        vision_start_token_id=tokenizer.convert_tokens_to_ids(IMAGE_TOKENS["vision_start"]),
        vision_end_token_id=tokenizer.convert_tokens_to_ids(IMAGE_TOKENS["vision_end"]),
        video_token_id=VOCAB_SIZE - 1,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    Qwen2VLImageProcessorPil(
        patch_size=PATCH_SIZE,
        merge_size=MERGE_SIZE,
        temporal_patch_size=2,
        size={"shortest_edge": (PATCH_SIZE * MERGE_SIZE) ** 2, "longest_edge": 224 * 224},
    ).save_pretrained(folder)
    return folder


def _text_settings(
    family: str, hidden_size: int, num_layers: int, tokenizer: PreTrainedTokenizerFast
) -> dict[str, Any]:
    head_dim = hidden_size // 4
    section = [head_dim // 2 - 2 * (head_dim // 6), head_dim // 6, head_dim // 6]
    settings: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": head_dim,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.06,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": section},
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    return settings


def _vision_settings(family: str, hidden_size: int, num_layers: int) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "depth": num_layers,
        "hidden_size": hidden_size // 2,
        "intermediate_size": hidden_size,
        "num_heads": 2,
        "patch_size": PATCH_SIZE,
        "spatial_merge_size": MERGE_SIZE,
        "temporal_patch_size": 2,
        "out_hidden_size": hidden_size,
        "initializer_range": 0.06,
    }
    if family == "qwen2_5_vl":
        return settings | {"window_size": 4 * PATCH_SIZE * MERGE_SIZE, "fullatt_block_indexes": [num_layers - 1]}
    return settings | {"deepstack_visual_indexes": [0], "num_position_embeddings": 64}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--family", choices=FAMILIES, default=FAMILIES[0])
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    make_tiny_vision_model(
        args.folder, family=args.family, hidden_size=args.hidden_size, num_layers=args.num_layers, seed=args.seed
    )


if __name__ == "__main__":
    main()
