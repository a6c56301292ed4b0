"""The parts of GR00T N1.5 by their published names: Eagle 2.5, and the head that carries noise to actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.models.vla.gr00t_dit import DiffusionTransformer, SelfAttentionTransformer, TransformerShape, sinusoids
from rlinf.utils.optional import require

_EAGLE_WIDTH = 2048
"""What published code projects from where ``project_to_dim`` is given."""


@dataclass(frozen=True, slots=True)
class Gr00tShape:
    """What the configurations of a published policy and of its Eagle say.

    Attributes:
        vision: Configuration of SigLIP.
        language: Configuration of Qwen3, with the layers that are kept.
        projected_width: Of what Eagle returns, projected; None returns the language model's output.
        image_token: Number of the token that stands for a patch.
        diffusion: Sizes of the diffusion transformer.
        mixing: Sizes of the transformer over what is seen.
        seen_width: Of what is seen (``S``).
        token_width: Of the diffusion transformer's tokens.
        hidden_width: Of the encoders' hidden layers.
        action_dim: Width of padded actions (``D``).
        horizon: Actions that are predicted (``H``).
        state_dim: Width of padded states.
        num_future_tokens: Tokens that belong to no action.
        num_positions: Actions that have a position; None has no positions.
        num_embodiments: Robots that have encoders of their own.
        num_buckets: Number of different moments.
    """

    vision: Any
    language: Any
    projected_width: int | None
    image_token: int
    diffusion: TransformerShape
    mixing: TransformerShape
    seen_width: int
    token_width: int
    hidden_width: int
    action_dim: int
    horizon: int
    state_dim: int
    num_future_tokens: int
    num_positions: int | None
    num_embodiments: int
    num_buckets: int

    @property
    def num_patches(self) -> int:
        """Tokens of an image."""
        side: int = self.vision.image_size // self.vision.patch_size
        return side**2

    @classmethod
    def of_config(cls, config: Mapping[str, Any], eagle: Mapping[str, Any]) -> Gr00tShape:
        """Read configurations of the published code.

        Args:
            config: The policy's ``config.json``.
            eagle: That of Eagle.

        Raises:
            KeyError: A key is missing.
            ValueError: The policy is of a kind that was not published.
        """
        _require_published(config, eagle)
        transformers = require("transformers", needed_by="model_type=gr00t")
        head, backbone = config["action_head_cfg"], config["backbone_cfg"]
        text = {**eagle["text_config"], "num_hidden_layers": backbone["select_layer"], "layer_types": None}
        return cls(
            vision=transformers.SiglipVisionConfig(**{**eagle["vision_config"], "vision_use_head": False}),
            language=transformers.Qwen3Config(**text),
            projected_width=backbone.get("project_to_dim"),
            image_token=eagle["image_token_index"],
            diffusion=TransformerShape.of_config(head["diffusion_model_cfg"]),
            mixing=TransformerShape.of_config(head["vl_self_attention_cfg"]),
            seen_width=head["backbone_embedding_dim"],
            token_width=head["input_embedding_dim"],
            hidden_width=head["hidden_size"],
            action_dim=head["action_dim"],
            horizon=config.get("action_horizon", head["action_horizon"]),
            state_dim=head["max_state_dim"],
            num_future_tokens=head.get("num_target_vision_tokens", 32),
            num_positions=head.get("max_seq_len", 1024) if head.get("add_pos_embed", True) else None,
            num_embodiments=head.get("max_num_embodiments", 32),
            num_buckets=head.get("num_timestep_buckets", 1000),
        )


class Eagle(nn.Module):
    """SigLIP and the first layers of Qwen3.

    Args:
        shape: The model's sizes.
    """

    def __init__(self, shape: Gr00tShape) -> None:
        super().__init__()
        transformers = require("transformers", needed_by="model_type=gr00t")
        shape.vision._attn_implementation = shape.language._attn_implementation = "sdpa"
        self.image_token = shape.image_token
        width = shape.language.hidden_size
        parts: dict[str, nn.Module] = {
            "vision_model": nn.ModuleDict({"vision_model": transformers.SiglipVisionModel(shape.vision)}),
            "mlp1": nn.Sequential(nn.Linear(shape.vision.hidden_size, width)),
            "language_model": nn.ModuleDict({"model": transformers.Qwen3Model(shape.language)}),
        }
        self.eagle_model = nn.ModuleDict(parts)
        self.eagle_linear = None if shape.projected_width is None else nn.Linear(_EAGLE_WIDTH, shape.projected_width)

    @property
    def parts(self) -> SimpleNamespace:
        """``vision``, ``projector`` and ``language``."""
        model: Any = self.eagle_model
        return SimpleNamespace(
            vision=model["vision_model"]["vision_model"],
            projector=model["mlp1"],
            language=model["language_model"]["model"],
        )

    def compute_buffers(self) -> None:
        """Give the tower's numbers of patches their values, which no file holds."""
        embeddings = self.parts.vision.embeddings
        embeddings.position_ids = torch.arange(embeddings.num_positions).unsqueeze(0)

    def forward(self, images: Sequence[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        """Return what is seen and read, [N, L, S].

        Args:
            images: ``I`` images, uint8 [N, S, S, 3].
            tokens: int [N, L] of the prompt, padded at its end; each token of an image becomes one of its patches.
        """
        vision, projector, language = self.parts.vision, self.parts.projector, self.parts.language
        patches = [projector(vision(pixel_values=_pixels(image)).last_hidden_state) for image in images]
        words = language.embed_tokens(tokens.long())
        is_patch = (tokens == self.image_token).unsqueeze(-1)
        sequence = words.masked_scatter(is_patch, torch.cat(patches, 1).to(words.dtype))
        # Tokens attend to earlier ones alone, and so never to padding.
        output: torch.Tensor = language(inputs_embeds=sequence, use_cache=False).last_hidden_state
        return output if self.eagle_linear is None else self.eagle_linear(output)


class EmbodimentLinear(nn.Module):
    """A linear layer of which each embodiment has its own.

    Args:
        num_embodiments: Layers.
        in_width: Of the input.
        out_width: Of the output.
    """

    def __init__(self, num_embodiments: int, in_width: int, out_width: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.zeros(num_embodiments, in_width, out_width))
        self.b = nn.Parameter(torch.zeros(num_embodiments, out_width))

    def forward(self, x: torch.Tensor, embodiment: int) -> torch.Tensor:
        """Map [..., in_width] to [..., out_width]."""
        return x @ self.W[embodiment] + self.b[embodiment]


class EmbodimentMLP(nn.Module):
    """Two such layers.

    Args:
        num_embodiments: Of each layer.
        widths: Of input, hidden layer and output.
    """

    def __init__(self, num_embodiments: int, *widths: int) -> None:
        super().__init__()
        self.layer1 = EmbodimentLinear(num_embodiments, *widths[:2])
        self.layer2 = EmbodimentLinear(num_embodiments, *widths[1:])

    def forward(self, x: torch.Tensor, embodiment: int) -> torch.Tensor:
        """Map [..., in] to [..., out]."""
        output: torch.Tensor = self.layer2(F.relu(self.layer1(x, embodiment)), embodiment)
        return output


class ActionEncoder(nn.Module):
    """Embeds noisy actions and their moment.

    Args:
        shape: The model's sizes.
    """

    def __init__(self, shape: Gr00tShape) -> None:
        super().__init__()
        count, width = shape.num_embodiments, shape.token_width
        self.W1 = EmbodimentLinear(count, shape.action_dim, width)
        self.W2, self.W3 = EmbodimentLinear(count, 2 * width, width), EmbodimentLinear(count, width, width)

    def forward(self, x: torch.Tensor, bucket: torch.Tensor, embodiment: int) -> torch.Tensor:
        """Map actions [N, J, H, D] at moments int [N, J] to [N, J, H, token_width]."""
        embedded = self.W1(x, embodiment)
        width = embedded.shape[-1]
        moment = torch.cat(sinusoids(bucket, width, last_divisor=width // 2), -1).to(x.dtype)
        both = torch.cat([embedded, moment.unsqueeze(-2).expand_as(embedded)], -1)
        output: torch.Tensor = self.W3(F.silu(self.W2(both, embodiment)), embodiment)
        return output


class ActionHead(nn.Module):
    """Reads velocities from the diffusion transformer.

    Args:
        shape: The model's sizes.
    """

    def __init__(self, shape: Gr00tShape) -> None:
        super().__init__()
        count, hidden, width = shape.num_embodiments, shape.hidden_width, shape.token_width
        self.num_buckets = shape.num_buckets
        self.model = DiffusionTransformer(shape.diffusion, source_width=shape.seen_width)
        self.state_encoder = EmbodimentMLP(count, shape.state_dim, hidden, width)
        self.action_encoder = ActionEncoder(shape)
        self.action_decoder = EmbodimentMLP(count, shape.diffusion.output_dim, hidden, shape.action_dim)
        self.future_tokens = nn.Embedding(shape.num_future_tokens, width)
        self.vlln = nn.LayerNorm(shape.seen_width)
        self.vl_self_attention = SelfAttentionTransformer(shape.mixing)
        self.position_embedding = None if shape.num_positions is None else nn.Embedding(shape.num_positions, width)

    def output(
        self,
        x: torch.Tensor,
        *,
        bucket: torch.Tensor,
        state: torch.Tensor,
        seen: torch.Tensor,
        there: torch.Tensor,
        embodiment: int,
    ) -> torch.Tensor:
        """Return what ``action_decoder`` makes velocities of, [N, J, H, E].

        Args:
            x: [N, J, H, D].
            bucket: int [N, J]; the moment of each point, 0 for noise.
            state: [N, token_width]; what ``state_encoder`` returns.
            seen: [N, P, S].
            there: bool [N, P]; false for padding.
            embodiment: Whose encoders.
        """
        num_points, horizon = x.shape[1:3]
        actions = self.action_encoder(x, bucket, embodiment)
        if self.position_embedding is not None:
            actions = actions + self.position_embedding(torch.arange(horizon, device=x.device))
        first = torch.cat([state.unsqueeze(1), self.future_tokens.weight.expand(len(x), -1, -1)], 1)
        tokens = torch.cat([first.unsqueeze(1).expand(-1, num_points, -1, -1), actions], 2)
        output: torch.Tensor = self.model(tokens, bucket=bucket, seen=seen, there=there)
        return output[:, :, -horizon:]


def _pixels(image: torch.Tensor) -> torch.Tensor:
    """Return float32 [N, 3, S, S] from -1 to 1 of uint8 [N, S, S, 3]."""
    return (image.permute(0, 3, 1, 2).float() / 255.0 - 0.5) / 0.5


def _require_published(config: Mapping[str, Any], eagle: Mapping[str, Any]) -> None:
    """Refuse variants that the published code knows and no published policy is of."""
    if config.get("model_type", "gr00t_n1_5") != "gr00t_n1_5":
        raise ValueError(f"model_type {config['model_type']}; gr00t_n1_5 alone is supported")
    if not config["action_head_cfg"].get("use_vlln", True):
        raise ValueError("use_vlln false; what is seen is always normalised here")
    if eagle.get("use_pixel_shuffle", True) or eagle.get("mlp_connector_layers", 2) != 1:
        raise ValueError("Eagle's use_pixel_shuffle and mlp_connector_layers must be false and 1")
    if eagle["text_config"]["model_type"] != "qwen3" or eagle.get("select_layer", -4) != -1:
        raise ValueError("Eagle's text_config.model_type and select_layer must be qwen3 and -1")
