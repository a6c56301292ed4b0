"""Advantages of responses against plain loops over Python numbers."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

import pytest
import torch

from rlinf.algorithms.advantages_and_returns import AdvantagesAndReturns, compute_advantages_and_returns
from rlinf.algorithms.filtering import differing_groups, informative_groups
from rlinf.algorithms.steps import responses_to_steps, steps_to_ragged
from rlinf.algorithms.types import finalize_metrics
from rlinf.config.registries import advantages
from rlinf.config.schema.algorithm import GRPOConfig, KLInRewardConfig
from rlinf.errors import AlgorithmError

if TYPE_CHECKING:
    from rlinf.algorithms.types import Metrics


# Four answers in two groups that lie mixed; the third contains a tool's token, the second ends with one.
SCORES = [1.0, 0.0, 0.5, 0.25]
GROUPS = [7, 3, 7, 3]
MASKS = [[1, 1], [1, 1, 0], [1, 0, 1, 1], [1]]
OLD = [[-0.5, -1.0], [-0.2, -0.4, 0.0], [-1.0, 0.0, -0.3, -0.8], [-0.6]]
REF = [[-0.7, -0.9], [-0.5, -0.1, 0.0], [-1.2, 0.0, -0.3, -0.4], [-0.9]]
VALUES = [[0.3, 0.6], [0.2, 0.1, 0.9], [0.4, 9.0, 0.5, 0.7], [0.35]]
EPSILON = 1e-6


def ragged(lists: list[list[float]], dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    return [torch.tensor(values, dtype=dtype) for values in lists]


def compute(
    adv_type: str,
    *,
    kl_beta: float = 0.0,
    kl_penalty: str = "k1",
    values: list[list[float]] | None = None,
    masks: list[list[int]] = MASKS,
    scores: list[float] = SCORES,
    informative_only: bool = False,
    **keys: bool | float,
) -> tuple[AdvantagesAndReturns, Metrics]:
    rewards, groups = torch.tensor(scores, dtype=torch.float64), torch.tensor(GROUPS)
    steps = responses_to_steps(
        scores=rewards,
        loss_masks=ragged(masks, torch.bool),
        group_ids=groups,
        values=None if values is None else ragged(values),
        old_logprobs=ragged(OLD),
        ref_logprobs=ragged(REF),
        kl_in_reward=KLInRewardConfig(beta=kl_beta, penalty=kl_penalty) if kl_beta else None,
    )
    selected = differing_groups(rewards, groups) if informative_only else None
    config = advantages.configs.get(adv_type)(**keys)
    computed, metrics = compute_advantages_and_returns(adv_type, steps, config, selected=selected)
    lengths = [len(mask) for mask in masks]
    columns = (computed.advantages, computed.returns, computed.loss_mask)
    return AdvantagesAndReturns(*(steps_to_ragged(column, lengths) for column in columns)), metrics


def token_rewards(kl_beta: float = 0.0) -> list[Any]:
    """Own tokens' rewards of each answer: the score at the last, less beta * (log p - log q) at each."""
    result = []
    for score, mask, old, ref in zip(SCORES, MASKS, OLD, REF, strict=True):
        own = [-kl_beta * (p - q) for p, q, m in zip(old, ref, mask, strict=True) if m]
        own[-1] += score
        result.append(own)
    return result


def spread(per_own_token: Any) -> list[Any]:
    """Back to all tokens, 0 at those that are not the model's own."""
    result = []
    for mask, own in zip(MASKS, per_own_token, strict=True):
        left = list(own)
        result.append([left.pop(0) if m else 0.0 for m in mask])
    return result


def per_answer(advantages: list[float]) -> list[Any]:
    return spread([[a] * sum(mask) for a, mask in zip(advantages, MASKS, strict=True)])


def totals(kl_beta: float) -> list[int]:
    return [sum(rewards) for rewards in token_rewards(kl_beta)]


def others(numbers: list[float], i: int) -> list[float]:
    return [x for j, x in enumerate(numbers) if GROUPS[j] == GROUPS[i]]


