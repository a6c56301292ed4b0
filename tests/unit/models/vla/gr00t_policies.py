"""A small GR00T N1.5: that of the golden fixture, whose folder observations can go into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rlinf.config.schema.vla import Gr00tConfig
from rlinf.models import get_policy
from rlinf.models.vla.gr00t import Gr00tPolicy
from tests.unit.models.vla.vla_policies import GOLDEN, TASKS
from toolkits.vla.make_tiny import TinyShape, write_gr00t_statistics, write_gr00t_tokenizer
from toolkits.vla.seeded_weights import seeded_weight

STATISTICS: dict[str, Any] = {
    "state": {"arm": {"min": [-1.0, -2.0], "max": [1.0, 2.0]}, "gripper": {"min": [0.5], "max": [0.5]}},
    "action": {"arm": {"min": [-0.1, -0.2], "max": [0.1, 0.4]}, "gripper": {"min": [0.0], "max": [1.0]}},
}


def published() -> dict[str, Any]:
    """Return the notes of the fixture: names and shapes of weights, and configurations."""
    with safe_open(GOLDEN / "gr00t.safetensors", "pt") as file:
        return {name: json.loads(text) for name, text in file.metadata().items()}


def config_of(notes: dict[str, Any]) -> dict[str, Any]:
    """Return the ``config.json`` of the fixture's model."""
    backbone = {"select_layer": 2, "project_to_dim": None, "eagle_path": "of the authors"}
    return {"model_type": "gr00t_n1_5", "action_head_cfg": notes["head"], "backbone_cfg": backbone}


def write_gr00t(folder: Path) -> None:
    """Write a folder as the published code does, with the weights of the fixture and Eagle's folder inside."""
    eagle, notes = folder / "eagle", published()
    eagle.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_of(notes)))
    (eagle / "config.json").write_text(json.dumps(notes["eagle"]))
    write_gr00t_tokenizer(eagle, TinyShape(words=tuple(TASKS)), image_token=notes["eagle"]["image_token_index"])
    write_gr00t_statistics(folder, {"new_embodiment": STATISTICS, "gr1": STATISTICS})
    weights = {name: seeded_weight(name, shape) for name, shape in notes["shapes"].items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def gr00t_policy(folder: Path, **keys: Any) -> Gr00tPolicy:
    """Return a policy of 3 numbers an action and a state, of which 2 actions are executed."""
    if not (folder / "config.json").exists():
        write_gr00t(folder)
    base: dict[str, Any] = {"action_dim": 3, "state_dim": 3, "num_action_chunks": 2, "horizon": 6, "embodiment_id": 2}
    base["eval_start"] = "zeros"
    torch.manual_seed(0)
    cfg = Gr00tConfig(model_type="gr00t", model_path=str(folder), **{**base, "max_prompt_length": 48, **keys})
    policy = get_policy(cfg)
    assert isinstance(policy, Gr00tPolicy)
    return policy


def golden_record() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the inputs of the fixture as our records hold them, and all its tensors."""
    stored = load_file(GOLDEN / "gr00t.safetensors")
    record = {f"images.camera{i}": stored[f"images.{i}"] for i in range(2)}
    record |= {"token_ids": stored["tokens"]} | {name: stored[name] for name in ("token_mask", "state")}
    return record, stored
