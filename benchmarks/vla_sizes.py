"""Vision-language-action policies for benchmarks: small ones, and published ones at their full size with few layers.

A full-size model is never made whole but on device ``meta``, where it has no memory. With weights it has a few layers
of each stack, of their published sizes, and few words: rows of words are looked up, and their number costs no time.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import nn

WORDS = "pick up the red cube"
SIZE, CHUNK = 64, 5
"""Pixels and actions of small policies."""
SMALL_VOCABULARY = 512
KINDS = ("openvla", "openvla_oft", "openpi", "openpi_pi05", "smolvla", "gr00t")
FLOWS = KINDS[2:]
LANGUAGE = {"openvla": "llama", "openvla_oft": "llama", "openpi": "gemma_2b", "openpi_pi05": "gemma_2b"}
LANGUAGE |= {"smolvla": "smollm2", "gr00t": "qwen3"}
"""Which stack reads words."""


@dataclass(frozen=True)
class Stack:
    """Layers of equal cost.

    Attributes:
        layers: Those that the model has, in their order.
        kinds: How many kinds of layers take turns.
    """

    layers: Sequence[nn.Module]
    kinds: int = 1


def stacks_of(kind: str, policy: Any) -> dict[str, Stack]:
    """Return the stacks of a policy as a pass runs them, which leaves out the last block of OpenVLA's towers."""
    if kind.startswith("openvla"):
        dino, siglip = policy.vision_backbone.towers
        towers = {"dinov2": Stack(list(dino.blocks)[:-1]), "siglip": Stack(list(siglip.blocks)[:-1])}
        return towers | {"llama": Stack(list(policy.language_model.model.layers))}
    if kind.startswith("openpi"):
        model = policy.paligemma_with_expert
        return {
            "siglip": Stack(list(model.parts["vision_tower"]["vision_model"].encoder.layers)),
            "gemma_2b": Stack(list(model.parts["language_model"].layers)),
            "gemma_300m": Stack(list(model.expert.layers)),
        }
    if kind == "smolvla":
        model = policy.vlm_with_expert
        return {
            "siglip": Stack(list(model.parts["vision_model"].encoder.layers)),
            "smollm2": Stack(list(model.parts["text_model"].layers)),
            "expert": Stack(list(model.lm_expert.layers), kinds=2),
        }
    parts, head = policy.backbone.parts, policy.action_head
    return {
        "siglip": Stack(list(parts.vision.encoder.layers)),
        "qwen3": Stack(list(parts.language.layers)),
        "mixing": Stack(list(head.vl_self_attention.transformer_blocks)),
        "diffusion": Stack(list(head.model.transformer_blocks), kinds=2),
    }


def freeze_prefix(kind: str, policy: Any) -> None:
    """Train the flow's expert alone, as published RL does (``freeze: [vision, projector, language]``)."""
    if kind == "gr00t":
        policy.backbone.requires_grad_(False)
        return
    model = policy.vlm_with_expert if kind == "smolvla" else policy.paligemma_with_expert
    for part in model.parts.values():
        part.requires_grad_(False)


