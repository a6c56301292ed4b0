"""Routes are taken as they are known, written down, and add to the loss what each token's probabilities are worth."""

from __future__ import annotations

import pytest
import torch

from rlinf.data.packing import pack_responses, pack_sequences
from rlinf.models.language.expert_routing import (
    ExpertRouting,
    ExpertSizes,
    RankRouting,
    balance_factors,
    expert_loads,
    token_counts,
)

transformers = pytest.importorskip("transformers")
SIZES = ExpertSizes(num_layers=2, num_experts=3, num_chosen=2, is_normalised=True)
LOGITS = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0], [0.0, 5.0, 4.0]], requires_grad=True)
PLACES = torch.tensor([4, 1, -1])
"""Two tokens of a pack of five, and padding."""


def test_routes_that_are_known_are_taken_and_others_chosen() -> None:
    replayed = SIZES.no_routes(5)
    replayed[4, 1] = torch.tensor([1, 2])
    replayed[1, 0] = torch.tensor([3, 2])
    rank = RankRouting(ExpertRouting(SIZES, replayed=replayed), PLACES, scale=1.0)
    weights, chosen = rank.route(1, LOGITS)
    assert chosen.tolist() == [[0, 1], [0, 2], [1, 2]]
    known = torch.tensor([0.0, 1.0]).softmax(0)
    assert torch.allclose(weights[0], known)
    assert torch.allclose(weights[1], torch.tensor([3.0, 1.0]).softmax(0))
    assert rank.route(0, LOGITS)[1].tolist() == [[2, 1], [2, 1], [1, 2]]


def test_weights_that_do_not_add_up_stay_as_they_are() -> None:
    sizes = ExpertSizes(num_layers=1, num_experts=3, num_chosen=2, is_normalised=False)
    weights, _ = RankRouting(ExpertRouting(sizes), PLACES, scale=1.0).route(0, LOGITS)
    assert torch.allclose(weights, LOGITS.softmax(-1).topk(2).values)


def test_what_a_rank_chooses_is_written_down_at_its_own_places() -> None:
    recorded = SIZES.no_routes(5)
    RankRouting(ExpertRouting(SIZES, recorded=recorded), PLACES, scale=1.0).route(1, LOGITS)
    assert recorded[4, 1].tolist() == [3, 2]
    assert recorded[1, 1].tolist() == [1, 3]
    recorded[[4, 1], 1] = 0
    assert not recorded.any()


def test_the_balance_loss_is_a_sum_over_tokens_without_padding() -> None:
    balance = torch.tensor([[9.0, 9.0, 9.0], [0.5, 1.0, 2.0]])
    counts = torch.tensor([0.0, 3.0, 0.0, 0.0, 1.0])
    logits = LOGITS.detach().clone().requires_grad_()
    rank = RankRouting(ExpertRouting(SIZES, balance=balance, counts=counts), PLACES, scale=10.0)
    weights, _ = rank.route(1, logits)
    (weights.sum() * 0).backward()
    expected = LOGITS.detach().clone().requires_grad_()
    probabilities = expected.softmax(-1)
    (10 * (1.0 * probabilities[0] + 3.0 * probabilities[1]) @ balance[1]).backward()
    assert torch.allclose(logits.grad, expected.grad)
    with torch.no_grad():
        assert torch.equal(rank.route(1, LOGITS)[0], weights)


def test_loads_count_what_is_known_by_layer() -> None:
    routes = torch.tensor([[[1, 2], [3, 1]], [[1, 3], [0, 0]], [[2, 1], [0, 0]]], dtype=torch.uint8)
    loads = expert_loads(routes, SIZES)
    assert torch.allclose(loads, torch.tensor([[3 / 6, 2 / 6, 1 / 6], [1 / 2, 0.0, 1 / 2]]))
    factors = balance_factors(routes, SIZES, coefficient=0.1, num_replicas=2)
    assert torch.allclose(factors, 0.1 * 3 * 2 / 3 * loads)


def test_a_shared_token_counts_once_for_each_sequence() -> None:
    packed, _ = pack_responses([(1, 2)] * 3, [(3,), (4, 5), (6,)], share_prompts=True)
    assert token_counts(packed).tolist() == [3, 3, 1, 1, 1, 1]
    assert token_counts(pack_sequences([[1, 2], [3]])).tolist() == [1, 1, 1]


def test_sizes_are_those_of_models_all_of_whose_layers_have_experts() -> None:
    keys = {"num_hidden_layers": 2, "num_experts": 300, "num_experts_per_tok": 2, "norm_topk_prob": False}
    sizes = ExpertSizes.of(transformers.Qwen3MoeConfig(**keys))
    assert sizes == ExpertSizes(2, 300, 2, False)
    assert sizes.no_routes(1).dtype == torch.int32
    assert SIZES.no_routes(1).dtype == torch.uint8
    assert ExpertSizes.of(transformers.Qwen3MoeConfig(mlp_only_layers=[1], **keys)) is None
    assert ExpertSizes.of(transformers.Qwen2Config()) is None
