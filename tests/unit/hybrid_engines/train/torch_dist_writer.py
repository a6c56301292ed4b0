"""Writes checkpoints of Megatron-Core's own model, and what the model says; a program, as Megatron's state is global.

python torch_dist_writer.py FOLDER
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import moe_utils

LENGTH, VOCABULARY, PADDED = 12, 90, 96
SIZES: dict[str, Any] = {"num_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "layernorm_epsilon": 1e-6}
EXPERTS: dict[str, Any] = {
    "num_moe_experts": 4,
    "moe_ffn_hidden_size": 16,
    "moe_router_topk": 2,
    "moe_router_pre_softmax": False,
    "moe_router_load_balancing_type": "none",
    "moe_token_dispatcher_type": "allgather",
}


def pretend_cuda() -> None:
    """Have what Megatron asks of CUDA without need do nothing."""
    for name in ("synchronize", "Stream", "current_stream"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]
    get_cuda_rng_tracker().fork = lambda *_, **__: contextlib.nullcontext()
    moe_utils.te_general_gemm = None


def main() -> None:
    """Write the checkpoints ``dense`` and ``experts``, each with the file ``NAME.pt``: logits of fixed tokens."""
    folder = Path(sys.argv[1])
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group("gloo", rank=0, world_size=1, store=store)
    parallel_state.initialize_model_parallel()
    pretend_cuda()
    for name in ("dense", "experts"):
        torch.manual_seed(0)
        has_experts = name == "experts"
        config = TransformerConfig(
            **SIZES,
            **(EXPERTS if has_experts else {}),
            num_query_groups=2,
            kv_channels=8,
            ffn_hidden_size=64,
            gated_linear_unit=True,
            activation_func=torch.nn.functional.silu,
            add_bias_linear=False,
            add_qkv_bias=not has_experts,
            qk_layernorm=has_experts,
            normalization="RMSNorm",
            use_cpu_initialization=True,
            init_method_std=0.2,
            attention_dropout=0.0,
            hidden_dropout=0.0,
        )
        spec = get_gpt_layer_local_spec(
            num_experts=config.num_moe_experts, qk_layernorm=has_experts, normalization="RMSNorm"
        )
        model = GPTModel(
            config=config,
            transformer_layer_spec=spec,
            vocab_size=PADDED,
            max_sequence_length=64,
            position_embedding_type="rope",
            share_embeddings_and_output_weights=False,
        ).eval()
        for parameter in model.parameters():
            if parameter.ndim == 1:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
        (folder / name).mkdir()
        dist_checkpointing.save(model.sharded_state_dict(), str(folder / name))
        tokens = (torch.arange(LENGTH) * 7 % VOCABULARY)[None]
        hidden = torch.ones(1, 1, LENGTH, LENGTH).triu(1).bool()
        with torch.no_grad():
            logits = model(tokens, torch.arange(LENGTH)[None], hidden)
        torch.save(logits[..., :VOCABULARY], folder / f"{name}.pt")
    sys.stdout.write(json.dumps(sorted(path.name for path in folder.iterdir())))


if __name__ == "__main__":
    main()
