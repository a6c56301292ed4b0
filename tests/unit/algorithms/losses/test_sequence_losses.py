"""GSPO and CISPO against plain loops over Python numbers, and against finite differences."""

import math
from dataclasses import asdict

import pytest
import torch

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.types import finalize_metrics
from rlinf.config.schema.algorithm import ActorLossConfig, CISPOLossConfig, GSPOLossConfig
from rlinf.errors import AlgorithmError

LENGTHS = [3, 2, 4]
SEQUENCE_IDS = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))
LOGPROBS = [-1.0, -0.5, -2.0, -0.3, -0.7, -1.1, -0.9, -0.4, -3.0]
OLD = [-1.2, -0.9, -1.5, -0.3, -0.2, -1.0, -1.4, -0.6, -0.1]
ADVANTAGES = [1.0, 1.0, 1.0, -2.0, -2.0, 0.5, 0.5, 0.5, 0.5]
MASK = [True, True, True, True, True, True, True, True, False]
CONFIGS = {
    "gspo": GSPOLossConfig(clip_ratio_low=0.1, clip_ratio_high=0.05),
    "cispo": CISPOLossConfig(clip_ratio_low=0.3, clip_ratio_high=0.4),
    "actor": ActorLossConfig(clip_ratio_low=0.1, clip_ratio_high=0.05, loss_agg_func="seq-mean-token-mean"),
}


def compute(loss_type, logprobs=None, *, packed=True, **over):
    tensors = {
        "logprobs": torch.tensor(LOGPROBS, dtype=torch.float64) if logprobs is None else logprobs,
        "old_logprobs": torch.tensor(OLD, dtype=torch.float64),
        "advantages": torch.tensor(ADVANTAGES, dtype=torch.float64),
        "loss_mask": torch.tensor(MASK),
        **{name: value for name, value in over.items() if isinstance(value, torch.Tensor)},
    }
    keys = {name: value for name, value in over.items() if not isinstance(value, torch.Tensor)}
    ids = SEQUENCE_IDS
    if not packed:
        tensors, ids = {name: rows(tensor) for name, tensor in tensors.items()}, None
    denominators = compute_loss_denominators(policy_mask=tensors["loss_mask"], max_tokens=4, sequence_ids=ids)
    return policy_loss(
        loss_type, **tensors, denominators=denominators, sequence_ids=ids, **{**asdict(CONFIGS[loss_type]), **keys}
    )


def rows(tensor):
    """[T] to [N, L], padded on the left."""
    parts = tensor.split(LENGTHS)
    return torch.stack([torch.cat([tensor.new_zeros(4 - len(part)), part]) for part in parts])


def clip(value, low, high):
    return min(max(value, low), high)


def gspo_by_hand():
    """Mean over sequences of -min(s A, clip(s) A), s the geometric mean of the ratios (arXiv 2507.18071, Eq. 5-7)."""
    losses, ratios, start = [], [], 0
    for length in LENGTHS:
        valid = [i for i in range(start, start + length) if MASK[i]]
        s = math.exp(sum(LOGPROBS[i] - OLD[i] for i in valid) / len(valid))
        advantage = ADVANTAGES[start]
        losses.append(-min(s * advantage, clip(s, 0.9, 1.05) * advantage))
        ratios += [s] * len(valid)
        start += length
    return sum(losses) / 3, ratios


def cispo_by_hand():
    """Mean over tokens of -clip(r) A log p (arXiv 2506.13585, Eq. 4)."""
    weights = [clip(math.exp(p - old), 0.7, 1.4) for p, old in zip(LOGPROBS, OLD, strict=True)]
    terms = [-w * a * p for w, a, p, m in zip(weights, ADVANTAGES, LOGPROBS, MASK, strict=True) if m]
    return sum(terms) / 8, weights


@pytest.mark.parametrize("packed", [True, False])
def test_gspo(packed):
    loss, metrics = compute("gspo", packed=packed)
    expected, ratios = gspo_by_hand()
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    numbers = finalize_metrics(metrics)
    assert numbers["actor_ratio"] == pytest.approx(sum(ratios) / 8)
    # Sequence 2 leaves the bounds on the side that its negative advantage pushes to; sequence 3 above, with a positive.
    clipped = sum(r < 0.9 for r in ratios[3:5]) + sum(r > 1.05 for r in ratios[:3] + ratios[5:])
    assert clipped > 0
    assert numbers["actor_clip_fraction"] == pytest.approx(clipped / 8)


