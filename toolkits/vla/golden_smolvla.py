"""Run the published code of SmolVLA at a tiny size and write what it computes: the fixture of a golden test.

    python toolkits/vla/golden_smolvla.py --code lerobot --out tests/golden

``--code`` is a checkout of github.com/huggingface/lerobot (7427f31), of which three files run, on the project's
transformers. Weights are ``seeded_weight`` of their names; the fixture holds inputs and outputs.
"""

from __future__ import annotations

import argparse
import json
import sys
import types
from pathlib import Path
from typing import Any

import torch

TINY: dict[str, Any] = {
    "text_config": {
        "model_type": "llama",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 5,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 320,
        "rms_norm_eps": 1e-5,
        "pad_token_id": 0,
    },
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    },
    "scale_factor": 2,
    "pad_token_id": 0,
    "image_token_id": 1,
    "tie_word_embeddings": False,
}
"""Sizes of the vision-language model; the published policies keep 16 of 32 layers, this one 4 of 5."""
FULL: dict[str, Any] = {
    "text_config": {
        "model_type": "llama",
        "hidden_size": 960,
        "intermediate_size": 2560,
        "num_hidden_layers": 32,
        "num_attention_heads": 15,
        "num_key_value_heads": 5,
        "head_dim": 64,
        "vocab_size": 49280,
        "rms_norm_eps": 1e-5,
    },
    "vision_config": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 512,
        "patch_size": 16,
    },
    "scale_factor": 4,
    "tie_word_embeddings": False,
}
"""Sizes of SmolVLM2-500M, which the published policies build on."""
LAYERS, ACTION_DIM, HORIZON, STEPS, PROMPT_LENGTH = 4, 8, 6, 5, 7
HEIGHT, WIDTH = 20, 28
"""Of the images, which are brought to the model's size."""


def import_published(code: Path) -> Any:
    """Return the published module, without the packages around it."""
    root = code.resolve() / "src" / "lerobot"
    for name in ("", ".utils", ".policies", ".policies.common", ".policies.smolvla", ".policies.rtc"):
        package = types.ModuleType(f"lerobot{name}")
        package.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[package.__name__] = package
    stand_in("lerobot.utils.import_utils", require_package=lambda *_, **__: None, _transformers_available=True)
    stand_in("lerobot.utils.device_utils", get_safe_dtype=lambda dtype, _: dtype)
    stand_in("lerobot.policies.pretrained", PreTrainedPolicy=object)
    stand_in("lerobot.policies.rtc.modeling_rtc", RTCProcessor=object)
    stand_in("lerobot.policies.utils", populate_queues=None)
    stand_in("lerobot.policies.smolvla.configuration_smolvla", SmolVLAConfig=object)
    import lerobot.policies.smolvla.modeling_smolvla as published
    import lerobot.policies.smolvla.smolvlm_with_expert as model

    tokenizer = types.SimpleNamespace(fake_image_token_id=2, global_image_token_id=3)
    model.AutoProcessor = types.SimpleNamespace(from_pretrained=lambda _: types.SimpleNamespace(tokenizer=tokenizer))
    return published


def stand_in(name: str, **contents: Any) -> None:
    """Put a module in the place of one that is not needed."""
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module


def build(published: Any, vlm: dict[str, Any], layers: int, **keys: Any) -> Any:
    """Return the published model.

    Args:
        published: The module.
        vlm: Sizes of the vision-language model.
        layers: How many of its layers are kept.
        **keys: Of the policy's configuration.
    """
    import lerobot.policies.smolvla.smolvlm_with_expert as model
    from transformers import SmolVLMConfig

    model.AutoConfig = types.SimpleNamespace(from_pretrained=lambda _: SmolVLMConfig(**vlm))
    config = {
        "vlm_model_name": "",
        "freeze_vision_encoder": True,
        "train_expert_only": True,
        "train_state_proj": True,
        "load_vlm_weights": False,
        "attention_mode": "cross_attn",
        "num_expert_layers": -1,
        "num_vlm_layers": layers,
        "self_attn_every_n_layers": 2,
        "expert_width_multiplier": 0.75,
        "device": "cpu",
        "add_image_special_tokens": False,
        "prefix_length": -1,
        "compile_model": False,
        "use_cache": True,
        "min_period": 4e-3,
        "max_period": 4.0,
        "rtc_config": None,
        **keys,
    }
    return published.VLAFlowMatching(types.SimpleNamespace(**config))


def run(published: Any) -> tuple[dict[str, torch.Tensor], dict[str, list[int]]]:
    """Return inputs and outputs of the published model, and the shapes of its weights."""
    from seeded_weights import seeded_images, seeded_weight

    model = build(
        published,
        TINY,
        LAYERS,
        max_state_dim=ACTION_DIM,
        max_action_dim=ACTION_DIM,
        chunk_size=HORIZON,
        num_steps=STEPS,
    ).eval()
    shapes = {f"model.{name}": list(tensor.shape) for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        for name, parameter in model.state_dict().items():
            parameter.copy_(seeded_weight(name, parameter.shape))
        square = seeded_images(4, WIDTH)[:, :HEIGHT]
        cameras = [square[:2], square[2:]]
        side = TINY["vision_config"]["image_size"]
        images = [
            published.resize_with_pad(camera.permute(0, 3, 1, 2).float() / 255, side, side, pad_value=0) * 2.0 - 1.0
            for camera in cameras
        ]
        masks = [torch.tensor([True, True]), torch.tensor([True, False])]
        tokens = torch.arange(2 * PROMPT_LENGTH).view(2, -1) * 5 + 3
        there = torch.arange(PROMPT_LENGTH) < torch.tensor([[7], [4]])
        state = torch.linspace(-1, 1, 2 * ACTION_DIM).view(2, -1)
        noise = torch.linspace(-2, 2, 2 * HORIZON * ACTION_DIM).sin().view(2, HORIZON, ACTION_DIM)
        actions, time = noise.flip(1) * 0.5, torch.tensor([0.3, 0.8])
        loss = model.forward(images, masks, tokens, there, state, actions, noise, time)
        sampled = model.sample_actions(images, masks, tokens, there, state, noise=noise)
    tensors = {"images.0": cameras[0], "images.1": cameras[1], "image_mask": torch.stack(masks, 1)}
    tensors |= {"tokens": tokens, "token_mask": there, "state": state, "noise": noise, "actions": actions}
    return tensors | {"time": time, "loss": loss, "sampled": sampled}, shapes


def main() -> None:
    """Write the fixture, or the names of the full-size model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", action="store_true", help="write names of the full-size model instead")
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    published = import_published(args.code)
    from golden_openvla import write_names
    from safetensors.torch import save_file

    args.out.mkdir(parents=True, exist_ok=True)
    if args.names:
        with torch.device("meta"):
            full = build(published, FULL, 16, max_state_dim=32, max_action_dim=32, chunk_size=50, num_steps=10)
        write_names(args.out / "smolvla_450m.txt", torch.nn.ModuleDict({"model": full}))
        return
    tensors, shapes = run(published)
    found = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(found, args.out / "smolvla.safetensors", {"shapes": json.dumps(shapes), "vlm": json.dumps(TINY)})
    print(tensors["loss"].mean(), tensors["sampled"].flatten()[:5], len(shapes))


if __name__ == "__main__":
    main()