def tiny_policy(kind: str) -> Any:
    """Return a small policy of the ``langpick`` recipes' sizes, with a value head."""
    from rlinf.config.schema.vla import Gr00tConfig, OpenVLAConfig, OpenVLAOFTConfig, PiConfig, SmolVLAConfig
    from rlinf.models import get_policy
    from toolkits.vla.make_tiny import TinyShape, write_tiny, write_tiny_gr00t, write_tiny_pi, write_tiny_smolvla

    shape = TinyShape(
        image_size=SIZE,
        patch_size=8,
        action_dim=4,
        state_dim=4,
        width=128,
        num_layers=4,
        vision_width=96,
        vision_layers=3,
        words=(WORDS,),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keys: dict[str, Any] = {"model_path": name, "action_dim": 4, "add_value_head": True, "value_hidden_dims": [64]}
        keys |= {"num_action_chunks": 1 if kind == "openvla" else CHUNK}
        flow = keys | {"state_dim": 4, "horizon": 10, "num_steps": 4}
        cfg: Any
        if kind.startswith("openvla"):
            config: Any = OpenVLAConfig if kind == "openvla" else OpenVLAOFTConfig
            cfg = config(model_type=kind, max_prompt_length=20, **keys)
            write_tiny(folder, shape, cfg)
        elif kind.startswith("openpi"):
            variant: Any = "pi05" if kind == "openpi_pi05" else "pi0"
            cfg = PiConfig(model_type="openpi", variant=variant, max_prompt_length=32, **flow)
            write_tiny_pi(folder, shape, cfg)
        elif kind == "smolvla":
            cfg = SmolVLAConfig(model_type=kind, max_prompt_length=20, **flow)
            write_tiny_smolvla(folder, shape)
        else:
            cfg = Gr00tConfig(model_type=kind, max_prompt_length=96, **flow)
            write_tiny_gr00t(folder, shape, horizon=10)
        torch.manual_seed(0)
        return get_policy(cfg)


def tiny_observations(count: int) -> dict[str, Any]:
    """Return observations of small policies."""
    return {
        "main_images": torch.randint(0, 256, (count, SIZE, SIZE, 3), dtype=torch.uint8),
        "states": torch.zeros(count, 4),
        "task_descriptions": [WORDS] * count,
    }


def full_policy(kind: str, repeats: int | None) -> Any:
    """Return a policy at its full size, which sees one environment: noise and words.

    Args:
        kind: One of ``KINDS``.
        repeats: How often a stack has each of its kinds of layers; None is as often as the published model, and with
            all its words.
    """
    return _BUILDERS[kind](repeats)


def _record(images: Mapping[str, int], tokens: torch.Tensor, *, state_dim: int | None = None) -> dict[str, Any]:
    """Return what a policy keeps of an observation.

    Args:
        images: Sides of the images in pixels by name.
        tokens: Of the prompt, [L].
        state_dim: Width of padded states; None keeps none.
    """
    record: dict[str, Any] = {
        f"images.{name}": torch.zeros(1, side, side, 3, dtype=torch.uint8) for name, side in images.items()
    }
    record |= {"token_ids": tokens.int().unsqueeze(0), "token_mask": torch.ones(1, len(tokens), dtype=torch.bool)}
    return record if state_dim is None else record | {"state": torch.zeros(1, state_dim)}


def _inputs(record: dict[str, Any]) -> Any:
    """Return what stands for a policy's inputs: every observation gives the same record."""
    return SimpleNamespace(
        record=lambda obs, device: {name: tensor.to(device) for name, tensor in record.items()},
        to_actions=lambda predicted, obs: predicted,
        actions=SimpleNamespace(restore=lambda numbers: numbers),
        prompts=SimpleNamespace(eos_token_id=2),
    )


def _openvla(repeats: int | None) -> Any:
    from rlinf.config.schema.vla import OpenVLAConfig
    from rlinf.models.vla.openvla import OpenVLAPolicy

    cfg = OpenVLAConfig(model_type="openvla", model_path="", action_dim=7)
    return OpenVLAPolicy(cfg, _prismatic_shape(repeats), _prismatic_inputs(), num_values=1)


def _openvla_oft(repeats: int | None) -> Any:
    from rlinf.config.schema.vla import OpenVLAOFTConfig
    from rlinf.models.vla.openvla_oft import OpenVLAOFTPolicy

    cfg = OpenVLAOFTConfig(model_type="openvla_oft", model_path="", action_dim=7, num_action_chunks=8)
    return OpenVLAOFTPolicy(cfg, _prismatic_shape(repeats), _prismatic_inputs())


def _prismatic_inputs() -> Any:
    return _inputs(_record({"main_images": 224}, torch.ones(32)))


def _prismatic_shape(repeats: int | None) -> Any:
    from rlinf.models.vla.prismatic import PrismaticShape
    from rlinf.models.vla.vision_tower import TOWERS

    names = ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"]
    # The last block of a tower is not run.
    depths = [TOWERS[name].depth if repeats is None else repeats + 1 for name in names]
    towers = [{**dataclasses.asdict(TOWERS[name]), "depth": depth} for name, depth in zip(names, depths, strict=True)]
    text = {
        "model_type": "llama",
        "vocab_size": 32064 if repeats is None else SMALL_VOCABULARY,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": repeats or 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    }
    config = {"timm_model_ids": names, "timm_model_args": towers, "image_sizes": [224, 224], "text_config": text}
    return PrismaticShape.of_config({**config, "pad_to_multiple_of": 64, "n_action_bins": 256})


def _pi(variant: Any) -> Callable[[int | None], Any]:
    def build(repeats: int | None) -> Any:
        from rlinf.config.schema.vla import PiConfig
        from rlinf.models.vla.gemma import VARIANTS
        from rlinf.models.vla.openpi import PiPolicy
        from rlinf.models.vla.pi_model import PiShape

        stacks = {
            name: {**dataclasses.asdict(shape), "depth": repeats or shape.depth} for name, shape in VARIANTS.items()
        }
        vision = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16}
        config = {
            "paligemma_variant": stacks["gemma_2b"],
            "action_expert_variant": stacks["gemma_300m"],
            "vision_config": {**vision, "num_hidden_layers": repeats or 27, "image_size": 224, "patch_size": 14},
            "vocab_size": 257152 if repeats is None else SMALL_VOCABULARY,
            "action_dim": 32,
        }
        cameras = {f"camera{index}": 224 for index in range(3)}
        keys: dict[str, Any] = {"action_dim": 7, "num_action_chunks": 5, "image_keys": list(cameras)}
        cfg = PiConfig(model_type="openpi", model_path="", variant=variant, noise_steps="one", **keys)
        record = _record(cameras, torch.ones(cfg.prompt_length), state_dim=32)
        policy = PiPolicy(cfg, PiShape.of_config(config), _inputs(record))
        policy.paligemma_with_expert.compute_buffers()
        return policy

    return build


def _smolvla(repeats: int | None) -> Any:
    import transformers

    from rlinf.config.schema.vla import SmolVLAConfig
    from rlinf.models.vla.layer_stack import StackShape
    from rlinf.models.vla.smolvla import SmolVLAPolicy
    from rlinf.models.vla.smolvla_model import SmolVLAShape

    # The expert, whose layers are of two kinds, has as many as the language model.
    heads = {"depth": 2 * repeats if repeats else 16, "num_heads": 15, "num_kv_heads": 5, "head_dim": 64}
    vision = transformers.SmolVLMVisionConfig(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=repeats or 12,
        num_attention_heads=12,
        image_size=512,
        patch_size=16,
    )
    shape = SmolVLAShape(
        language=StackShape(width=960, mlp_dim=2560, **heads),
        expert=StackShape(width=720, mlp_dim=2048, **heads),
        vision=vision,
        vocab_size=49280 if repeats is None else SMALL_VOCABULARY,
        scale_factor=4,
        epsilon=1e-5,
        self_attention_every=2,
        image_size=(512, 512),
        horizon=50,
        action_dim=32,
        state_dim=32,
        vlm_folder=Path(),
    )
    cameras = {f"camera{index}": 256 for index in range(3)}
    keys: dict[str, Any] = {"action_dim": 7, "num_action_chunks": 5, "image_keys": list(cameras)}
    cfg = SmolVLAConfig(model_type="smolvla", model_path="", noise_steps="one", **keys)
    return SmolVLAPolicy(cfg, shape, _inputs(_record(cameras, torch.ones(48), state_dim=32)))


def _gr00t(repeats: int | None) -> Any:
    from rlinf.config.schema.vla import Gr00tConfig
    from rlinf.models.vla.gr00t import Gr00tPolicy
    from rlinf.models.vla.gr00t_model import Gr00tShape
    from toolkits.vla.golden_gr00t import FULL_EAGLE, FULL_HEAD

    eagle, head = dict(FULL_EAGLE), dict(FULL_HEAD)
    if repeats is not None:
        eagle["vision_config"] = {**eagle["vision_config"], "num_hidden_layers": repeats}
        eagle["text_config"] = {**eagle["text_config"], "vocab_size": SMALL_VOCABULARY}
        eagle["image_token_index"] = SMALL_VOCABULARY - 1
        # One robot, whose encoders are as large as another's.
        head["max_num_embodiments"] = 1
        head["vl_self_attention_cfg"] = {**head["vl_self_attention_cfg"], "num_layers": repeats}
        head["diffusion_model_cfg"] = {**head["diffusion_model_cfg"], "num_layers": 2 * repeats}
    config = {"action_head_cfg": head, "backbone_cfg": {"select_layer": repeats or 12, "project_to_dim": None}}
    shape = Gr00tShape.of_config(config, eagle)
    cameras = {f"camera{index}": 224 for index in range(2)}
    keys: dict[str, Any] = {"action_dim": 7, "num_action_chunks": 5, "image_keys": list(cameras)}
    cfg = Gr00tConfig(model_type="gr00t", model_path="", noise_steps="one", embodiment_id=0, **keys)
    tokens = torch.ones(cfg.prompt_length)
    tokens[: len(cameras) * shape.num_patches] = shape.image_token
    policy = Gr00tPolicy(cfg, shape, _inputs(_record(cameras, tokens, state_dim=shape.state_dim)))
    policy.backbone.compute_buffers()
    return policy


_BUILDERS = {
    "openvla": _openvla,
    "openvla_oft": _openvla_oft,
    "openpi": _pi("pi0"),
    "openpi_pi05": _pi("pi05"),
    "smolvla": _smolvla,
    "gr00t": cast(Any, _gr00t),
}
