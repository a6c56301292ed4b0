"""Actions as tokens: bins of numbers in [-1, 1] at the end of the vocabulary, and the one distribution over them.

A number ``x`` has the bin ``digitize(x) - 1`` among ``n`` edges from -1 to 1 and the token ``V - 1 - bin``. There are
``n`` tokens and ``n - 1`` bins: the number of the last token is that of the last bin, while its log-probability is its
own (Kim et al., arXiv 2406.09246, section 3.2).
"""

from __future__ import annotations

import torch


class ActionTokens:
    """Bins, numbers and tokens of actions.

    Args:
        vocab_size: ``V``: tokens without the padding of the vocabulary.
        num_bins: ``n``.
    """

    def __init__(self, vocab_size: int, num_bins: int) -> None:
        self.vocab_size, self.num_bins = vocab_size, num_bins
        # To the last bit those of numpy's linspace, so that numbers on an edge fall into the same bin.
        self.edges = torch.arange(num_bins, dtype=torch.float64, device="cpu") * (2.0 / (num_bins - 1)) - 1.0
        self.edges[-1] = 1.0

    def to_numbers(self, bins: torch.Tensor) -> torch.Tensor:
        """Return the numbers of bins, float32 of the same shape."""
        edges = self.edges.to(bins.device)
        centres = (edges[:-1] + edges[1:]) / 2.0
        return centres[bins.long().clamp(0, self.num_bins - 2)].float()

    def to_bins(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the bins, int64, of numbers, which are cut off at -1 and 1."""
        clipped = numbers.double().clamp(-1.0, 1.0)
        return torch.bucketize(clipped, self.edges.to(numbers.device), right=True) - 1

    def to_ids(self, bins: torch.Tensor) -> torch.Tensor:
        """Return the token ids of bins."""
        return self.vocab_size - 1 - bins.long()

    def logits_of(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits of bins [..., n], float32, given those of the whole vocabulary."""
        return logits[..., self.vocab_size - self.num_bins : self.vocab_size].flip(-1).float()


def bin_logprobs(logits: torch.Tensor, *, temperature: float, among: torch.Tensor | None = None) -> torch.Tensor:
    """Return log-probabilities of bins; rollout and training both take them from here.

    Args:
        logits: float32 [..., n]; of bins alone, which is why no other token has a part in the sum.
        temperature: Divides them.
        among: bool [..., n]; bins that remain possible, at least one of each number. None keeps all.

    Returns:
        float32 [..., n]; minus infinity for bins that are not possible.
    """
    scaled = logits / temperature
    if among is not None:
        scaled = scaled.masked_fill(~among, -torch.inf)
    return scaled.log_softmax(-1)


def among_bins(kept: torch.Tensor, chosen: torch.Tensor, num_bins: int) -> torch.Tensor:
    """Return which bins an action was sampled among, bool [..., n]; all where it was not sampled.

    Args:
        kept: int16 [..., k]; the bins that the filter kept when the policy acted.
        chosen: [...]; the bins of the action. Where they are not among those kept, another has chosen: an operator, an
            expert or a recording.
        num_bins: ``n``.
    """
    was_sampled = (kept == chosen.unsqueeze(-1)).any(-1, keepdim=True)
    among = torch.zeros(*chosen.shape, num_bins, dtype=torch.bool, device=kept.device)
    return among.scatter(-1, kept.long().clamp(min=0), value=True) | ~was_sampled


def bin_entropy(logprobs: torch.Tensor) -> torch.Tensor:
    """Return the entropy [...] of ``bin_logprobs`` [..., n]; bins without probability add nothing."""
    return -(logprobs.exp() * logprobs.masked_fill(logprobs == -torch.inf, 0.0)).sum(-1)
