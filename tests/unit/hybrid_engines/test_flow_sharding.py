"""The passes of flow policies have the same gradient on one rank and on two, whole or sharded."""

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.models import get_model
from rlinf.models.base_policy import ForwardType
from rlinf.scheduler.probe import find_free_port
from tests.ranks import run_ranks

ROWS, CHUNK, DIM, STEPS = 8, 3, 2, 4
MODELS = MappingProxyType(
    {
        "diffusion": {"noise_method": "flow_sde", "add_value_head": True},
        "learned": {"noise_method": "flow_noise"},
        "velocity": {"noise_method": "flow_ode", "add_value_head": True},
        "critics": {"noise_method": "flow_noise", "velocity": "gated", "add_q_head": True},
    }
)


def diffusion_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    evaluation = model(forward_inputs=batch)
    values = 0.0 if evaluation.values is None else evaluation.values.square().sum()
    return evaluation.logprobs.sum() + evaluation.entropy.sum() + values


def velocity_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    noise, time = batch["noise"][:, 0], batch["time"]
    evaluation = model(ForwardType.VELOCITY, forward_inputs=batch, noise=noise, time=time)
    return (evaluation.velocity - evaluation.target).square().sum() + evaluation.values.square().sum()


def critics_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    evaluation = model(ForwardType.ACTOR, inputs={"states": batch["states"]}, noise=batch["noise"])
    return evaluation.logprobs.sum() - evaluation.q.sum()


LOSSES = {"diffusion": diffusion_loss, "learned": diffusion_loss, "velocity": velocity_loss, "critics": critics_loss}


def gradient(name: str, sharding: str = "no_shard", rank: int = 0, world_size: int = 1) -> dict[str, Any]:
    torch.manual_seed(0)
    model = get_model(
        FlowPolicyConfig(
            model_type="flow_policy",
            obs_dim=5,
            action_dim=DIM,
            num_action_chunks=CHUNK,
            hidden_dims=[16],
            num_denoise_steps=STEPS,
            **MODELS[name],
        )
    )
    engine = FSDPEngine(
        model,
        optim=OptimConfig(),
        fsdp=FSDPConfig(sharding_strategy=sharding),
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=world_size,
    )
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(ROWS, *shape, generator=generator)

    batch = {"states": normal(5), "chain": normal(STEPS + 1, CHUNK, DIM), "action": normal(CHUNK, DIM)}
    batch |= {"noise": normal(STEPS + 1, CHUNK, DIM), "time": torch.rand(ROWS, generator=generator)}
    share = ROWS // world_size
    mine = {key: tensor[rank * share : (rank + 1) * share] for key, tensor in batch.items()}
    engine.forward_backward([mine], Pass.whole(lambda model, rows: (LOSSES[name](model, rows) * world_size, {})))
    gradients = {key: p.grad for key, p in engine.model.named_parameters() if p.grad is not None}
    return {key: (g.full_tensor() if hasattr(g, "full_tensor") else g).clone() for key, g in gradients.items()}


def run_rank(rank: int, port: int, path: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    results = {
        (name, sharding): gradient(name, sharding, rank, 2)
        for name in MODELS
        for sharding in ("no_shard", "full_shard")
    }
    if rank == 0:
        torch.save(results, path)


@pytest.mark.timeout(240)
def test_ranks_and_sharding_leave_the_gradient_as_it_is(tmp_path: Path) -> None:
    run_ranks(run_rank, find_free_port(), tmp_path / "gradients.pt")
    for (name, sharding), actual in torch.load(tmp_path / "gradients.pt").items():
        expected = gradient(name)
        assert actual.keys() >= expected.keys()
        scale = max(float(g.abs().max()) for g in expected.values())
        assert scale > 0
        for key, tensor in expected.items():
            torch.testing.assert_close(actual[key], tensor, atol=1e-5 * scale, rtol=0.0, msg=f"{name} {sharding} {key}")
