"""Run the published OpenVLA or OpenVLA-OFT code at a tiny size and write what it computes: fixtures of golden tests.

The published code wants libraries of its own, which must not enter the project's environment. Make a folder with them
(``pip install --no-deps --target golden_site timm==0.9.16 tokenizers==0.19.1 huggingface_hub==0.36.0
torchvision==0.28.0``, and transformers 4.40.1 for openvla) and run, with ``--site`` naming it:

    python toolkits/vla/golden_openvla.py openvla --code openvla --site golden_site --out tests/golden
    python toolkits/vla/golden_openvla.py openvla_oft --code openvla-oft --site golden_site \
        --transformers transformers-openvla-oft/src --out tests/golden

``--code`` is a checkout of github.com/openvla/openvla (c8f03f4) or github.com/moojink/openvla-oft (213c5ff);
``--transformers`` the source folder of the authors' github.com/moojink/transformers-openvla-oft (bc339d9).
Weights are ``seeded_weight`` of their names; a fixture holds inputs and outputs.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import torch

ACTION_DIM, CHUNK, STATE_DIM = 7, 8, 8
IMAGE_SIZE = 42
PROMPT = [1, 512, 29901, 1724, 3158, 881, 278, 19964, 2125, 304, 5839, 29973, 13, 3744, 29901, 29871]
TEXT = {
    "model_type": "llama",
    "vocab_size": 32064,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "pad_token_id": 32000,
}
TOWERS = {
    "vit_tiny_patch14_reg4_dinov2": {"embed_dim": 24, "depth": 3, "num_heads": 2, "init_values": 1e-5, "reg_tokens": 4},
    "vit_tiny_patch14_siglip": {"embed_dim": 20, "depth": 3, "num_heads": 2, "mlp_ratio": 3.7362, "class_token": False},
}
PATCH_SIZE = 14
STATISTICS = {
    "q01": [-0.9, -0.8, -0.7, -0.1, -0.2, -0.3, 0.0],
    "q99": [0.9, 0.7, 0.8, 0.2, 0.1, 0.3, 1.0],
    "mask": [True, True, True, True, True, True, False],
}


def config_of(kind: str) -> dict[str, Any]:
    """Return the ``config.json`` of the tiny model, which is that of the published one but for sizes and towers."""
    return {
        "model_type": "openvla",
        "vision_backbone_id": "dinosiglip-vit-so-224px",
        "llm_backbone_id": "llama2-7b-pure",
        "arch_specifier": "no-align+fused-gelu-mlp",
        "use_fused_vision_backbone": True,
        "image_resize_strategy": "resize-naive",
        "image_sizes": [IMAGE_SIZE, IMAGE_SIZE],
        "timm_model_ids": list(TOWERS),
        "timm_model_args": [{"patch_size": PATCH_SIZE, **args} for args in TOWERS.values()],
        "timm_override_act_layers": [None, None],
        "pad_token_id": 32000,
        "pad_to_multiple_of": 64,
        "n_action_bins": 256,
        "text_config": TEXT,
        "norm_stats": {f"tiny_{kind}": {"action": STATISTICS}},
    }


def import_published(args: argparse.Namespace) -> Any:
    """Return the published modules, without the packages around them that import training and data sets."""
    for path in filter(None, (args.site, args.transformers)):
        sys.path.insert(0, str(Path(path).resolve()))
    # torchvision of the registry is compiled for CUDA; without its operators it can be imported once they are declared.
    library = torch.library.Library("torchvision", "DEF")
    source = (Path(args.site) / "torchvision" / "_meta_registrations.py").read_text(encoding="utf-8")
    for name in sorted(set(re.findall(r"torchvision::(\w+)|register_meta\(\"(\w+)\"", source))):
        library.define(f"{name[0] or name[1]}(Tensor x) -> Tensor")
    for name, folder in (
        ("prismatic", "prismatic"),
        ("prismatic.extern", "prismatic/extern"),
        ("prismatic.extern.hf", "prismatic/extern/hf"),
        ("prismatic.models", "prismatic/models"),
        ("prismatic.training", "prismatic/training"),
        ("prismatic.vla", "prismatic/vla"),
    ):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(args.code).resolve() / folder)]
        sys.modules[name] = package
    for name in ("diffusers", "diffusers.schedulers", "diffusers.schedulers.scheduling_ddim"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["diffusers.schedulers.scheduling_ddim"].DDIMScheduler = None  # type: ignore[attr-defined]
    import prismatic.extern.hf.modeling_prismatic as modeling
    from prismatic.extern.hf.configuration_prismatic import OpenVLAConfig

    modeling.torchvision_operators = library
    return modeling, OpenVLAConfig


def register_towers() -> None:
    """Make the tiny vision towers known to timm."""
    from timm.models._registry import register_model
    from timm.models.vision_transformer import VisionTransformer

    def entry_point(name: str, arguments: dict[str, Any]) -> None:
        def build(pretrained: bool = False, **keys: Any) -> Any:
            del pretrained
            keys = {key: value for key, value in keys.items() if value is not None or key == "act_layer"}
            fixed = {"no_embed_class": True} if "reg_tokens" in arguments else {"global_pool": "map"}
            return VisionTransformer(patch_size=PATCH_SIZE, **arguments, **fixed, **keys)

        build.__name__, build.__module__ = name, "timm.models.vision_transformer"
        register_model(build)

    for name, arguments in TOWERS.items():
        entry_point(name, arguments)


def build(kind: str, published: Any) -> Any:
    """Return the published model with seeded weights."""
    modeling, config_class = published
    keys = config_of(kind)
    overrides = {key: keys.pop(key) for key in ("image_sizes", "timm_model_ids", "timm_override_act_layers")}
    keys.pop("timm_model_args")
    keys.pop("model_type")
    config = config_class(**keys)
    for key, value in overrides.items():
        setattr(config, key, value)
    config._attn_implementation = "sdpa"
    model = modeling.OpenVLAForActionPrediction(config).eval()
    fill(model, "")
    return model


@torch.no_grad()
def fill(module: torch.nn.Module, prefix: str) -> dict[str, list[int]]:
    """Give a module its seeded weights; return the shapes of its parameters by name."""
    from seeded_weights import seeded_weight

    shapes = {}
    for name, parameter in module.state_dict().items():
        shapes[prefix + name] = list(parameter.shape)
        parameter.copy_(seeded_weight(prefix + name, parameter.shape))
    return shapes


def pixels(count: int) -> torch.Tensor:
    """Return what the published processor makes of ``count`` images: [1, 6 * count, S, S]."""
    from seeded_weights import seeded_images

    images = seeded_images(count, IMAGE_SIZE).permute(0, 3, 1, 2).float() / 255.0
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    first = (images - mean[:, None, None]) / std[:, None, None]
    return torch.cat([torch.cat([a, b]) for a, b in zip(first, (images - 0.5) / 0.5, strict=True)])[None]


@torch.inference_mode()
def run_openvla(model: Any) -> dict[str, torch.Tensor]:
    """Generate one action, and evaluate its tokens once more in one pass."""
    ids = torch.tensor([PROMPT])
    inputs = {"pixel_values": pixels(1), "attention_mask": torch.ones_like(ids)}
    tokens = model.generate(ids, max_new_tokens=ACTION_DIM, do_sample=False, **inputs)
    mask = torch.ones_like(tokens)
    logits = model(input_ids=tokens, pixel_values=inputs["pixel_values"], attention_mask=mask).logits
    action = model.predict_action(ids, do_sample=False, **inputs)
    steps = slice(-ACTION_DIM - 1, -1)
    return {
        "tokens": tokens[:, -ACTION_DIM:].clone(),
        "action_logits": logits[:, steps, 31744:32000].clone(),
        "best_logits": logits[:, steps].max(-1).values.clone(),
        "actions": torch.from_numpy(action).double(),
    }


@torch.inference_mode()
def run_oft(kind: str, model: Any, args: argparse.Namespace) -> tuple[dict[str, torch.Tensor], dict[str, list[int]]]:
    """Predict one chunk of actions; return also the shapes of what is stored in files of its own."""
    from prismatic.models.action_heads import L1RegressionActionHead
    from prismatic.models.film_vit_wrapper import FiLMedPrismaticVisionBackbone
    from prismatic.models.projectors import ProprioProjector

    ids, keys, shapes = torch.tensor([PROMPT]), {}, {}
    num_images = 1 if kind == "oft_tokens" else 2
    if kind == "oft_film":
        model.vision_backbone = FiLMedPrismaticVisionBackbone(model.vision_backbone, llm_dim=TEXT["hidden_size"])
        fill(model, "")
    model.vision_backbone.set_num_images_in_input(num_images)
    if kind != "oft_tokens":
        head = L1RegressionActionHead(TEXT["hidden_size"], TEXT["hidden_size"], ACTION_DIM).eval()
        projector = ProprioProjector(llm_dim=TEXT["hidden_size"], proprio_dim=STATE_DIM).eval()
        shapes = fill(head, "action_head.") | fill(projector, "proprio_projector.")
        proprio = torch.linspace(-1, 1, STATE_DIM).numpy()
        keys = {"action_head": head, "proprio_projector": projector, "proprio": proprio, "use_film": kind == "oft_film"}
    mask = torch.ones_like(ids)
    actions, hidden = model.predict_action(ids, pixel_values=pixels(num_images), attention_mask=mask, **keys)
    return {"hidden": hidden.clone(), "actions": torch.from_numpy(actions).double()}, shapes


def write_names(path: Path, model: Any) -> None:
    """Write the names and shapes of a model's weights, a line each."""
    lines = [f"{name} {'x'.join(map(str, tensor.shape))}" for name, tensor in model.state_dict().items()]
    path.write_text("\n".join(sorted(lines)) + "\n", encoding="utf-8")


