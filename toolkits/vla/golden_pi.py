"""Run the published PyTorch code of pi0 and pi0.5 at a tiny size and write what it computes: fixtures of golden tests.

The published code wants libraries of its own, which must not enter the project's environment. Make a folder with them
(``pip install --no-deps --target site transformers==4.53.2 tokenizers==0.21.4 huggingface_hub==0.36.0``) and copy
``src/openpi/models_pytorch/transformers_replace`` over its ``transformers``, as the published instructions say. Then:

    python toolkits/vla/golden_pi.py --code openpi --site site --out tests/golden

``--code`` is a checkout of github.com/Physical-Intelligence/openpi (15a9616). Weights are ``seeded_weight`` of their
names; a fixture holds inputs and outputs.
"""

from __future__ import annotations

import argparse
import json
import sys
import types
from pathlib import Path
from typing import Any

import torch

WIDTH, EXPERT_WIDTH, DEPTH, HEADS, HEAD_DIM = 24, 16, 2, 8, 4
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "projection_dim": WIDTH,
}
VOCABULARY = 320
ACTION_DIM, HORIZON, STEPS = 8, 6, 5
PROMPT_LENGTH = 7


def import_published(args: argparse.Namespace) -> Any:
    """Return the published module, with configurations of the tiny sizes and without JAX."""
    sys.path.insert(0, str(Path(args.site).resolve()))
    root = Path(args.code).resolve() / "src" / "openpi"
    for name, folder in (("openpi", ""), ("openpi.models_pytorch", "models_pytorch"), ("openpi.models", "models")):
        package = types.ModuleType(name)
        package.__path__ = [str(root / folder)]
        sys.modules[name] = package
    gemma = types.ModuleType("openpi.models.gemma")
    gemma.get_config = lambda width: types.SimpleNamespace(  # type: ignore[attr-defined]
        width=width, mlp_dim=2 * width, depth=DEPTH, num_heads=HEADS, num_kv_heads=1, head_dim=HEAD_DIM
    )
    sys.modules["openpi.models"].gemma = gemma  # type: ignore[attr-defined]
    sys.modules["openpi.models.gemma"] = gemma
    preprocessing = types.ModuleType("openpi.models_pytorch.preprocessing_pytorch")
    preprocessing.preprocess_observation_pytorch = lambda seen, train: seen  # type: ignore[attr-defined]
    sys.modules["openpi.models_pytorch.preprocessing_pytorch"] = preprocessing
    import openpi.models_pytorch.gemma_pytorch as layers
    import openpi.models_pytorch.pi0_pytorch as published

    layers.CONFIG_MAPPING = {"paligemma": paligemma_config, "gemma": gemma_config}
    return published


def gemma_config(**keys: Any) -> Any:
    """Return the configuration of the expert, with a small vocabulary."""
    from transformers.models.auto import CONFIG_MAPPING

    return CONFIG_MAPPING["gemma"](**{**keys, "vocab_size": VOCABULARY})


def paligemma_config() -> Any:
    """Return a configuration whose tower and vocabulary stay small, although the published code sets them."""
    from transformers.models.auto import CONFIG_MAPPING

    vision = {"model_type": "siglip_vision_model", "vision_use_head": False, **VISION}
    make: Any = CONFIG_MAPPING["paligemma"]
    config = make(vision_config=vision, vocab_size=VOCABULARY, projection_dim=WIDTH)
    keep(type(config.vision_config), {"intermediate_size", "projection_dim"})
    keep(type(config.text_config), {"vocab_size"})
    return config


def keep(cls: Any, names: set[str]) -> None:
    """Make attributes of a class of configurations keep their values."""
    assign = cls.__setattr__

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if name not in names or name not in self.__dict__:
            assign(self, name, value)

    cls.__setattr__ = set_attribute