def test_gspo_has_the_gradient_of_the_sequence_ratio():
    # Bounds so wide that nothing is clipped: the loss is mean_n(-s_n A_n), which autograd can differentiate as it is.
    wide = {"clip_ratio_low": 0.9, "clip_ratio_high": 9.0}
    logprobs = torch.tensor(LOGPROBS, dtype=torch.float64, requires_grad=True)
    (actual,) = torch.autograd.grad(compute("gspo", logprobs, **wide)[0], logprobs)
    difference = (logprobs - torch.tensor(OLD, dtype=torch.float64)).split(LENGTHS)
    masks, advantages = torch.tensor(MASK).split(LENGTHS), torch.tensor(ADVANTAGES).split(LENGTHS)
    parts = [-(d[m].mean().exp() * a[0]) for d, m, a in zip(difference, masks, advantages, strict=True)]
    (expected,) = torch.autograd.grad(sum(parts) / 3, logprobs)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)
    # A ratio per token would have another gradient.
    (other,) = torch.autograd.grad(compute("actor", logprobs, **wide)[0], logprobs)
    assert not torch.allclose(other, expected, rtol=1e-2)


@pytest.mark.parametrize("packed", [True, False])
def test_cispo(packed):
    loss, metrics = compute("cispo", packed=packed)
    expected, weights = cispo_by_hand()
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    bounded = [w in {0.7, 1.4} for w, m in zip(weights, MASK, strict=True) if m]
    assert 0 < sum(bounded) < 8
    assert finalize_metrics(metrics)["actor_clip_fraction"] == pytest.approx(sum(bounded) / 8)


def test_cispo_keeps_the_gradient_of_bounded_tokens_at_the_bound():
    logprobs = torch.tensor(LOGPROBS, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(compute("cispo", logprobs)[0], logprobs)
    _, weights = cispo_by_hand()
    expected = [-w * a / 8 if m else 0.0 for w, a, m in zip(weights, ADVANTAGES, MASK, strict=True)]
    assert gradient.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("loss_type", ["gspo", "cispo", "actor"])
def test_on_policy_all_have_the_same_gradient(loss_type):
    logprobs = torch.tensor(OLD, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(compute(loss_type, logprobs, loss_agg_func="token-mean")[0], logprobs)
    assert gradient.tolist() == pytest.approx([-a / 8 if m else 0.0 for a, m in zip(ADVANTAGES, MASK, strict=True)])


@pytest.mark.parametrize("loss_type", ["gspo", "cispo"])
def test_entropy_and_divergence_are_added_as_in_the_actor_loss(loss_type):
    reference = torch.tensor(OLD, dtype=torch.float64) - 0.1
    entropy = torch.linspace(1, 2, 9, dtype=torch.float64)
    keys = {"entropy_bonus": 0.5, "kl_beta": 0.2, "kl_penalty": "k2", "loss_agg_func": "token-mean"}
    plain = compute(loss_type, loss_agg_func="token-mean")[0].item()
    loss, metrics = compute(loss_type, **keys, ref_logprobs=reference, entropy=entropy)
    k2 = [0.5 * (p - q) ** 2 for p, q in zip(LOGPROBS, reference.tolist(), strict=True)][:8]
    assert loss.item() == pytest.approx(plain - 0.5 * entropy[:8].mean().item() + 0.2 * sum(k2) / 8)
    assert finalize_metrics(metrics)["actor_kl_ref"] == pytest.approx(sum(k2) / 8)
    with pytest.raises(AlgorithmError, match="algorithm.kl_beta > 0 needs 'ref_logprobs'"):
        compute(loss_type, kl_beta=0.1)
    with pytest.raises(AlgorithmError, match="shapes must be equal"):
        compute(loss_type, advantages=torch.zeros(3))


@pytest.mark.parametrize("loss_type", ["gspo", "cispo"])
def test_what_is_masked_has_no_say(loss_type):
    expected = compute(loss_type)[0]
    over = {"logprobs": LOGPROBS[:8] + [math.nan], "advantages": ADVANTAGES[:8] + [math.inf]}
    tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in over.items()}
    tensors["logprobs"].requires_grad_()
    loss, _ = compute(loss_type, tensors["logprobs"], advantages=tensors["advantages"])
    assert loss.item() == expected.item()
    loss.backward()
    assert tensors["logprobs"].grad.isfinite().all()
