"""Layers that are compiled for rollouts act as they did, with the weights that they have at the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rlinf.config.schema.train import RolloutConfig
from rlinf.errors import ConfigError
from rlinf.hybrid_engines.inference_backends import compile_layers
from rlinf.models.vla.flow_vla import FlowVLAPolicy
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.test_openpi import obs_of

pytest.importorskip("transformers")


@pytest.fixture
def policy(tmp_path: Path) -> FlowVLAPolicy:
    return pi_policy(tmp_path, "pi0", noise_method="flow_ode").eval().requires_grad_(False)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Compile by tracing alone, which takes no compiler and no minutes, and write down what was asked for."""
    asked: list[dict[str, Any]] = []
    original: Callable[..., None] = nn.Module.compile

    def compiled(layer: nn.Module, **keys: Any) -> None:
        asked.append(keys)
        original(layer, backend="aot_eager")

    monkeypatch.setattr(nn.Module, "compile", compiled)
    torch._dynamo.reset()
    return asked


def act(policy: FlowVLAPolicy) -> torch.Tensor:
    return policy.predict_action_batch(obs_of(), mode="eval")[0]


def test_compiled_layers_act_with_their_present_weights(
    policy: FlowVLAPolicy, compilations: list[dict[str, Any]]
) -> None:
    expected, names = act(policy), list(policy.state_dict())
    torch._dynamo.utils.counters.clear()
    compile_layers(policy, RolloutConfig(enable_torch_compile=True))
    assert compilations == [{"backend": "inductor", "mode": None}] * len(policy.recompute_units())
    torch.testing.assert_close(act(policy), expected, rtol=0, atol=1e-5)
    # One graph for the layers of each stack, none of which falls apart.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3
    assert not torch._dynamo.utils.counters["graph_break"]
    assert list(policy.state_dict()) == names
    with torch.no_grad():
        for layer in policy.recompute_units():
            for parameter in layer.parameters():
                parameter.mul_(0.5)
    changed = act(policy)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3
    with torch.compiler.set_stance("force_eager"):
        torch.testing.assert_close(changed, act(policy), rtol=0, atol=1e-5)
    assert (changed - expected).abs().max() > 1e-3


def test_nothing_is_compiled_unless_it_is_asked_for(policy: FlowVLAPolicy, compilations: list[dict[str, Any]]) -> None:
    compile_layers(policy, RolloutConfig())
    assert not compilations


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"enable_cuda_graph": True}, {"backend": "cudagraphs", "mode": None}),
        (
            {"enable_cuda_graph": True, "enable_torch_compile": True},
            {"backend": "inductor", "mode": "reduce-overhead"},
        ),
    ],
)
def test_graphs_are_asked_for_on_a_gpu(
    policy: FlowVLAPolicy,
    compilations: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, bool],
    expected: dict[str, Any],
) -> None:
    monkeypatch.setattr(type(policy), "device", torch.device("cuda"))
    compile_layers(policy, RolloutConfig(**keys))
    assert compilations[0] == expected


def test_graphs_without_a_gpu_are_refused(policy: FlowVLAPolicy) -> None:
    with pytest.raises(ConfigError, match=r"rollout.enable_cuda_graph: received true; the rollout acts on cpu"):
        compile_layers(policy, RolloutConfig(enable_cuda_graph=True))


def test_a_missing_compiler_is_told(policy: FlowVLAPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"apt-get install g\+\+"):
        compile_layers(policy, RolloutConfig(enable_torch_compile=True))


@pytest.mark.slow  # Compiling takes a minute.
@pytest.mark.timeout(600)
def test_layers_are_really_compiled(policy: FlowVLAPolicy) -> None:
    expected = act(policy)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compile_layers(policy, RolloutConfig(enable_torch_compile=True))
    torch.testing.assert_close(act(policy), expected, rtol=0, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3
