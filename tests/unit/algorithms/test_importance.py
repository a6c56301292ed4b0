"""Weights and mismatch metrics against plain loops over Python numbers."""

import math

import pytest
import torch

from rlinf.algorithms.importance import LEVELS, MODES, correct_importance, mismatch_metrics
from rlinf.algorithms.types import finalize_metrics
from rlinf.errors import AlgorithmError

LENGTHS = [3, 2, 2]
SEQUENCE_IDS = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))
ENGINE = [-1.0, -0.5, -2.0, -0.3, -0.7, -1.1, -0.9]
TRAINER = [-1.2, 0.4 - 0.5, -1.1, -0.35, -0.6, -9.0, -0.9]
MASK = [True, True, True, True, True, False, True]
BOUNDS = {"lower_bound": 0.9, "upper_bound": 1.3}


def tensors(dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    return {
        "trainer_logprobs": torch.tensor(TRAINER, dtype=dtype),
        "engine_logprobs": torch.tensor(ENGINE, dtype=dtype),
        "loss_mask": torch.tensor(MASK),
    }


def rows(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.cat([part, part.new_zeros(3 - len(part))]) for part in tensor.split(LENGTHS)])


def by_hand(level: str, mode: str) -> tuple[list[float], float]:
    weights, outside, start = [0.0] * 7, 0, 0
    for length in LENGTHS:
        valid = [i for i in range(start, start + length) if MASK[i]]
        differences = {i: TRAINER[i] - ENGINE[i] for i in valid}
        for i in valid:
            if level == "sequence":
                ratio = math.exp(sum(differences.values()))
            elif level == "geometric":
                ratio = math.exp(sum(differences.values()) / len(valid))
            else:
                ratio = math.exp(differences[i])
            inside = 0.9 <= ratio <= 1.3
            outside += not inside
            weights[i] = min(max(ratio, 0.9), 1.3) if mode == "clamp" else ratio * inside
        start += length
    return weights, outside / 6


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("packed", [True, False])
def test_weights(level: str, mode: str, packed: bool) -> None:
    given, ids = tensors(), SEQUENCE_IDS
    if not packed:
        given, ids = {name: rows(tensor) for name, tensor in given.items()}, None
    weights, metrics = correct_importance(**given, level=level, mode=mode, **BOUNDS, sequence_ids=ids)
    expected, outside = by_hand(level, mode)
    actual = weights if packed else torch.cat([row[:n] for row, n in zip(weights, LENGTHS, strict=True)])
    assert actual.tolist() == pytest.approx(expected, rel=1e-12)
    numbers = finalize_metrics(metrics)
    assert 0 < outside < 1
    assert numbers["correction_fraction"] == pytest.approx(outside)
    assert numbers["correction_weight"] == pytest.approx(sum(expected) / 6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", MODES)
def test_weights_are_constants(level: str, mode: str) -> None:
    given = tensors()
    for name in ("trainer_logprobs", "engine_logprobs"):
        given[name].requires_grad_()
    weights, _ = correct_importance(**given, level=level, mode=mode, **BOUNDS, sequence_ids=SEQUENCE_IDS)
    assert not weights.requires_grad
    assert not any(pair.requires_grad for pair in mismatch_metrics(**given, sequence_ids=SEQUENCE_IDS).values())


def test_equal_probabilities_weigh_one_whatever_the_keys() -> None:
    given = tensors() | {"trainer_logprobs": tensors()["engine_logprobs"]}
    for level in LEVELS:
        for mode in MODES:
            weights, _ = correct_importance(**given, level=level, mode=mode, **BOUNDS, sequence_ids=SEQUENCE_IDS)
            assert torch.equal(weights, given["loss_mask"].double())
    numbers = finalize_metrics(mismatch_metrics(**given, sequence_ids=SEQUENCE_IDS))
    assert numbers["mismatch_ess"] == numbers["mismatch_perplexity_ratio"] == 1.0
    assert all(numbers[f"mismatch_{name}"] == 0 for name in ("k1", "k3", "chi2", "max_probability_difference"))


def test_mismatch_metrics() -> None:
    log_w = [t - e for t, e, m in zip(TRAINER, ENGINE, MASK, strict=True) if m]
    w = [math.exp(x) for x in log_w]
    per_sequence = [math.exp(-sum(log_w[a:b]) / (b - a)) for a, b in ((0, 3), (3, 5), (5, 6))]
    differences = [abs(math.exp(t) - math.exp(e)) for t, e, m in zip(TRAINER, ENGINE, MASK, strict=True) if m]
    expected = {
        "mismatch_k1": -sum(log_w) / 6,
        "mismatch_k3": sum(x - 1 - y for x, y in zip(w, log_w, strict=True)) / 6,
        "mismatch_chi2": sum(x * x for x in w) / 6 - 1,
        "mismatch_ess": sum(w) ** 2 / sum(x * x for x in w) / 6,
        "mismatch_perplexity_ratio": sum(per_sequence) / 3,
        "mismatch_max_probability_difference": max(differences),
    }
    packed = mismatch_metrics(**tensors(), sequence_ids=SEQUENCE_IDS)
    assert finalize_metrics(packed) == pytest.approx(expected, rel=1e-12)
    by_rows = mismatch_metrics(**{name: rows(tensor) for name, tensor in tensors().items()})
    assert finalize_metrics(by_rows) == pytest.approx(expected, rel=1e-12)


def test_metrics_add_up_over_ranks() -> None:
    whole = finalize_metrics(mismatch_metrics(**tensors(), sequence_ids=SEQUENCE_IDS))
    parts = [{name: tensor[part] for name, tensor in tensors().items()} for part in (slice(0, 3), slice(3, 7))]
    ids = (SEQUENCE_IDS[:3], SEQUENCE_IDS[3:] - 1)
    largest = torch.tensor(whole["mismatch_max_probability_difference"], dtype=torch.float64)
    ranks = [
        mismatch_metrics(**part, sequence_ids=own, all_reduce_max=lambda _: largest)
        for part, own in zip(parts, ids, strict=True)
    ]
    total = {name: ranks[0][name] + ranks[1][name] for name in ranks[0]}
    assert finalize_metrics(total) == pytest.approx(whole, rel=1e-12)


def test_a_rank_without_a_valid_token_has_the_same_keys() -> None:
    given = tensors() | {"loss_mask": torch.zeros(7, dtype=torch.bool)}
    assert set(mismatch_metrics(**given, sequence_ids=SEQUENCE_IDS)) == set(
        mismatch_metrics(**tensors(), sequence_ids=SEQUENCE_IDS)
    )


def test_unknown_names_and_other_shapes_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="level 'word'.*token, sequence, geometric"):
        correct_importance(**tensors(), level="word", mode="clamp", **BOUNDS)
    with pytest.raises(AlgorithmError, match="mode 'drop'"):
        correct_importance(**tensors(), level="token", mode="drop", **BOUNDS)
    with pytest.raises(AlgorithmError, match="shapes must be equal"):
        mismatch_metrics(**(tensors() | {"engine_logprobs": torch.zeros(3)}))
