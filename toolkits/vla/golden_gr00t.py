"""Run the published code of GR00T N1.5 at a tiny size and write what it computes: the fixture of a golden test.

    python toolkits/vla/golden_gr00t.py --code lerobot --out tests/golden

``--code`` is a checkout of github.com/huggingface/lerobot (e275ea3, the last one with N1.5), of which the modules of
Eagle and of the action head run, on the project's transformers and on diffusers 0.38. Weights are ``seeded_weight`` of
their names; the fixture holds inputs and outputs. The published code attends to padding, so that samples of one batch
change each other: each sample is a batch of its own here, without padding.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import types
from pathlib import Path
from typing import Any

import torch

EAGLE: dict[str, Any] = {
    "text_config": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 320,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
    },
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
        "layer_norm_eps": 1e-6,
        "hidden_act": "gelu_pytorch_tanh",
    },
    "select_layer": -1,
    "use_pixel_shuffle": False,
    "mlp_connector_layers": 1,
    "image_token_index": 319,
}
"""Sizes of Eagle; the published policies keep 12 of 28 layers, this one 2 of 3."""
HEAD: dict[str, Any] = {
    "action_dim": 8,
    "action_horizon": 6,
    "add_pos_embed": True,
    "backbone_embedding_dim": 24,
    "diffusion_model_cfg": {
        "attention_head_dim": 6,
        "cross_attention_dim": 24,
        "dropout": 0.2,
        "final_dropout": True,
        "interleave_self_attention": True,
        "norm_type": "ada_norm",
        "num_attention_heads": 4,
        "num_layers": 4,
        "output_dim": 16,
        "positional_embeddings": None,
    },
    "hidden_size": 16,
    "input_embedding_dim": 24,
    "max_action_dim": 8,
    "max_state_dim": 10,
    "max_num_embodiments": 4,
    "max_seq_len": 32,
    "num_inference_timesteps": 4,
    "num_target_vision_tokens": 3,
    "num_timestep_buckets": 1000,
    "use_vlln": True,
    "vl_self_attention_cfg": {
        "attention_head_dim": 6,
        "dropout": 0.2,
        "final_dropout": True,
        "num_attention_heads": 4,
        "num_layers": 2,
        "positional_embeddings": None,
    },
}
FULL_EAGLE: dict[str, Any] = copy.deepcopy(EAGLE)
FULL_EAGLE["text_config"] |= {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151680,
}
FULL_EAGLE["vision_config"] |= {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 14,
}
FULL_EAGLE["image_token_index"] = 151669
FULL_HEAD: dict[str, Any] = copy.deepcopy(HEAD) | {
    "action_dim": 32,
    "action_horizon": 16,
    "backbone_embedding_dim": 2048,
    "hidden_size": 1024,
    "input_embedding_dim": 1536,
    "max_action_dim": 32,
    "max_state_dim": 64,
    "max_num_embodiments": 32,
    "max_seq_len": 1024,
    "num_target_vision_tokens": 32,
}
FULL_HEAD["diffusion_model_cfg"] |= {
    "attention_head_dim": 48,
    "cross_attention_dim": 2048,
    "num_attention_heads": 32,
    "num_layers": 16,
    "output_dim": 1024,
}
FULL_HEAD["vl_self_attention_cfg"] |= {"attention_head_dim": 64, "num_attention_heads": 32, "num_layers": 4}
"""Sizes of the published policies."""
LAYERS, FULL_LAYERS = 2, 12
EMBODIMENT, ACTION_DIM = 2, 5
LENGTHS = (16, 13)
"""Tokens of the samples' prompts, eight of them patches."""


class Parts(torch.nn.Module):
    """What a published checkpoint holds, by its names.

    Args:
        backbone: ``EagleBackbone``.
        head: ``FlowmatchingActionHead``.
    """

    def __init__(self, backbone: torch.nn.Module, head: torch.nn.Module) -> None:
        super().__init__()
        self.backbone, self.action_head = backbone, head


