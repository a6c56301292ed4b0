"""Small vision-language-action policies: those of the golden fixtures, and random ones that observations go into."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from rlinf.config.schema.vla import OpenVLAConfig, OpenVLAOFTConfig
from rlinf.data.messages.embodied import Observation
from rlinf.models import get_policy
from rlinf.models.vla.openvla import OpenVLAPolicy
from rlinf.models.vla.openvla_oft import OpenVLAOFTPolicy
from rlinf.models.vla.prismatic_policy import PrismaticPolicy
from toolkits.vla.make_tiny import TinyShape, write_tiny, write_tokenizer, write_weights
from toolkits.vla.seeded_weights import seeded_images, seeded_weight

GOLDEN = Path(__file__).parents[3] / "golden"
PADDED = 20
STOP_TOKEN = 2
"""Number of the end of a sequence in Llama's vocabulary."""
TASKS = ["reach the green disc", "reach the red disc", "pick up the green disc now"]


@dataclass(frozen=True)
class Golden:
    """A published model at a tiny size.

    Attributes:
        policy: Ours, with its weights.
        record: Its inputs.
        expected: Its outputs.
    """

    policy: PrismaticPolicy
    record: dict[str, torch.Tensor]
    expected: dict[str, torch.Tensor]


def published_names(file: str) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a published model's weights."""
    lines = (line.split() for line in (GOLDEN / file).read_text(encoding="utf-8").splitlines())
    return {name: tuple(int(size) for size in shape.split("x")) for name, shape in lines}


def golden(kind: str, folder: Path) -> Golden:
    """Write the published weights of a fixture to a folder and load them.

    Args:
        kind: Name of the fixture.
        folder: Empty.
    """
    with safe_open(GOLDEN / f"{kind}.safetensors", "pt") as file:
        notes = {name: json.loads(text) for name, text in file.metadata().items()}
    (statistics,) = notes["config"]["norm_stats"].values()
    statistics["proprio"] = {"q01": [-1.0] * 8, "q99": [1.0] * 8}
    write_tokenizer(folder, TinyShape())
    (folder / "config.json").write_text(json.dumps(notes["config"]))
    write_weights(folder, notes["shapes"], weight=seeded_weight)
    num_images = 1 if kind in {"openvla", "oft_tokens"} else 2
    keys: dict[str, Any] = {
        "model_path": str(folder),
        "action_dim": 7,
        "max_prompt_length": PADDED,
        "image_keys": [f"camera{index}" for index in range(num_images)],
    }
    if kind != "openvla":
        parts = {"head": "l1", "use_proprio": True, "state_dim": 8, "use_film": kind == "oft_film"}
        keys |= {"num_action_chunks": 8, **(parts if kind != "oft_tokens" else {})}
    policy = build(kind.split("_", maxsplit=1)[0], **keys)
    policy.inputs.prompts.eos_token_id = STOP_TOKEN
    record = record_of(notes["prompt"], PADDED) | {"state": torch.linspace(-1, 1, 8)[None]}
    for index, image in enumerate(seeded_images(num_images, 42)):
        record[f"images.camera{index}"] = image[None]
    return Golden(policy, record, load_file(GOLDEN / f"{kind}.safetensors"))


def record_of(prompt: list[int], length: int) -> dict[str, torch.Tensor]:
    """Return a prompt as records hold it, with padding behind the first token."""
    ids, mask = torch.zeros(1, length, dtype=torch.int32), torch.zeros(1, length, dtype=torch.bool)
    rest = slice(length - len(prompt) + 1, length)
    ids[0, 0], mask[0, 0] = prompt[0], True
    ids[0, rest], mask[0, rest] = torch.tensor(prompt[1:], dtype=torch.int32), True
    return {"token_ids": ids, "token_mask": mask}


def build(kind: str, **keys: Any) -> PrismaticPolicy:
    """Return a policy from its folder: ``openvla``, or ``oft``."""
    cfg: OpenVLAConfig
    if kind == "openvla":
        cfg = OpenVLAConfig(model_type="openvla", **keys)
    else:
        cfg = OpenVLAOFTConfig(model_type="openvla_oft", **keys)
    return cast(PrismaticPolicy, get_policy(cfg, num_values=1))


def random_policy(kind: str, folder: Path, **keys: Any) -> PrismaticPolicy:
    """Write random weights to a folder, of 3 numbers an action and 2 a state, and load them."""
    torch.manual_seed(0)
    base: dict[str, Any] = {"action_dim": 3, "max_prompt_length": 24}
    if kind == "oft":
        base["num_action_chunks"] = 2
    base |= keys
    if not (folder / "config.json").exists():
        shape = TinyShape(action_dim=3, state_dim=2, num_bins=32, words=tuple(TASKS))
        cfg_class: Any = OpenVLAConfig if kind == "openvla" else OpenVLAOFTConfig
        stored = base | {"state_dim": shape.state_dim if base.get("use_proprio") else None}
        write_tiny(folder, shape, cfg_class(model_type="any", model_path="", **stored))
    return build(kind, model_path=str(folder), **base)


def observations(size: int = 28) -> Observation:
    """Return three observations with sentences of different length."""
    return {
        "main_images": seeded_images(3, size),
        "wrist_images": seeded_images(3, size).flip(0),
        "states": torch.tensor([[0.1, -0.2], [0.5, 0.9], [-2.0, 0.0]]),
        "task_descriptions": TASKS,
    }


def as_openvla(policy: PrismaticPolicy) -> OpenVLAPolicy:
    """Return the policy as what it is."""
    assert isinstance(policy, OpenVLAPolicy)
    return policy


def as_oft(policy: PrismaticPolicy) -> OpenVLAOFTPolicy:
    """Return the policy as what it is."""
    assert isinstance(policy, OpenVLAOFTPolicy)
    return policy
