"""How tests build Megatron-Core engines on ranks, and look into them."""

from __future__ import annotations

import torch

from rlinf.config.schema.megatron import MegatronConfig
from rlinf.config.schema.train import OptimConfig
from rlinf.hybrid_engines.train.megatron.engine import MegatronEngine
from rlinf.models import get_model
from tests.unit.hybrid_engines.train.conformance import Setting, Tensors, gradients_of, model_config, parameters_of


def make_engine(setting: Setting, rank: int) -> MegatronEngine:
    """Build the engine of one rank."""
    layout = setting.layout
    torch.manual_seed(0)
    return MegatronEngine(
        get_model(model_config(setting), on_meta=True),
        optim=OptimConfig(**setting.optim),
        megatron=MegatronConfig(
            tensor_model_parallel_size=layout.tensor,
            pipeline_model_parallel_size=layout.pipeline,
            virtual_pipeline_model_parallel_size=layout.virtual_pipeline,
            context_parallel_size=layout.context,
            expert_model_parallel_size=layout.expert,
            expert_tensor_parallel_size=layout.expert_tensor,
            sequence_parallel=layout.sequence,
            **setting.engine,
        ),
        precision=setting.model.get("precision", "fp32"),
        device=torch.device("cpu"),
        rank=rank,
        world_size=layout.world_size,
    )


@parameters_of.register
def _(engine: MegatronEngine) -> Tensors:
    return {name: engine.shards.whole(name) for name in engine.shards.shapes}


@gradients_of.register
def _(engine: MegatronEngine) -> Tensors:
    gradients = engine.optimizer.whole(lambda share: share.grad)
    return {name: engine.shards.whole(name, gradients) for name in engine.shards.shapes}
