"""Numbers become bins and token ids as in the published tokenizer, and one function says how likely they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlinf.models.vla.action_tokens import ActionTokens, among_bins, bin_entropy, bin_logprobs

TOKENS = ActionTokens(32000, 256)


def test_numbers_become_the_published_ids_and_back() -> None:
    numbers = np.concatenate([np.linspace(-1.2, 1.2, 501), np.linspace(-1, 1, 256)])
    edges = np.linspace(-1, 1, 256)
    ids = 32000 - np.digitize(np.clip(numbers, -1.0, 1.0), edges)
    centres = (edges[:-1] + edges[1:]) / 2.0
    decoded = centres[np.clip(32000 - ids - 1, 0, 254)]
    bins = TOKENS.to_bins(torch.from_numpy(numbers))
    assert torch.equal(TOKENS.to_ids(bins), torch.from_numpy(ids))
    np.testing.assert_allclose(TOKENS.to_numbers(bins.short()).numpy(), decoded, atol=1e-7)


def test_the_last_two_tokens_share_a_number() -> None:
    numbers = TOKENS.to_numbers(torch.arange(256))
    assert numbers[254] == numbers[255]
    assert (numbers[:255].diff() > 0).all()


def test_logits_are_those_of_the_ids() -> None:
    logits = torch.arange(32064.0).expand(2, -1)
    found = TOKENS.logits_of(logits)
    assert torch.equal(found[0], TOKENS.to_ids(torch.arange(256)).float())


def test_bins_that_are_not_possible_have_no_part_in_the_sum() -> None:
    logits = torch.tensor([[4.0, 2.0, 0.0, -6.0]])
    found = bin_logprobs(logits, temperature=2.0, among=torch.tensor([[True, True, False, False]]))
    expected = torch.tensor([2.0, 1.0]).log_softmax(0)
    torch.testing.assert_close(found[0, :2], expected)
    assert torch.isinf(found[0, 2:]).all()
    assert torch.equal(bin_logprobs(logits, temperature=2.0), (logits / 2).log_softmax(-1))
    torch.testing.assert_close(bin_entropy(found)[0], -(expected.exp() * expected).sum())


def test_only_what_was_sampled_is_compared_with_what_it_was_sampled_among() -> None:
    kept = torch.tensor([[3, 1], [3, 1], [-1, -1]], dtype=torch.int16)
    found = among_bins(kept, torch.tensor([1, 2, 0], dtype=torch.int16), 4)
    assert found.tolist() == [[False, True, False, True], [True] * 4, [True] * 4]


def test_removed_bins_have_no_gradient_that_is_not_a_number() -> None:
    logits = torch.tensor([4.0, 2.0, 0.0, -6.0], requires_grad=True)
    logprobs = bin_logprobs(logits, temperature=1.0, among=torch.tensor([True, True, False, False]))
    (bin_entropy(logprobs) + logprobs[0]).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[2:].tolist() == pytest.approx([0.0, 0.0])