def observation() -> Any:
    """Return two observations of three cameras: one camera is missing once, and prompts differ in length."""
    from seeded_weights import seeded_images

    images = seeded_images(6, VISION["image_size"]).permute(0, 3, 1, 2).float() / 127.5 - 1.0
    names = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
    masks = torch.tensor([[True, True], [True, False], [True, True]])
    tokens = torch.arange(2 * PROMPT_LENGTH).view(2, -1) * 5 + 3
    return types.SimpleNamespace(
        images={name: images[2 * i : 2 * i + 2] for i, name in enumerate(names)},
        image_masks=dict(zip(names, masks, strict=True)),
        tokenized_prompt=tokens,
        tokenized_prompt_mask=torch.arange(PROMPT_LENGTH) < torch.tensor([[7], [4]]),
        state=torch.linspace(-1, 1, 2 * ACTION_DIM).view(2, -1),
    )


def run(published: Any, variant: str) -> tuple[dict[str, torch.Tensor], dict[str, list[int]]]:
    """Return outputs of the published model, and the shapes of its weights."""
    from seeded_weights import seeded_weight

    config = types.SimpleNamespace(
        pi05=variant == "pi05",
        paligemma_variant=WIDTH,
        action_expert_variant=EXPERT_WIDTH,
        dtype="float32",
        action_dim=ACTION_DIM,
        action_horizon=HORIZON,
        pytorch_compile_mode=None,
    )
    model = published.PI0Pytorch(config).eval()
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for name, parameter in model.state_dict().items():
            parameter.copy_(seeded_weight(name, parameter.shape))
        # The first two are one tensor: it has the weights of the name that comes last, lm_head.
        paligemma = model.paligemma_with_expert.paligemma
        assert paligemma.lm_head.weight is paligemma.model.language_model.embed_tokens.weight
        seen = observation()
        noise = torch.linspace(-2, 2, 2 * HORIZON * ACTION_DIM).sin().view(2, HORIZON, ACTION_DIM)
        actions, time = noise.flip(1) * 0.5, torch.tensor([0.3, 0.8])
        loss = model.forward(seen, actions, noise, time)
        sampled = model.sample_actions(torch.device("cpu"), seen, noise, num_steps=STEPS)
    tensors = {f"images.{name}": image for name, image in seen.images.items()}
    tensors |= {f"image_masks.{name}": mask for name, mask in seen.image_masks.items()}
    tensors |= {"tokens": seen.tokenized_prompt, "token_mask": seen.tokenized_prompt_mask, "state": seen.state}
    tensors |= {"noise": noise, "actions": actions, "time": time, "loss": loss, "sampled": sampled}
    return tensors, shapes


def full_size(variant: str) -> Any:
    """Return the names and shapes of the published model of 3.3 billion parameters, without memory."""
    import openpi.models_pytorch.gemma_pytorch as layers
    import openpi.models_pytorch.pi0_pytorch as published
    from transformers.models.auto import CONFIG_MAPPING

    sizes = {"gemma_2b": (2048, 16384), "gemma_300m": (1024, 4096)}
    sys.modules["openpi.models.gemma"].get_config = lambda name: types.SimpleNamespace(  # type: ignore[attr-defined]
        width=sizes[name][0], mlp_dim=sizes[name][1], depth=18, num_heads=8, num_kv_heads=1, head_dim=256
    )
    layers.CONFIG_MAPPING = CONFIG_MAPPING
    config = types.SimpleNamespace(
        pi05=variant == "pi05",
        paligemma_variant="gemma_2b",
        action_expert_variant="gemma_300m",
        dtype="float32",
        action_dim=32,
        action_horizon=50,
        pytorch_compile_mode=None,
    )
    with torch.device("meta"):
        return published.PI0Pytorch(config)


def main() -> None:
    """Write the fixtures of both variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", required=True)
    parser.add_argument("--site", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", action="store_true", help="write names of the full-size models instead")
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    published = import_published(args)
    from golden_openvla import write_names
    from safetensors.torch import save_file

    if args.names:
        for variant in ("pi0", "pi05"):
            write_names(args.out / f"{variant}_3b.txt", full_size(variant))
        return

    for variant in ("pi0", "pi05"):
        tensors, shapes = run(published, variant)
        args.out.mkdir(parents=True, exist_ok=True)
        found = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(found, args.out / f"{variant}.safetensors", {"shapes": json.dumps(shapes)})
        print(variant, tensors["loss"].mean(), tensors["sampled"].flatten()[:5], len(shapes))


if __name__ == "__main__":
    main()
