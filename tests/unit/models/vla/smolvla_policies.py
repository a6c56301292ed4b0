"""A small SmolVLA: that of the golden fixture, whose folder observations can go into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rlinf.config.schema.vla import SmolVLAConfig
from rlinf.models import get_policy
from rlinf.models.vla.smolvla import SmolVLAPolicy
from tests.unit.models.vla.vla_policies import GOLDEN, TASKS
from toolkits.vla.make_tiny import TinyShape, write_tokenizer
from toolkits.vla.seeded_weights import seeded_weight

CONFIG: dict[str, Any] = {
    "type": "smolvla",
    "vlm_model_name": "vlm",
    "max_action_dim": 8,
    "max_state_dim": 8,
    "num_vlm_layers": 4,
    "self_attn_every_n_layers": 2,
    "expert_width_multiplier": 0.75,
    "resize_imgs_with_padding": [32, 32],
}
STATISTICS = {"mean": torch.tensor([0.1, 0.2, 0.3]), "std": torch.tensor([1.0, 2.0, 0.5])}


def published() -> dict[str, Any]:
    """Return the notes of the fixture: names and shapes of weights, and the vision-language model's configuration."""
    with safe_open(GOLDEN / "smolvla.safetensors", "pt") as file:
        return {name: json.loads(text) for name, text in file.metadata().items()}


def write_smolvla(folder: Path) -> None:
    """Write a folder as LeRobot does, with the weights of the fixture and the vision-language model's folder inside."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    notes = published()
    weights = {name: seeded_weight(name.removeprefix("model."), shape) for name, shape in notes["shapes"].items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    entries = ("action", "observation.state")
    statistics = {f"{entry}.{name}": value.clone() for entry in entries for name, value in STATISTICS.items()}
    save_file(statistics, folder / "policy_preprocessor_step_5_normalizer_processor.safetensors")
    (folder / "vlm").mkdir(exist_ok=True)
    (folder / "vlm" / "config.json").write_text(json.dumps({"model_type": "smolvlm", **notes["vlm"]}))
    write_tokenizer(folder / "vlm", TinyShape(words=tuple(TASKS)))


def smolvla_policy(folder: Path, **keys: Any) -> SmolVLAPolicy:
    """Return a policy of 3 numbers an action and a state, of which 2 actions are executed."""
    if not (folder / "config.json").exists():
        write_smolvla(folder)
    base: dict[str, Any] = {"action_dim": 3, "state_dim": 3, "num_action_chunks": 2, "horizon": 6, "num_steps": 5}
    base["eval_start"] = "zeros"
    torch.manual_seed(0)
    policy = get_policy(SmolVLAConfig(model_type="smolvla", model_path=str(folder), **{**base, **keys}))
    assert isinstance(policy, SmolVLAPolicy)
    return policy


def golden_record() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the inputs of the fixture as our records hold them, and all its tensors."""
    stored = load_file(GOLDEN / "smolvla.safetensors")
    record = {f"images.camera{i}": stored[f"images.{i}"] for i in range(2)}
    record |= {"token_ids": stored["tokens"]} | {name: stored[name] for name in ("image_mask", "token_mask", "state")}
    return record, stored
