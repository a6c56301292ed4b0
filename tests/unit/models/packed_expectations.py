"""A tiny language model, and what transformers computes."""

from typing import Any

import torch


def expectation(reference: Any, sequence: list[int], temperature: float = 1.0) -> tuple[Any, Any]:
    """Log-probability and entropy of each token but the first, by transformers alone."""
    logits = reference(torch.tensor([sequence])).logits[0, :-1] / temperature
    log_softmax = logits.log_softmax(-1)
    logprobs = log_softmax.gather(-1, torch.tensor(sequence[1:]).unsqueeze(-1)).squeeze(-1)
    return logprobs, -(log_softmax.exp() * log_softmax).sum(-1)
