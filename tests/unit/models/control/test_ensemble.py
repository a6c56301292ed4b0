"""Layers side by side give what each would give alone; batch moments are those of all rows of all ranks."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from rlinf.models.control.ensemble import EnsembleBatchRenorm, EnsembleLayerNorm, EnsembleLinear
from rlinf.scheduler.probe import find_free_port
from tests.ranks import run_ranks

HEADS, ROWS, DIM = 3, 8, 4


def random_rows(seed: int = 0) -> torch.Tensor:
    return 2.0 * torch.randn(HEADS, ROWS, DIM, generator=torch.Generator().manual_seed(seed)) + 1.0


def randomize(
    layer: EnsembleLinear | EnsembleLayerNorm | EnsembleBatchRenorm,
) -> EnsembleLinear | EnsembleLayerNorm | EnsembleBatchRenorm:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
    return layer


def test_chosen_members_give_what_they_give_among_all() -> None:
    chosen = torch.tensor([2, 0])
    for layer in (EnsembleLinear(HEADS, DIM, 5), EnsembleLayerNorm(HEADS, DIM), EnsembleBatchRenorm(HEADS, DIM).eval()):
        randomize(layer)
        torch.testing.assert_close(layer(random_rows()[chosen], chosen), layer(random_rows())[chosen])


def test_layer_norm_is_that_of_each_network() -> None:
    layer = randomize(EnsembleLayerNorm(HEADS, DIM))
    for head, (x, y) in enumerate(zip(random_rows(), layer(random_rows()), strict=True)):
        alone = nn.LayerNorm(DIM)
        alone.load_state_dict({"weight": layer.weight[head, 0], "bias": layer.bias[head, 0]})
        torch.testing.assert_close(y, alone(x))


def test_batch_renorm_begins_as_batch_norm() -> None:
    layer = randomize(EnsembleBatchRenorm(HEADS, DIM))
    alone = [nn.BatchNorm1d(DIM, eps=1e-3, momentum=0.01) for _ in range(HEADS)]
    for head, norm in enumerate(alone):
        norm.load_state_dict({**norm.state_dict(), "weight": layer.weight[head, 0], "bias": layer.bias[head, 0]})
    for seed in range(3):
        rows, theirs = random_rows(seed).requires_grad_(), random_rows(seed).requires_grad_()
        actual = layer(rows)
        expected = torch.stack([norm(x) for norm, x in zip(alone, theirs, strict=True)])
        torch.testing.assert_close(actual, expected)
        for output in (actual, expected):
            output.square().sum().backward()
        torch.testing.assert_close(rows.grad, theirs.grad, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(layer.mean[:, 0], torch.stack([norm.running_mean for norm in alone]))
    layer.eval()
    x = random_rows(9)
    by_hand = (x - layer.mean) / torch.sqrt(layer.var + 1e-3) * layer.weight + layer.bias
    torch.testing.assert_close(layer(x), by_hand)
    assert int(layer.updates) == 3


@pytest.mark.parametrize(
    ("mean", "var", "scale", "shift"),
    [
        (0.0, 3.999, 2.0, 0.5),  # batch: mean 1, variance 15.999: std 4 against 2, and (1 - 0) / 2
        (0.0, 0.0, 3.0, 5.0),  # both bounds
        (2.0, 399.999, 1 / 3, -0.05),
    ],
)
def test_running_moments_correct_the_batch_after_the_warm_up(
    mean: float, var: float, scale: float, shift: float
) -> None:
    layer = EnsembleBatchRenorm(1, 1)
    layer.updates.fill_(100_000)
    layer.mean.fill_(mean)
    layer.var.fill_(var)
    spread = 15.999**0.5
    x = torch.tensor([1.0 - spread, 1.0 + spread]).view(1, 2, 1)
    normal = spread / 4.0
    assert layer(x).flatten().tolist() == pytest.approx([-normal * scale + shift, normal * scale + shift], abs=1e-4)
    assert float(layer.mean) == pytest.approx(0.99 * mean + 0.01)
    assert float(layer.var) == pytest.approx(0.99 * var + 0.01 * 15.999, rel=1e-5)


def normalize(rows: torch.Tensor) -> dict[str, Any]:
    """Return outputs, input gradients and running moments of a batch whose loss is no sum over rows."""
    layer = randomize(EnsembleBatchRenorm(HEADS, DIM))
    rows = rows.clone().requires_grad_()
    output = layer(rows)
    output.pow(3).sum().backward()
    return {"output": output.detach(), "grad": rows.grad, "mean": layer.mean, "var": layer.var}


def run_rank(rank: int, port: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.save(normalize(random_rows().chunk(2, 1)[rank]), folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.timeout(240)
def test_two_ranks_normalize_by_the_moments_of_both(tmp_path: Path) -> None:
    run_ranks(run_rank, find_free_port(), tmp_path)
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    whole = normalize(random_rows())
    for name in ("output", "grad"):
        torch.testing.assert_close(torch.cat([part[name] for part in parts], 1), whole[name], atol=1e-4, rtol=1e-4)
    for part in parts:
        torch.testing.assert_close(part["mean"], whole["mean"])
        torch.testing.assert_close(part["var"], whole["var"])
