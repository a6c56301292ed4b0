"""RLT's first stage: a token from which a small decoder reconstructs what a flow's expert attends to.

After "RL Token" (Physical Intelligence, pi.website/research/rlt), with the layers and names of the published code: an
encoder reads the outputs of the language model and a token of its own; a decoder, which sees that token and the outputs
before, predicts each output. The token is then what a small policy sees (``refined_policy``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.config.schema.vla import FlowVLAConfig, RLTokenConfig
from rlinf.errors import ConfigError
from rlinf.models.vla.published_folder import has_component, initial_head

RLT_MODULE = "rlt_module"
"""Name of the network in a policy, and of the file that holds it in a folder."""
_BASE = 10000.0
"""Longest wavelength of the first position encodings, as a multiple of 2 pi."""


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """What the first stage minimises.

    Attributes:
        errors: float32 [N]; mean squared error of each sample's reconstruction.
        losses: float32 [N, H, A]; the flow's own loss. None where the flow keeps its weights.
    """

    errors: torch.Tensor
    losses: torch.Tensor | None


class TokenTransformer(nn.Module):
    """An encoder from outputs of a language model to one token, and a decoder back.

    Args:
        cfg: Its keys.
        width: Of the outputs (``W``).
        with_decoder: Whether it is trained; acting needs the encoder alone.
    """

    def __init__(self, cfg: RLTokenConfig, width: int, *, with_decoder: bool) -> None:
        super().__init__()
        self.width = cfg.embed_dim or width
        if self.width % cfg.num_heads:
            raise ConfigError(
                f"actor.model.rlt.num_heads: received {cfg.num_heads}; must divide the token's width {self.width}."
                " Choose a divisor, or set actor.model.rlt.embed_dim."
            )
        self.encoder = TokenEncoder(cfg, width, self.width)
        self.decoder = TokenDecoder(cfg, width, self.width) if with_decoder else None

    def encode(self, output: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """Return the token of each sample, [N, E].

        Args:
            output: [N, P, W]; of the language model.
            there: bool [N, P]; false for padding, which is not read.

        Raises:
            ConfigError: There are more outputs than positions.
        """
        token: torch.Tensor = self.encoder(output, there)
        return token

    def errors(self, output: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error of each sample's reconstruction over what is there, float32 [N].

        Args:
            output: As for ``encode``; no gradient passes into it.
            there: As for ``encode``.
        """
        assert self.decoder is not None
        target = output.detach()
        made = self.decoder(self.encode(target, there), target, there)
        error = (made.float() - target.float()).square().mean(-1)
        return torch.where(there, error, 0.0).sum(1) / there.sum(1)

    def layers(self) -> list[nn.Module]:
        """Return the layers of both."""
        return [*self.encoder.layers, *(self.decoder.layers if self.decoder is not None else ())]