def check(targets: AdvantagesAndReturns, expected: Any) -> None:
    for actual, wanted in zip(targets.advantages, expected, strict=True):
        assert actual.tolist() == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kl_beta", [0.0, 0.3])
def test_grpo_and_dr_grpo(kl_beta: float) -> None:
    scores = totals(kl_beta)
    centred = [x - statistics.mean(others(scores, i)) for i, x in enumerate(scores)]
    deviations = [statistics.stdev(others(scores, i)) for i in range(4)]
    dr_grpo, _ = compute("grpo", kl_beta=kl_beta, normalize_advantages=False)
    check(dr_grpo, per_answer(centred))
    grpo, metrics = compute("grpo", kl_beta=kl_beta)
    check(grpo, per_answer([c / (d + EPSILON) for c, d in zip(centred, deviations, strict=True)]))
    assert finalize_metrics(metrics)["score"] == pytest.approx(sum(SCORES) / 4)


def test_rloo() -> None:
    alone = [sum(others(SCORES, i)) - x for i, x in enumerate(SCORES)]
    check(compute("rloo")[0], per_answer([x - other for x, other in zip(SCORES, alone, strict=True)]))


def test_raw() -> None:
    check(compute("raw")[0], per_answer(SCORES))


def normalised(per_own_token: Any) -> list[list[Any]]:
    flat = [x for answer in per_own_token for x in answer]
    mean, deviation = statistics.mean(flat), statistics.stdev(flat)
    return [[(x - mean) / (deviation + EPSILON) for x in answer] for answer in per_own_token]


def to_go(gamma: float, kl_beta: float) -> list[Any]:
    result = []
    for rewards in token_rewards(kl_beta):
        returns, following = [], 0.0
        for reward in reversed(rewards):
            following = reward + gamma * following
            returns.insert(0, following)
        result.append(returns)
    return result


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reinforce_plus_plus_with_the_divergence_in_the_reward_of_each_token(gamma: float) -> None:
    expected = to_go(gamma, 0.3)
    targets, metrics = compute("reinpp", gamma=gamma, kl_beta=0.3)
    check(targets, spread(normalised(expected)))
    assert [t.tolist() for t in targets.returns] == [pytest.approx(answer) for answer in spread(expected)]
    own = [p - q for old, ref, m in zip(OLD, REF, MASKS, strict=True) for p, q, k in zip(old, ref, m, strict=True) if k]
    assert finalize_metrics(metrics)["kl_reward"] == pytest.approx(sum(own) / len(own))


def test_reinforce_plus_plus_baseline() -> None:
    returns = to_go(1.0, 0.3)
    starts = [answer[0] for answer in returns]
    less = [[x - statistics.mean(others(starts, i)) for x in answer] for i, answer in enumerate(returns)]
    check(compute("reinpp_baseline", kl_beta=0.3)[0], spread(normalised(less)))


def gae_by_hand(gamma: float, lam: float) -> tuple[list[Any], list[Any]]:
    advantages, returns = [], []
    for rewards, values, mask in zip(token_rewards(), VALUES, MASKS, strict=True):
        own = [v for v, m in zip(values, mask, strict=True) if m]
        carried, following, result = 0.0, 0.0, []
        for reward, value in zip(reversed(rewards), reversed(own), strict=True):
            carried = reward + gamma * following - value + gamma * lam * carried
            following = value
            result.insert(0, carried)
        advantages.append(result)
        returns.append([a + v for a, v in zip(result, own, strict=True)])
    return advantages, returns


@pytest.mark.parametrize("keys", [{"gamma": 1.0, "gae_lambda": 1.0}, {"gamma": 0.9, "gae_lambda": 0.8}])
def test_gae_passes_over_what_a_tool_wrote(keys: dict[str, float]) -> None:
    advantages, returns = gae_by_hand(keys["gamma"], keys["gae_lambda"])
    targets, _ = compute("gae", values=VALUES, normalize_advantages=False, **keys)
    check(targets, spread(advantages))
    assert [t.tolist() for t in targets.returns] == [pytest.approx(answer) for answer in spread(returns)]
    check(compute("gae", values=VALUES, **keys)[0], spread(normalised(advantages)))


