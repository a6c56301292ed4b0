"""What training relies on, of all vision-language-action policies: gradients and log-probabilities do not depend on how
samples are cut into micro-batches, on merged adapters, or on more than the rounding of half precision."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.hybrid_engines.inference_backends import build_torch_policy
from rlinf.models.base_policy import BasePolicy, ForwardType
from rlinf.models.lora import adapters_off
from tests.unit.models.vla.every_policy import EVERY, every_policy, seen_by

pytest.importorskip("transformers")
kinds = pytest.mark.parametrize("kind", EVERY)
adapters = pytest.mark.parametrize("adapted", [False, True], ids=["whole", "adapters"])
Rows = dict[str, torch.Tensor]
BF16 = {
    "openvla": 0.03,
    "tokens": 0.03,
    "l1": 3.0,
    "film": 3.0,
    "pi0": 0.08,
    "pi05": 0.02,
    "smolvla": 0.02,
    "gr00t": 0.06,
}
"""Mean difference of log-probabilities that rounding may make, in nats: two to three times what was measured. Those of
the L1 head are of Gaussians with deviation 0.05, which such a small model misses by about as much in bfloat16."""


def rows_of(inputs: Rows, index: int) -> Rows:
    return {name: tensor[index : index + 1] for name, tensor in inputs.items()}


def gradients(policy: BasePolicy, inputs: Rows, forward_type: ForwardType, *, parts: int) -> Rows:
    """Return the gradient of a sum over three samples, computed together or one by one."""
    policy.zero_grad(set_to_none=True)
    factors = torch.linspace(-1.0, 2.0, 3)
    for index in range(parts):
        rows = inputs if parts == 1 else rows_of(inputs, index)
        found = policy(forward_type, forward_inputs=rows)
        losses = found if isinstance(found, torch.Tensor) else found.logprobs + 0.1 * found.entropy
        total = (losses.flatten(1).mean(1) * (factors if parts == 1 else factors[index])).sum()
        if not isinstance(found, torch.Tensor):
            total = total + found.values.square().sum()
        total.backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


@kinds
@adapters
def test_gradients_do_not_depend_on_micro_batches(kind: str, adapted: bool, tmp_path: Path) -> None:
    policy, obs = every_policy(kind, tmp_path, adapted=adapted), seen_by(kind)
    generator = torch.Generator().manual_seed(3)
    acted, report = policy.predict_action_batch(obs, mode="train", generator=generator)
    recorded = acted.clamp(-1, 1).repeat(1, 8, 1)[:, : policy.num_supervised_actions]
    supervised = policy.forward_inputs_of(obs, recorded) | policy.supervised_draws(3, generator)
    for forward_type, inputs in (
        (ForwardType.DEFAULT, report.forward_inputs),
        (ForwardType.SUPERVISED, supervised),
    ):
        whole, alone = (gradients(policy, inputs, forward_type, parts=parts) for parts in (1, 3))
        assert whole.keys() == alone.keys()
        without = {name for name, gradient in whole.items() if not gradient.any()}
        assert without <= ({"log_std"} if forward_type is ForwardType.SUPERVISED else set())
        norm = torch.stack([gradient.norm() for gradient in whole.values()]).norm()
        for name, gradient in whole.items():
            error = (gradient - alone[name]).norm()
            assert error <= 1e-4 * gradient.norm() + 1e-6 * norm, (forward_type, name, error, gradient.norm())


@kinds
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_rollout_of_merged_adapters_reports_what_training_computes(
    kind: str, precision: str, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    policy, obs = every_policy(kind, tmp_path, adapted=True), seen_by(kind)
    copy = build_torch_policy(policy.cfg, num_values=1, precision=precision, device=torch.device("cpu"))
    copy.load_state_dict(dict(policy.export(lambda tensor: tensor)))
    _, report = copy.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(3))

    def difference() -> float:
        with torch.no_grad():
            return float((policy(forward_inputs=report.forward_inputs).logprobs - report.logprobs).abs().mean())

    bound = 1e-4 if precision == "fp32" else BF16[kind]
    assert difference() < bound
    if precision == "bf16":
        assert difference() > 1e-3
    # It would not be if adapters were left out.
    with adapters_off(policy):
        assert difference() > 1.5 * bound
