"""Megatron-Core's configuration of a model, from that of transformers and a layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn import functional

from rlinf.config.schema.megatron import MegatronConfig
from rlinf.errors import ConfigError
from rlinf.models.fused import head_dim
from rlinf.placement.parallel import ParallelLayout

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe")
"""``model_type`` of the models whose layers Megatron-Core's are equal to."""

ROPE = ("default", "linear", "llama3")
"""Kinds of rotary embeddings whose angles are frequencies times positions, without a factor on cosine and sine."""


def transformer_config(
    hf: Any, cfg: MegatronConfig, layout: ParallelLayout, *, dtype: torch.dtype, finalize: Callable[..., None]
) -> TransformerConfig:
    """Return the configuration of a rank's layers.

    Args:
        hf: Configuration of the whole model.
        cfg: The ``actor.megatron`` section.
        layout: Of all ranks.
        dtype: Of parameters and activations.
        finalize: Reduces gradients at the end of an update.
    """
    is_moe = hf.model_type == "qwen3_moe"
    if torch.cuda.is_available():
        device_keys: dict[str, Any] = {}
    else:
        device_keys = {"use_cpu_initialization": True, "batch_p2p_comm": False}
    # The interleaved schedule gives an output up while it is being sent. NCCL holds the memory until then, gloo does
    # not: the next stage would receive what is written there meanwhile.
    gives_up_outputs = torch.cuda.is_available() or layout.virtual_pipeline == 1
    return TransformerConfig(
        num_layers=hf.num_hidden_layers,
        hidden_size=hf.hidden_size,
        num_attention_heads=hf.num_attention_heads,
        num_query_groups=hf.num_key_value_heads,
        kv_channels=head_dim(hf),
        ffn_hidden_size=hf.intermediate_size,
        normalization="RMSNorm",
        layernorm_epsilon=hf.rms_norm_eps,
        gated_linear_unit=True,
        activation_func=functional.silu,
        add_bias_linear=False,
        add_qkv_bias=has_qkv_bias(hf),
        qk_layernorm=hf.model_type in {"qwen3", "qwen3_moe"},
        hidden_dropout=0.0,
        attention_dropout=0.0,
        perform_initialization=False,
        params_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        fp16=dtype == torch.float16,
        pipeline_dtype=dtype,
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=layout.virtual_pipeline if layout.virtual_pipeline > 1 else None,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor,
        sequence_parallel=layout.sequence,
        # Packs differ in length; Megatron-Core then insists on this dispatcher, in dense models, too.
        variable_seq_lengths=True,
        moe_token_dispatcher_type="alltoall",
        # Without it two stages of the interleaved schedule exchange shapes in different order.
        overlap_p2p_comm=layout.virtual_pipeline > 1,
        deallocate_pipeline_outputs=gives_up_outputs,
        finalize_model_grads_func=finalize,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        **_recompute_keys(cfg),
        **(_expert_keys(hf) if is_moe else {}),
        **device_keys,
    )


def require_supported(hf: Any, model_path: str | None) -> None:
    """Return if Megatron-Core's layers compute what the model does.

    Raises:
        ConfigError: They do not; the message says what differs.
    """
    problem = ""
    if hf.model_type not in FAMILIES:
        problem = f"its layers are those of {hf.model_type}; known are {', '.join(FAMILIES)}"
    elif getattr(hf, "hidden_act", "silu") != "silu":
        problem = f"its activation is {hf.hidden_act}; known is silu"
    elif getattr(hf, "mlp_bias", False) or (hf.model_type in {"llama", "qwen3"} and hf.attention_bias):
        problem = "its output layers have biases"
    elif hf.model_type == "qwen3_moe" and (hf.mlp_only_layers or hf.decoder_sparse_step != 1):
        problem = "some of its layers are dense and others have experts"
    elif hf.model_type == "qwen3_moe" and not hf.norm_topk_prob:
        problem = "the weights of its chosen experts do not add up to 1 (norm_topk_prob)"
    elif getattr(hf, "attention_dropout", 0.0):
        problem = "its attention has dropout"
    rope = (getattr(hf, "rope_parameters", None) or {}).get("rope_type", "default")
    if not problem and rope not in ROPE:
        problem = f"its rotary embedding is {rope}; known are {', '.join(ROPE)}"
    if problem:
        raise ConfigError(
            f"actor.model.model_path: '{model_path}' cannot be trained with actor.training_backend=megatron: "
            f"{problem}. Use actor.training_backend=fsdp."
        )


def has_qkv_bias(hf: Any) -> bool:
    """Return whether queries, keys and values have biases."""
    return bool(hf.model_type == "qwen2")


def windows(hf: Any) -> list[int | None]:
    """Return how many tokens those of each layer see; None is all."""
    window = getattr(hf, "sliding_window", None)
    types = getattr(hf, "layer_types", None) or ["sliding_attention" if window else "full_attention"]
    types = list(types) * (hf.num_hidden_layers if len(types) == 1 else 1)
    return [window if kind == "sliding_attention" else None for kind in types]


def _recompute_keys(cfg: MegatronConfig) -> dict[str, Any]:
    if cfg.recompute == "full":
        return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    if cfg.recompute == "selective":
        return {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    return {}


def _expert_keys(hf: Any) -> dict[str, Any]:
    return {
        "num_moe_experts": hf.num_experts,
        "moe_ffn_hidden_size": hf.moe_intermediate_size,
        "moe_router_topk": hf.num_experts_per_tok,
        "moe_router_pre_softmax": False,
        "moe_router_load_balancing_type": "none",
        "moe_router_dtype": "fp32",
        "moe_aux_loss_coeff": 0.0,
    }