def full_size(published: Any) -> Any:
    """Return the published model of 7 billion parameters, without memory."""
    modeling, config_class = published
    keys = config_of("openvla")
    for key in ("model_type", "image_sizes", "timm_model_ids", "timm_model_args", "timm_override_act_layers"):
        keys.pop(key)
    keys["text_config"] = {"vocab_size": TEXT["vocab_size"], "pad_token_id": TEXT["pad_token_id"]}
    config = config_class(**keys)
    config._attn_implementation = "sdpa"
    # timm reads numbers of a tensor while it builds.
    torch.linspace = functools.partial(torch.linspace, device="cpu")
    with torch.device("meta"):
        return modeling.OpenVLAForActionPrediction(config)


def main() -> None:
    """Write the fixtures of one published repository."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["openvla", "openvla_oft"])
    parser.add_argument("--code", required=True)
    parser.add_argument("--site", required=True)
    parser.add_argument("--transformers")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    published = import_published(args)
    from safetensors.torch import save_file

    args.out.mkdir(parents=True, exist_ok=True)
    if args.kind == "openvla":
        write_names(args.out / "openvla_7b.txt", full_size(published))
    register_towers()
    for kind in ("openvla",) if args.kind == "openvla" else ("oft_tokens", "oft_l1", "oft_film"):
        model = build(kind, published)
        tensors, shapes = (run_openvla(model), {}) if kind == "openvla" else run_oft(kind, model, args)
        shapes |= {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
        notes = {"config": json.dumps(config_of(kind)), "prompt": json.dumps(PROMPT), "shapes": json.dumps(shapes)}
        args.out.mkdir(parents=True, exist_ok=True)
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()}, args.out / f"{kind}.safetensors", notes
        )
        print(kind, {name: list(tensor.shape) for name, tensor in tensors.items()}, tensors["actions"].flatten()[:7])


if __name__ == "__main__":
    main()