def import_published(code: Path) -> tuple[Any, Any, Any]:
    """Return the published modules of Eagle's configuration, Eagle and the action head, without what is around them."""
    root = code.resolve() / "src" / "lerobot"
    for name in ("", ".utils", ".policies", ".policies.groot", ".policies.groot.action_head"):
        package = types.ModuleType(f"lerobot{name}")
        package.__path__ = [str(root.joinpath(*name.strip(".").split(".")))]
        sys.modules[package.__name__] = package
    package = types.ModuleType("lerobot.policies.groot.eagle2_hg_model")
    package.__path__ = [str(root / "policies" / "groot" / "eagle2_hg_model")]
    sys.modules[package.__name__] = package
    stand_in(
        "lerobot.utils.import_utils",
        require_package=lambda *_, **__: None,
        _transformers_available=True,
        _diffusers_available=True,
    )
    import lerobot.policies.groot.action_head.flow_matching_action_head as head
    import lerobot.policies.groot.eagle2_hg_model.configuration_eagle2_5_vl as configuration
    import lerobot.policies.groot.eagle2_hg_model.modeling_eagle2_5_vl as eagle

    return configuration, eagle, head


def stand_in(name: str, **contents: Any) -> None:
    """Put a module in the place of one that is not needed."""
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module


def build(modules: tuple[Any, Any, Any], eagle: dict[str, Any], head: dict[str, Any], layers: int) -> Parts:
    """Return the published model, without the layers of Eagle that the published backbone takes off.

    Args:
        modules: Of the published code.
        eagle: Eagle's configuration.
        head: The action head's.
        layers: How many of Eagle's layers are kept.
    """
    configuration, eagle_module, head_module = modules
    config = configuration.Eagle25VLConfig(**copy.deepcopy(eagle), _attn_implementation="eager")
    # Kernels are those of the machine; the published code asks for flash attention.
    tower, language = eagle_module.SiglipVisionModel, eagle_module.Qwen3ForCausalLM
    config.vision_config._attn_implementation = config.text_config._attn_implementation = "eager"
    model = eagle_module.Eagle25VLForConditionalGeneration(
        config, vision_model=tower(config.vision_config), language_model=language(config.text_config)
    )
    while len(model.language_model.model.layers) > layers:
        model.language_model.model.layers.pop(-1)
    model.language_model.config.num_hidden_layers = layers
    backbone = torch.nn.ModuleDict({"eagle_model": model})
    defaults = {
        name: field.default for name, field in head_module.FlowmatchingActionHeadConfig.__dataclass_fields__.items()
    }
    keys = types.SimpleNamespace(**{**defaults, **copy.deepcopy(head)})
    return Parts(backbone, head_module.FlowmatchingActionHead(keys))


def published_name(name: str) -> str:
    """Return the name that transformers 4.51, which wrote published files, has for a weight."""
    tower = "backbone.eagle_model.vision_model."
    is_new = name.startswith(tower) and not name.startswith(f"{tower}vision_model.")
    return name.replace(tower, f"{tower}vision_model.", 1) if is_new else name


def seen(parts: Parts, pixels: torch.Tensor, tokens: torch.Tensor, layers: int) -> Any:
    """Return what the published backbone hands to the head for one sample."""
    from transformers.feature_extraction_utils import BatchFeature

    there = torch.ones_like(tokens)
    eagle: Any = parts.backbone["eagle_model"]
    output = eagle(
        pixel_values=pixels, input_ids=tokens, attention_mask=there, output_hidden_states=True, return_dict=True
    )
    features = output.hidden_states[layers]
    return BatchFeature(data={"backbone_features": features, "backbone_attention_mask": there})


