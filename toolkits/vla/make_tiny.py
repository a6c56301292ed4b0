"""Write a vision-language-action policy of a few hundred thousand random parameters in the published layout.

    python toolkits/vla/make_tiny.py openvla_oft --out models/tiny_oft --image-size 28 --action-dim 2 \
        --words "reach the green disc"

The folder is ``actor.model.model_path`` of small recipes and tests. It knows the words of its prompts and no others.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file

from rlinf.config.schema.vla import Gr00tConfig, OpenVLAConfig, OpenVLAOFTConfig, PiConfig, SmolVLAConfig
from rlinf.models.vla.action_prompts import openvla_prompt
from rlinf.models.vla.gr00t import Gr00tPolicy
from rlinf.models.vla.gr00t_model import Gr00tShape
from rlinf.models.vla.openpi import PiPolicy
from rlinf.models.vla.openvla import OpenVLAPolicy
from rlinf.models.vla.openvla_oft import OpenVLAOFTPolicy
from rlinf.models.vla.pi_model import PiShape
from rlinf.models.vla.prismatic import PrismaticShape
from rlinf.models.vla.smolvla import SmolVLAPolicy
from rlinf.models.vla.smolvla_model import SmolVLAShape
from rlinf.utils.seeding import derive_seed

_NUMBERS = "Task: , State: ; Action: " + " ".join(map(str, range(-1, 256)))
"""What pi-0.5 writes next to a task."""
_CONVERSATION = "system You are a helpful assistant. user assistant <image 1> <image 2> <image 3>"
"""What GR00T writes around images and a task."""
_SPECIAL = ("<|im_start|>", "<|im_end|>", "<img>", "</img>")
"""Tokens of GR00T's conversations."""
_PATCH = "<IMG_CONTEXT>"
"""The token that stands for a patch."""
Weight = Callable[[str, Sequence[int]], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class TinyShape:
    """Sizes of a tiny model; those of the published one are 224 pixels, 7 numbers and 4096 wide.

    Attributes:
        image_size: Side of the images in pixels, a multiple of the patch size.
        patch_size: Side of a patch in pixels.
        action_dim: Numbers of an action.
        state_dim: Numbers of a state.
        width: Of the language model.
        num_layers: Of the language model.
        vision_width: Of a vision tower, with heads of 12 numbers.
        vision_layers: Of a vision tower.
        num_bins: Action tokens.
        words: Sentences whose words the tokenizer knows.
    """

    image_size: int = 28
    patch_size: int = 14
    action_dim: int = 7
    state_dim: int = 8
    width: int = 32
    num_layers: int = 2
    vision_width: int = 24
    vision_layers: int = 2
    num_bins: int = 256
    words: Sequence[str] = field(default=("reach",))


def write_tiny(folder: Path, shape: TinyShape, cfg: OpenVLAConfig, *, weight: Weight | None = None) -> None:
    """Write a folder in the layout of OpenVLA, or of OpenVLA-OFT with the parts that ``cfg`` asks for.

    Args:
        folder: Where to; made if it does not exist.
        shape: Its sizes.
        cfg: Which model; ``model_path`` is not read.
        weight: Makes a parameter from its name and shape; None starts as a model that is trained from scratch.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = write_tokenizer(folder, shape)
    config = _config(shape, vocab_size=vocabulary + shape.num_bins)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    build: Any = OpenVLAOFTPolicy if isinstance(cfg, OpenVLAOFTConfig) else OpenVLAPolicy
    with torch.device("meta"):
        policy = build(cfg, PrismaticShape.of_config(config), None, num_values=1)
    write_weights(folder, {name: list(tensor.shape) for name, tensor in policy.state_dict().items()}, weight=weight)


def write_tiny_pi(folder: Path, shape: TinyShape, cfg: PiConfig, *, padded_dim: int = 8) -> None:
    """Write a folder in the layout of openpi, and a tokenizer, which published folders lack.

    Args:
        folder: Where to; made if it does not exist.
        shape: Its sizes; the expert is two thirds as wide.
        cfg: Which variant; ``model_path`` is not read.
        padded_dim: Width of padded actions and states.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = write_tokenizer(folder, shape)
    stack = {"depth": shape.num_layers, "num_heads": 4, "num_kv_heads": 1, "head_dim": shape.width // 4}
    narrow = 2 * (shape.width // 3)
    config = {
        "action_dim": padded_dim,
        "action_horizon": cfg.horizon or 50,
        "paligemma_variant": {"width": shape.width, "mlp_dim": 2 * shape.width, **stack},
        "action_expert_variant": {"width": narrow, "mlp_dim": 2 * narrow, **stack},
        "vocab_size": vocabulary,
        "vision_config": _vision(shape),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    sizes = {"state": shape.state_dim, "actions": shape.action_dim}
    one = {"mean": 0.0, "std": 1.0, "q01": -1.0, "q99": 1.0}
    statistics = {entry: {name: [value] * size for name, value in one.items()} for entry, size in sizes.items()}
    assets = folder / "assets" / "tiny"
    assets.mkdir(parents=True, exist_ok=True)
    (assets / "norm_stats.json").write_text(json.dumps({"norm_stats": statistics}) + "\n", encoding="utf-8")
    inputs: Any = None
    with torch.device("meta"):
        policy = PiPolicy(cfg, PiShape.of_config(config), inputs)
    shapes = {name: tensor.shape for name, tensor in policy.state_dict().items() if not name.startswith("value_head.")}
    weights = {name: _initial_pi(name, list(size)) for name, size in shapes.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_tiny_smolvla(folder: Path, shape: TinyShape, *, padded_dim: int = 8) -> None:
    """Write a folder as LeRobot does, with the vision-language model's configuration and tokenizer inside.

    Args:
        folder: Where to; made if it does not exist.
        shape: Its sizes; four patches are one token, and the expert is three quarters as wide.
        padded_dim: Width of padded actions and states.
    """
    vlm = folder / "vlm"
    vlm.mkdir(parents=True, exist_ok=True)
    sizes = {
        "model_type": "smolvlm",
        "text_config": {
            "model_type": "llama",
            "vocab_size": write_tokenizer(vlm, shape),
            "hidden_size": shape.width,
            "intermediate_size": 2 * shape.width,
            "num_hidden_layers": shape.num_layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": shape.width // 4,
            "rms_norm_eps": 1e-5,
            "pad_token_id": 0,
        },
        "vision_config": _vision(shape),
        "scale_factor": 2,
        "pad_token_id": 0,
        "image_token_id": 0,
    }
    (vlm / "config.json").write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")
    config = {
        "type": "smolvla",
        "vlm_model_name": "vlm",
        "max_action_dim": padded_dim,
        "max_state_dim": padded_dim,
        "num_vlm_layers": shape.num_layers,
        "self_attn_every_n_layers": 2,
        "expert_width_multiplier": 0.75,
        "resize_imgs_with_padding": [shape.image_size, shape.image_size],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    entries = {"observation.state": shape.state_dim, "action": shape.action_dim}
    statistics = {f"{entry}.mean": torch.zeros(size) for entry, size in entries.items()}
    statistics |= {f"{entry}.std": torch.ones(size) for entry, size in entries.items()}
    save_file(statistics, folder / "policy_preprocessor_step_5_normalizer_processor.safetensors")
    cfg, inputs = SmolVLAConfig(model_type="smolvla", model_path="", action_dim=shape.action_dim), cast(Any, None)
    with torch.device("meta"):
        policy = SmolVLAPolicy(cfg, SmolVLAShape.of_config(config, vlm), inputs)
    weights = {f"model.{name}": _initial(name, list(weight.shape)) for name, weight in policy.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _vision(shape: TinyShape) -> dict[str, int]:
    return {
        "hidden_size": shape.vision_width,
        "intermediate_size": 2 * shape.vision_width,
        "num_hidden_layers": shape.vision_layers,
        "num_attention_heads": shape.vision_width // 12,
        "image_size": shape.image_size,
        "patch_size": shape.patch_size,
    }


def write_tiny_gr00t(folder: Path, shape: TinyShape, *, padded_dim: int = 8, horizon: int = 6) -> None:
    """Write a folder as the published code of GR00T N1.5 does, with Eagle's configuration and tokenizer inside.

    Args:
        folder: Where to; made if it does not exist.
        shape: Its sizes; the diffusion transformer is as wide as the language model.
        padded_dim: Width of padded actions and states.
        horizon: Actions that are predicted.
    """
    eagle_folder = folder / "eagle"
    eagle_folder.mkdir(parents=True, exist_ok=True)
    vocabulary = write_gr00t_tokenizer(eagle_folder, shape)
    stack = {"num_attention_heads": 4, "attention_head_dim": shape.width // 4, "positional_embeddings": None}
    diffusion = {**stack, "num_layers": 2 * shape.num_layers, "output_dim": shape.width}
    eagle = {
        "text_config": {
            "model_type": "qwen3",
            "vocab_size": vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": 2 * shape.width,
            "num_hidden_layers": shape.num_layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": shape.width // 4,
        },
        "vision_config": {**_vision(shape), "hidden_act": "gelu_pytorch_tanh"},
        "select_layer": -1,
        "use_pixel_shuffle": False,
        "mlp_connector_layers": 1,
        "image_token_index": vocabulary - 1,
    }
    head = {
        "action_dim": padded_dim,
        "action_horizon": horizon,
        "backbone_embedding_dim": shape.width,
        "diffusion_model_cfg": {**diffusion, "interleave_self_attention": True},
        "hidden_size": shape.width,
        "input_embedding_dim": shape.width,
        "max_state_dim": padded_dim,
        "max_num_embodiments": 32,
        "max_seq_len": 2 * horizon,
        "num_target_vision_tokens": 4,
        "vl_self_attention_cfg": {**stack, "num_layers": 1},
    }
    backbone = {"select_layer": shape.num_layers, "project_to_dim": None}
    config = {"model_type": "gr00t_n1_5", "action_head_cfg": head, "backbone_cfg": backbone}
    for path, content in ((folder, config), (eagle_folder, eagle)):
        (path / "config.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    sizes = {"state": shape.state_dim, "action": shape.action_dim}
    bounds = {entry: {"all": {"min": [-1.0] * size, "max": [1.0] * size}} for entry, size in sizes.items()}
    write_gr00t_statistics(folder, {"new_embodiment": bounds})
    cfg = Gr00tConfig(model_type="gr00t", model_path="", action_dim=shape.action_dim, horizon=horizon)
    with torch.device("meta"):
        policy = Gr00tPolicy(cfg, Gr00tShape.of_config(config, eagle), cast(Any, None))
    weights = {name: _initial_gr00t(name, list(tensor.shape)) for name, tensor in policy.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_gr00t_statistics(folder: Path, robots: dict[str, Any]) -> None:
    """Write statistics where the published code of GR00T does; of each robot by entry and part."""
    path = folder / "experiment_cfg" / "metadata.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {name: {"statistics": entries, "embodiment_tag": name} for name, entries in robots.items()}
    path.write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")


def write_gr00t_tokenizer(folder: Path, shape: TinyShape, *, image_token: int | None = None) -> int:
    """Write a tokenizer that knows the tokens around images, too, and return how many it knows.

    Args:
        folder: Where to.
        shape: Has the sentences.
        image_token: Number of a patch's token, with unused ones before it; None takes the next number.
    """
    from transformers import PreTrainedTokenizerFast

    known = write_tokenizer(folder, shape, around=_CONVERSATION)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(_SPECIAL)})
    known += len(_SPECIAL)
    fillers = [f"<unused_{index}>" for index in range(known, image_token or known)]
    tokenizer.add_tokens([*fillers, _PATCH], special_tokens=True)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def write_weights(folder: Path, shapes: dict[str, list[int]], *, weight: Weight | None = None) -> None:
    """Write weights by their published names: components into files of their own, the rest into one."""
    own_files = {"action_head", "proprio_projector"}
    if any(".scale." in name for name in shapes):
        own_files.add("vision_backbone")
    main: dict[str, torch.Tensor] = {}
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for name, shape in shapes.items():
        component, _, rest = name.partition(".")
        if component in {"value_head", "log_std"}:
            continue
        target, key = (parts.setdefault(component, {}), rest) if component in own_files else (main, name)
        target[key] = (weight or _initial)(name, shape)
    save_file(main, folder / "model.safetensors", metadata={"format": "pt"})
    for component, tensors in parts.items():
        torch.save(tensors, folder / f"{component}--0_checkpoint.pt")


def _config(shape: TinyShape, *, vocab_size: int) -> dict[str, Any]:
    padding = -vocab_size % 64 or 64
    tower = {"patch_size": shape.patch_size, "depth": shape.vision_layers + 1, "num_heads": shape.vision_width // 12}
    bounds = {"q01": [-1.0], "q99": [1.0], "min": [-1.0], "max": [1.0]}
    return {
        "model_type": "openvla",
        "timm_model_ids": ["vit_tiny_reg4_dinov2", "vit_tiny_siglip"],
        "timm_model_args": [
            {**tower, "embed_dim": shape.vision_width, "reg_tokens": 4, "init_values": 1e-5},
            {**tower, "embed_dim": shape.vision_width, "class_token": False},
        ],
        "image_sizes": [shape.image_size] * 2,
        "use_fused_vision_backbone": True,
        "pad_to_multiple_of": padding,
        "n_action_bins": shape.num_bins,
        "text_config": {
            "model_type": "llama",
            "vocab_size": vocab_size + padding,
            "hidden_size": shape.width,
            "intermediate_size": 2 * shape.width,
            "num_hidden_layers": shape.num_layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
        },
        "norm_stats": {
            "tiny": {
                "action": {name: bound * shape.action_dim for name, bound in bounds.items()},
                "proprio": {name: bound * shape.state_dim for name, bound in bounds.items()},
            }
        },
    }


def write_tokenizer(folder: Path, shape: TinyShape, *, around: str = _NUMBERS) -> int:
    """Write a tokenizer of whole words and return how many it knows.

    Args:
        folder: Where to.
        shape: Has the sentences.
        around: What the model writes next to them.
    """
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Whitespace()
    texts = [*(openvla_prompt(sentence) for sentence in shape.words), around]
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    known = ["<unk>", "<s>", "</s>", "<pad>", "▁", *words]
    tokenizer = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = split
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    fast.save_pretrained(folder)
    return len(known)


def _initial(name: str, shape: Sequence[int]) -> torch.Tensor:
    """Return the first weights of a model that is trained from scratch."""
    generator = torch.Generator().manual_seed(derive_seed(0, "tiny", name))
    if name.endswith("scale_factor") or (len(shape) == 1 and name.endswith("weight")):
        return torch.ones(tuple(shape))
    if name.endswith("bias") or ".scale." in name or ".shift." in name:
        return torch.zeros(tuple(shape))
    fan_in = math.prod(shape[1:]) if len(shape) == 4 else shape[-1]
    return torch.randn(tuple(shape), generator=generator) / math.sqrt(fan_in)


def _initial_pi(name: str, shape: Sequence[int]) -> torch.Tensor:
    """Return the first weights of a flow: norms of Gemma hold what is added to 1, and time modulates nothing yet."""
    is_gemma_norm = "vision_tower" not in name and name.endswith("norm.weight")
    return torch.zeros(tuple(shape)) if is_gemma_norm or ".dense." in name else _initial(name, shape)


def _initial_gr00t(name: str, shape: Sequence[int]) -> torch.Tensor:
    """Return the first weights of GR00T: layers of embodiments map their second last axis."""
    if name.endswith(".W"):
        return _initial(name, [shape[0], shape[2], shape[1]]).transpose(1, 2).contiguous()
    return torch.zeros(tuple(shape)) if name.endswith(".b") else _initial(name, shape)


def main() -> None:
    """Write the folder that the command line describes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_type", choices=["openvla", "openvla_oft", "openpi", "smolvla", "gr00t"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--image-size", type=int, default=28)
    parser.add_argument("--patch-size", type=int, default=14)
    parser.add_argument("--action-dim", type=int, default=7)
    parser.add_argument("--state-dim", type=int, default=8)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vision-width", type=int, default=24)
    parser.add_argument("--vision-layers", type=int, default=2)
    parser.add_argument("--bins", type=int, default=256)
    parser.add_argument("--head", choices=["tokens", "l1"], default="tokens")
    parser.add_argument("--variant", choices=["pi0", "pi05"], default="pi0", help="of openpi")
    parser.add_argument("--horizon", type=int, default=6, help="of openpi and gr00t")
    parser.add_argument("--use-proprio", action="store_true")
    parser.add_argument("--words", nargs="+", default=["reach"], help="sentences of the tasks")
    args = parser.parse_args()
    shape = TinyShape(
        image_size=args.image_size,
        patch_size=args.patch_size,
        action_dim=args.action_dim,
        state_dim=args.state_dim,
        width=args.width,
        num_layers=args.layers,
        vision_width=args.vision_width,
        vision_layers=args.vision_layers,
        num_bins=args.bins,
        words=tuple(args.words),
    )
    keys: dict[str, Any] = {"model_type": args.model_type, "model_path": "", "action_dim": args.action_dim}
    if args.model_type == "openpi":
        write_tiny_pi(args.out, shape, PiConfig(**keys, variant=args.variant, horizon=args.horizon))
        print(f"wrote {args.out}")
        return
    if args.model_type in {"smolvla", "gr00t"}:
        if args.model_type == "smolvla":
            write_tiny_smolvla(args.out, shape)
        else:
            write_tiny_gr00t(args.out, shape, horizon=args.horizon)
        print(f"wrote {args.out}")
        return
    if args.model_type == "openvla_oft":
        state_dim = args.state_dim if args.use_proprio else None
        cfg: OpenVLAConfig = OpenVLAOFTConfig(**keys, head=args.head, use_proprio=args.use_proprio, state_dim=state_dim)
    else:
        cfg = OpenVLAConfig(**keys)
    write_tiny(args.out, shape, cfg)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
