"""Small pi-0 and pi-0.5: those of the golden fixtures, and random ones that observations go into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rlinf.config.schema.vla import PiConfig
from rlinf.models import get_policy
from rlinf.models.vla.openpi import PiPolicy
from tests.unit.models.vla.vla_policies import GOLDEN, TASKS
from toolkits.vla.make_tiny import TinyShape, write_tokenizer
from toolkits.vla.seeded_weights import seeded_weight

CAMERAS = ["base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"]
GEMMA: dict[str, Any] = {"depth": 2, "num_heads": 8, "num_kv_heads": 1, "head_dim": 4}
CONFIG: dict[str, Any] = {
    "action_dim": 8,
    "action_horizon": 6,
    "paligemma_variant": {"width": 24, "mlp_dim": 48, **GEMMA},
    "action_expert_variant": {"width": 16, "mlp_dim": 32, **GEMMA},
    "vocab_size": 320,
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    },
}
STATISTICS = {"mean": [0.1, 0.2, 0.3], "std": [1.0, 2.0, 0.5], "q01": [-1.0, -2.0, -1.0], "q99": [1.0, 2.0, 1.0]}


def shapes_of(variant: str) -> dict[str, list[int]]:
    """Return the published names and shapes."""
    with safe_open(GOLDEN / f"{variant}.safetensors", "pt") as file:
        shapes: dict[str, list[int]] = json.loads(file.metadata()["shapes"])
    return shapes


def write_pi(folder: Path, variant: str) -> None:
    """Write a folder in the layout of openpi, with the weights of the fixtures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "assets" / "tiny").mkdir(parents=True, exist_ok=True)
    statistics = {"norm_stats": {"state": STATISTICS, "actions": STATISTICS}}
    (folder / "assets" / "tiny" / "norm_stats.json").write_text(json.dumps(statistics))
    tensors = {name: seeded_weight(name, shape) for name, shape in shapes_of(variant).items()}
    # Published files hold tied weights under one of their names.
    tensors.pop("paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder, TinyShape(words=tuple(TASKS)))


def pi_policy(folder: Path, variant: str, **keys: Any) -> PiPolicy:
    """Return a policy of 3 numbers an action and a state, of which 2 actions are executed."""
    if not (folder / "config.json").exists():
        write_pi(folder, variant)
    base: dict[str, Any] = {
        "action_dim": 3,
        "state_dim": 3,
        "num_action_chunks": 2,
        "horizon": 6,
        "num_steps": 5,
        "eval_start": "zeros",
        "max_prompt_length": 32,
        "variant": variant,
        "norm_scheme": "quantiles" if variant == "pi05" else "mean_std",
    }
    torch.manual_seed(0)
    policy = get_policy(PiConfig(model_type="openpi", model_path=str(folder), **{**base, **keys}))
    assert isinstance(policy, PiPolicy)
    return policy


def golden_record(variant: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the inputs of a fixture as our records hold them, and all its tensors."""
    stored = load_file(GOLDEN / f"{variant}.safetensors")
    record = {f"images.{name}": ((stored[f"images.{name}"] + 1) * 127.5).round() for name in CAMERAS}
    record = {name: image.permute(0, 2, 3, 1).to(torch.uint8) for name, image in record.items()}
    record["image_mask"] = torch.stack([stored[f"image_masks.{name}"] for name in CAMERAS], 1)
    record |= {"token_ids": stored["tokens"], "token_mask": stored["token_mask"], "state": stored["state"]}
    return record, stored