class TokenEncoder(nn.Module):
    """Attention over outputs of a language model and, behind them, a learned token.

    Args:
        cfg: Keys of the network.
        width: Of the outputs (``W``).
        embed_dim: Of the token (``E``).
    """

    def __init__(self, cfg: RLTokenConfig, width: int, embed_dim: int) -> None:
        super().__init__()
        self.input_proj = _projection(width, embed_dim)
        self.rl_token_embed = nn.Parameter(torch.empty(1, embed_dim))
        self.prefix_pos_enc = nn.Parameter(torch.empty(cfg.prefix_seq_len, embed_dim))
        self.rl_token_pos_enc = nn.Parameter(torch.empty(1, embed_dim))
        self.layers = nn.ModuleList(TokenLayer(cfg, embed_dim) for _ in range(cfg.num_layers))

    def forward(self, output: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """See ``TokenTransformer.encode``."""
        positions = _first(self.prefix_pos_enc, output.shape[1])
        seen = self.input_proj(output.to(positions.dtype)) + positions
        token = (self.rl_token_embed + self.rl_token_pos_enc).expand(len(seen), 1, -1)
        x = torch.cat([seen, token], 1)
        mask = F.pad(there, (0, 1), value=True)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return x[:, -1]


class TokenDecoder(nn.Module):
    """Predicts each output from the token and the outputs before it.

    Args:
        cfg: Keys of the network.
        width: Of the outputs (``W``).
        embed_dim: Of the token (``E``).
    """

    def __init__(self, cfg: RLTokenConfig, width: int, embed_dim: int) -> None:
        super().__init__()
        self.teacher_input_proj = _projection(width, embed_dim)
        self.decoder_pos_enc = nn.Parameter(torch.empty(cfg.prefix_seq_len, embed_dim))
        self.layers = nn.ModuleList(TokenLayer(cfg, embed_dim) for _ in range(cfg.num_layers))
        self.output_proj = nn.Linear(embed_dim, width)

    def forward(self, token: torch.Tensor, target: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """Return the reconstruction, [N, P, W].

        Args:
            token: [N, E].
            target: [N, P, W]; what is to be reconstructed, and the outputs before each.
            there: bool [N, P]; false for padding, which is not read.
        """
        count = target.shape[1]
        positions = _first(self.decoder_pos_enc, count)
        before = torch.where(there[:, :-1, None], target[:, :-1], 0.0).to(positions.dtype)
        x = torch.cat([token.unsqueeze(1).to(positions.dtype), self.teacher_input_proj(before)], 1) + positions
        earlier = torch.ones(count, count, dtype=torch.bool, device=x.device).tril()
        mask = earlier & F.pad(there[:, :-1], (1, 0), value=True)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        made: torch.Tensor = self.output_proj(x.to(self.output_proj.weight.dtype))
        return made


class TokenLayer(nn.Module):
    """Attention and a gated hidden layer, with the parameter names of the published one.

    Args:
        cfg: Keys of the network.
        width: Of the stream (``E``).
    """

    def __init__(self, cfg: RLTokenConfig, width: int) -> None:
        super().__init__()
        hidden = int(width * cfg.mlp_ratio)
        self.self_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.self_attn = SelfAttention(width, cfg.num_heads)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.Identity(), _Gated(hidden), nn.Linear(hidden, width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Map [N, T, E] to the same shape.

        Args:
            x: The stream.
            mask: bool, broadcast to [N, 1, T, T]; which place attends to which.
        """
        x = x.to(self.self_norm.weight.dtype)
        x = x + self.self_attn(self.self_norm(x), mask)
        changed: torch.Tensor = x + self.mlp(self.mlp_norm(x))
        return changed


class SelfAttention(nn.Module):
    """Multi-head attention with the parameters of ``nn.MultiheadAttention``.

    Args:
        width: Of the stream (``E``).
        num_heads: Divide it.
    """

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See ``TokenLayer``."""
        parts = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        query, key, value = (part.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        output: torch.Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return output


class _Gated(nn.Module):
    """Gates units by as many others that are made of the same input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        units, gate = self.proj(x).chunk(2, -1)
        gated: torch.Tensor = units * F.gelu(gate)
        return gated


def token_module(cfg: FlowVLAConfig, width: int) -> TokenTransformer | None:
    """Return the network of ``use_rlt``, with its decoder where that is trained; None without the key."""
    return TokenTransformer(cfg.rlt, width, with_decoder=not cfg.add_q_head) if cfg.use_rlt else None


def token_components(cfg: FlowVLAConfig, folder: Path) -> tuple[list[str], list[str]]:
    """Return which file of a folder holds the token's network, if any, and what of it a policy does not need.

    Raises:
        ConfigError: A policy is to see the token, and the folder has none.
    """
    if not cfg.use_rlt:
        return [], []
    if has_component(folder, RLT_MODULE):
        return [RLT_MODULE], [f"{RLT_MODULE}.decoder."] if cfg.add_q_head else []
    if cfg.add_q_head:
        raise ConfigError(
            f"actor.model.use_rlt: received true; '{folder}' has no {RLT_MODULE}--<steps>_checkpoint.pt, the token "
            "that the policy would see. Train it (loss_type=embodied_sft with actor.model.use_rlt=true), write the "
            "folder by toolkits/vla/export_policy.py and give it as actor.model.model_path; or set use_rlt to false."
        )
    return [], []


def initial_token(name: str, shape: Sequence[int], *, seed: int) -> torch.Tensor:
    """Return the first weights of a parameter of the network: sines and cosines for positions, 1 for norms.

    Args:
        name: Of the parameter.
        shape: Its shape.
        seed: Of the run; for linear layers.
    """
    if name.endswith(("pos_enc", "rl_token_embed")):
        return _sinusoids(*shape)
    if name.endswith("norm.weight"):
        return torch.ones(tuple(shape))
    return initial_head(name, shape, seed=seed)


def _sinusoids(count: int, width: int) -> torch.Tensor:
    """Return encodings of positions, float32 [count, width]: sines in even places, cosines in odd ones."""
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(_BASE) / width))
    angles = torch.arange(count, dtype=torch.float32).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]


def _projection(width: int, embed_dim: int) -> nn.Module:
    return nn.Identity() if width == embed_dim else nn.Linear(width, embed_dim)


def _first(positions: torch.Tensor, count: int) -> torch.Tensor:
    if count > len(positions):
        raise ConfigError(
            f"actor.model.rlt.prefix_seq_len: received {len(positions)}; the model attends to {count} tokens. Set "
            f"it to {count} or more."
        )
    return positions[:count]