def run(modules: tuple[Any, Any, Any]) -> tuple[dict[str, torch.Tensor], dict[str, list[int]]]:
    """Return inputs and outputs of the published model, and the shapes of its weights."""
    from seeded_weights import seeded_images, seeded_weight
    from transformers.feature_extraction_utils import BatchFeature

    parts = build(modules, EAGLE, HEAD, LAYERS).eval()
    size, horizon, width = EAGLE["vision_config"]["image_size"], HEAD["action_horizon"], HEAD["action_dim"]
    state_dict = parts.state_dict()
    shapes = {published_name(name): list(tensor.shape) for name, tensor in state_dict.items()}
    head: Any = parts.action_head
    with torch.no_grad():
        # Of tied weights the first name counts, which is read last.
        for name, parameter in reversed(state_dict.items()):
            parameter.copy_(seeded_weight(published_name(name), parameter.shape))
        images = seeded_images(4, size).view(2, 2, size, size, 3)
        numbers = torch.arange(2 * max(LENGTHS)).view(2, -1) * 5 + 3
        numbers[:, 2:6] = numbers[:, 7:11] = EAGLE["image_token_index"]
        there = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)
        state = torch.linspace(-1, 1, 2 * HEAD["max_state_dim"]).view(2, -1)
        actions, time = (
            torch.linspace(-2, 2, 2 * horizon * width).cos().view(2, horizon, width),
            torch.tensor([0.7, 0.2]),
        )
        noise, losses, sampled = [], [], []
        for row, length in enumerate(LENGTHS):
            pixels = images[row].permute(0, 3, 1, 2).float() / 255 * 2 - 1
            inputs: dict[str, Any] = {
                "state": state[row : row + 1].unsqueeze(1),
                "embodiment_id": torch.tensor([EMBODIMENT]),
                "action": actions[row : row + 1],
                "action_mask": (torch.arange(width) < ACTION_DIM).expand(1, horizon, -1),
            }
            torch.manual_seed(row)
            noise.append(torch.randn(1, horizon, width))
            torch.manual_seed(row)
            sampled.append(
                head.get_action(seen(parts, pixels, numbers[row : row + 1, :length], LAYERS), BatchFeature(inputs))[
                    "action_pred"
                ]
            )
            head.sample_time = lambda *_, row=row, **__: time[row : row + 1]
            torch.manual_seed(row)
            losses.append(
                head(seen(parts, pixels, numbers[row : row + 1, :length], LAYERS), BatchFeature(inputs))["loss"]
            )
    tensors = {"images.0": images[:, 0], "images.1": images[:, 1], "tokens": numbers * there, "token_mask": there}
    tensors |= {"state": state, "actions": actions, "time": time, "noise": torch.cat(noise)}
    return tensors | {"loss": torch.stack(losses), "sampled": torch.cat(sampled)}, shapes


def main() -> None:
    """Write the fixture, or the names of the full-size model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", action="store_true", help="write names of the full-size model instead")
    args = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    modules = import_published(args.code)
    from golden_openvla import write_names
    from safetensors.torch import save_file

    args.out.mkdir(parents=True, exist_ok=True)
    if args.names:
        with torch.device("meta"):
            full = build(modules, FULL_EAGLE, FULL_HEAD, FULL_LAYERS)
        named = {published_name(name): tensor for name, tensor in full.state_dict().items()}
        write_names(args.out / "gr00t_n1_5_3b.txt", types.SimpleNamespace(state_dict=lambda: named))
        return
    tensors, shapes = run(modules)
    found = {name: tensor.contiguous() for name, tensor in tensors.items()}
    notes = {"shapes": shapes, "eagle": EAGLE, "head": HEAD, "embodiment": EMBODIMENT, "action_dim": ACTION_DIM}
    save_file(found, args.out / "gr00t.safetensors", {name: json.dumps(note) for name, note in notes.items()})
    print(tensors["loss"], tensors["sampled"].flatten()[:5], len(shapes))


if __name__ == "__main__":
    main()