def test_filtered_groups_have_no_token_under_the_mask() -> None:
    # Means of the groups: 0.75 and 0.125.
    targets, metrics = compute("grpo", filter_rewards=True, rewards_lower_bound=0.2, rewards_upper_bound=0.9)
    assert [mask.tolist() for mask in targets.loss_mask] == [
        [True, True],
        [False] * 3,
        [True, False, True, True],
        [False],
    ]
    assert targets.advantages[3].tolist() == [0.0]
    assert finalize_metrics(metrics)["filtered_fraction"] == 0.5


def test_groups_without_contrast_are_left_out_where_only_others_are_wanted() -> None:
    scores = [1.0, 0.5, 1.0, 0.25]
    everything, _ = compute("reinpp", scores=scores)
    assert [bool(mask.any()) for mask in everything.loss_mask] == [True] * 4
    targets, metrics = compute("reinpp", scores=scores, informative_only=True)
    assert [bool(mask.any()) for mask in targets.loss_mask] == [False, True, False, True]
    # Normalised over what is left: the returns 0.5, 0.5 and 0.25.
    mean, deviation = statistics.mean([0.5, 0.5, 0.25]), statistics.stdev([0.5, 0.5, 0.25])
    assert targets.advantages[3].tolist() == pytest.approx([(0.25 - mean) / (deviation + EPSILON)])
    assert finalize_metrics(metrics)["filtered_fraction"] == 0.5


def test_an_answer_without_an_own_token_counts_nowhere() -> None:
    targets, metrics = compute("grpo", masks=[[1, 1], [1, 1, 0], [1, 0, 1, 1], [0]])
    # Its group has one member left, which is compared with itself.
    assert [a.abs().max().item() for a in (targets.advantages[1], targets.advantages[3])] == [0.0, 0.0]
    assert targets.advantages[0].abs().min() > 0
    assert finalize_metrics(metrics)["score"] == pytest.approx((1.0 + 0.0 + 0.5) / 3)


def test_every_estimate_of_the_divergence_can_be_in_the_reward() -> None:
    for kind, estimate in {
        "k1": lambda x: x,
        "abs": abs,
        "k2": lambda x: 0.5 * x * x,
        "k3": lambda x: math.exp(-x) - 1 + x,
    }.items():
        targets, _ = compute("raw", kl_beta=1.0, kl_penalty=kind)
        penalty = sum(estimate(p - q) for p, q in zip(OLD[0], REF[0], strict=True))
        assert targets.advantages[0].tolist() == pytest.approx([SCORES[0] - penalty] * 2)


def test_groups_with_equal_scores_are_recognised() -> None:
    scores = torch.tensor([0.1, 0.3, 0.1, 0.2, 1.0])
    assert differing_groups(scores, torch.tensor([5, 9, 5, 9, 2])).tolist() == [False, True, False, True, False]


def test_a_group_is_informative_if_its_scores_differ_and_its_mean_is_within_the_bounds() -> None:
    scores, groups = torch.tensor([0.0, 0.5, 0.5, 1.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1, 2, 2])
    bounds = {"rewards_lower_bound": 0.5, "rewards_upper_bound": 1.0}
    assert informative_groups(scores, groups, GRPOConfig()).tolist() == [True, True, True, True, False, False]
    kept = informative_groups(scores, groups, GRPOConfig(filter_rewards=True, **bounds))
    assert kept.tolist() == [False, False, True, True, False, False]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(AlgorithmError, match=r"lengths \[2, 3, 4, 1\].*values with lengths \[1\]"):
        compute("gae", values=[[0.0]])
    with pytest.raises(AlgorithmError, match="needs 'old_logprobs' and 'ref_logprobs'"):
        responses_to_steps(
            scores=torch.zeros(1),
            loss_masks=[torch.ones(2, dtype=torch.bool)],
            group_ids=torch.zeros(1, dtype=torch.int64),
            kl_in_reward=KLInRewardConfig(),
        )
