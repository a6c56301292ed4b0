"""The layers of a decoder: Megatron-Core's linears and experts, with attention and norms of our own."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules
from torch import nn

from rlinf.models.language.expert_routing import RankRouting
from rlinf.models.language.token_plan import TokenPlan


class RMSNorm(nn.Module):
    """Root mean square norm as transformers computes it; Megatron-Core's own refuses sequence parallelism on a CPU.

    Args:
        config: Of the layers.
        hidden_size: Width.
        eps: Added to the mean square.
    """

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        device = "cpu" if config.use_cpu_initialization else torch.cuda.current_device()
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype, device=device))
        # Under sequence parallelism each rank sees a share of the tokens: the gradients of the weight add up.
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        self.eps = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension."""
        precise = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        normalised = precise * torch.rsqrt(precise.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * normalised.to(hidden.dtype)


class PackedCoreAttention(nn.Module):
    """Attention within the sequences of a pack; Megatron-Core hands the plan on as its attention bias.

    Args:
        config: Of the layers.
        layer_number: From 1, counted over all stages.
        windows: Tokens that those of each layer see.
    """

    def __init__(self, config: TransformerConfig, layer_number: int, windows: list[int | None], **_: Any) -> None:
        super().__init__()
        self.window = windows[layer_number - 1]

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: None = None,
        *,
        attention_bias: TokenPlan,
        **_: Any,
    ) -> torch.Tensor:
        """Attend.

        Args:
            query: [T, 1, heads, D] of this rank's tokens.
            key: [T, 1, groups, D].
            value: [T, 1, groups, D].
            attention_mask: None: the plan says who sees whom.
            attention_bias: The plan of the pack.

        Returns:
            [T, 1, heads * D].
        """
        result = attention_bias.attend(query.squeeze(1), key.squeeze(1), value.squeeze(1), window=self.window)
        return result.flatten(1).unsqueeze(1)


class SteeredRouter(TopKRouter):  # type: ignore[misc]
    """Megatron-Core's router, which the plan of a pass may tell where tokens go."""

    steered: RankRouting | None = None

    def routing(
        self, logits: torch.Tensor, padding_mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weights of each token's experts [T, experts], and which those are."""
        if self.steered is None:
            return super().routing(logits, padding_mask)  # type: ignore[no-any-return]
        logits = logits.view(-1, logits.shape[-1])
        weights, chosen = self.steered.route(self.layer_number - 1, logits)
        is_chosen = torch.zeros_like(logits, dtype=torch.bool).scatter(1, chosen, value=True)
        return torch.zeros_like(logits).scatter(1, chosen, weights), is_chosen


class DecoderLayer(TransformerLayer):  # type: ignore[misc]
    """Megatron-Core's layer, which hands the plan of a pass to its router; of the same pass when it is recomputed."""

    def forward(self, *arguments: Any, attention_bias: TokenPlan, **keywords: Any) -> Any:
        """See ``TransformerLayer``; the plan comes as the attention bias."""
        if isinstance(self.mlp, MoELayer):
            self.mlp.router.steered = attention_bias.routing
        return super().forward(*arguments, attention_bias=attention_bias, **keywords)


def block_spec(num_layers: int, windows: list[int | None], *, qk_norm: bool, experts: bool) -> Any:
    """Return what a stage's decoder is built of.

    Args:
        num_layers: Of the stage.
        windows: Tokens that those of each layer of the whole model see.
        qk_norm: Whether queries and keys are normalised.
        experts: Whether the feed-forward parts are experts.
    """
    linears = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)
    feed_forward = ModuleSpec(module=MLP, submodules=linears)
    if experts:
        sequential = ModuleSpec(module=SequentialMLP, submodules=linears)
        feed_forward = ModuleSpec(module=MoELayer, submodules=MoESubmodules(experts=sequential, router=SteeredRouter))

    def core_attention(**keywords: Any) -> PackedCoreAttention:
        return PackedCoreAttention(windows=windows, **keywords)

    attention = SelfAttentionSubmodules(
        linear_qkv=ColumnParallelLinear,
        core_attention=core_attention,
        linear_proj=RowParallelLinear,
        q_layernorm=RMSNorm if qk_norm else None,
        k_layernorm=RMSNorm if qk_norm else None,
    )
    layer = ModuleSpec(
        module=DecoderLayer,
        submodules=TransformerLayerSubmodules(
            input_layernorm=RMSNorm,
            self_attention=ModuleSpec(
                module=SelfAttention, params={"attn_mask_type": AttnMaskType.causal}, submodules=attention
            ),
            self_attn_bda=get_bias_dropout_add,
            pre_mlp_layernorm=RMSNorm,
            mlp=feed_forward,
            mlp_bda=get_bias_dropout_add,
        ),
    )
    return TransformerBlockSubmodules(layer_specs=[layer] * num_layers, layer_norm=RMSNorm)
