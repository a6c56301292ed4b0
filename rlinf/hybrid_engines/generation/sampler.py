"""Samples the next token of many sequences at once, each by its own parameters and stream of random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from rlinf.data.messages.generation import SamplingParams
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence


class SampledTokens(NamedTuple):
    """The tokens of one step.

    Attributes:
        token_ids: [N].
        logprobs: [N]; see ``Completion``.
        full_logprobs: [N]; see ``Completion``.
    """

    token_ids: list[int]
    logprobs: list[float]
    full_logprobs: list[float]


class Sampler:
    """Samples tokens; a sequence's next token depends on its seed and its length, not on the rest of the batch."""

    def __init__(self) -> None:
        self._seen: dict[int, torch.Tensor] = {}

    def forget(self, keys: Sequence[int]) -> None:
        """Drop the state of sequences that have ended."""
        for key in keys:
            self._seen.pop(key, None)

    def sample(self, logits: torch.Tensor, sequences: Sequence[TokenSequence]) -> SampledTokens:
        """Sample one token for each sequence.

        Args:
            logits: [N, V], float32; may be changed.
            sequences: N.
        """
        logits = self._penalize(logits, sequences)
        temperatures = [a.params.temperature for a in sequences]
        if any(t not in (0, 1) for t in temperatures):
            # Greedy sampling reports the distribution at temperature 1.
            logits = logits / logits.new_tensor([[t or 1.0] for t in temperatures])
        full = logits.log_softmax(-1)
        rows = [row for row, sequence in enumerate(sequences) if sequence.params.truncates]
        logprobs = full if not rows else _filtered(full, sequences, rows)
        if not all(temperatures):
            greedy = torch.tensor([t == 0 for t in temperatures], device=logits.device)
            token_ids = torch.where(greedy, logprobs.argmax(-1), _invert(logprobs, sequences))
        else:
            token_ids = _invert(logprobs, sequences)
        index = token_ids[:, None]
        sampled = torch.stack([logprobs.gather(1, index)[:, 0], full.gather(1, index)[:, 0]])
        both = sampled.tolist()
        return SampledTokens(token_ids.tolist(), both[0], both[1])

    def _penalize(self, logits: torch.Tensor, sequences: Sequence[TokenSequence]) -> torch.Tensor:
        penalized = [(row, a) for row, a in enumerate(sequences) if a.params.repetition_penalty != 1]
        if not penalized:
            return logits
        rows = [row for row, _ in penalized]
        seen = torch.stack([self._tokens_of(sequence, logits) for _, sequence in penalized])
        penalties = logits.new_tensor([[a.params.repetition_penalty] for _, a in penalized])
        part = logits[rows]
        changed = torch.where(part > 0, part / penalties, part * penalties)
        logits[rows] = torch.where(seen, changed, part)
        return logits

    def _tokens_of(self, sequence: TokenSequence, like: torch.Tensor) -> torch.Tensor:
        """Return which tokens the sequence's prompt and the sequence contain, [V]."""
        seen = self._seen.get(sequence.key)
        if seen is None:
            seen = torch.zeros(like.shape[-1], dtype=torch.bool, device=like.device)
            seen[sequence.context] = True
            self._seen[sequence.key] = seen
        elif sequence.token_ids:
            seen[sequence.token_ids[-1]] = True
        return seen


def _filtered(full: torch.Tensor, sequences: Sequence[TokenSequence], rows: list[int]) -> torch.Tensor:
    """Return log-probabilities with those rows filtered and renormalised."""
    # Responses to one prompt have the same parameters.
    made: dict[tuple[int, bool], TokenFilter] = {}
    filters: list[TokenFilter] = []
    for row in rows:
        sequence = sequences[row]
        key = (id(sequence.params), sequence.may_end)
        if key not in made:
            made[key] = TokenFilter.of(sequence.params, suppressed=() if key[1] else tuple(sequence.end_ids))
        filters.append(made[key])
    are_all = len(rows) == len(sequences)
    part = filter_logprobs(full if are_all else full[rows], filters).log_softmax(-1)
    if are_all:
        return part
    filtered = full.clone()
    filtered[rows] = part
    return filtered


@dataclass(frozen=True, slots=True)
class TokenFilter:
    """The tokens that one row may not sample.

    Attributes:
        suppressed: Tokens with probability 0.
        top_k: See ``SamplingParams``.
        top_p: See ``SamplingParams``.
        min_p: See ``SamplingParams``.
    """

    suppressed: tuple[int, ...] = ()
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0

    @classmethod
    def of(cls, params: SamplingParams, *, suppressed: tuple[int, ...]) -> TokenFilter:
        """Return the filter of a sequence; greedy sampling only suppresses tokens."""
        if params.temperature == 0:
            return cls(suppressed)
        return cls(suppressed, params.top_k, params.top_p, params.min_p)


def filter_logprobs(logprobs: torch.Tensor, filters: Sequence[TokenFilter]) -> torch.Tensor:
    """Set filtered tokens to minus infinity.

    The order is that of vLLM: suppressed tokens, min-p, top-k, then top-p of what top-k left.

    Args:
        logprobs: Normalised, [N, V].
        filters: N.

    Returns:
        [N, V], not normalised again.
    """
    logprobs = logprobs.clone()
    rows_of: dict[TokenFilter, list[int]] = {}
    for row, each in enumerate(filters):
        rows_of.setdefault(each, []).append(row)
    for kind, rows in rows_of.items():
        if kind.suppressed and len(rows_of) == 1:
            logprobs[:, list(kind.suppressed)] = -torch.inf
        elif kind.suppressed:
            logprobs[torch.tensor(rows, device=logprobs.device)[:, None], list(kind.suppressed)] = -torch.inf
    if any(each.min_p > 0 for each in rows_of):
        min_p = logprobs.new_tensor([[each.min_p] for each in filters])
        logprobs = logprobs.masked_fill(logprobs < logprobs.amax(-1, keepdim=True) + min_p.log(), -torch.inf)
    if any(each.top_k > 0 or each.top_p < 1 for each in rows_of):
        top_k = [each.top_k if each.top_k > 0 else logprobs.shape[-1] for each in filters]
        logprobs = _filter_top_k_top_p(logprobs, top_k=top_k, top_p=[each.top_p for each in filters])
    return logprobs


def _filter_top_k_top_p(logprobs: torch.Tensor, *, top_k: list[int], top_p: list[float]) -> torch.Tensor:
    """Keep the ``top_k`` most likely tokens of each row, and of those the ones that reach ``top_p``."""
    ordered, order = logprobs.sort(-1, descending=True)
    ranks = torch.arange(logprobs.shape[-1], device=logprobs.device)
    ordered = ordered.masked_fill(ranks >= torch.tensor(top_k, device=logprobs.device)[:, None], -torch.inf)
    probabilities = ordered.softmax(-1)
    reached = probabilities.cumsum(-1) - probabilities >= logprobs.new_tensor(top_p)[:, None]
    reached[:, 0] = False
    # Rounding must not cut off anything where top-p is off.
    reached &= logprobs.new_tensor(top_p)[:, None] < 1
    return torch.empty_like(logprobs).scatter_(-1, order, ordered.masked_fill(reached, -torch.inf))


def _invert(logprobs: torch.Tensor, sequences: Sequence[TokenSequence]) -> torch.Tensor:
    """Sample from each row by inverting its distribution function at one uniform number."""
    cumulative = logprobs.double().exp_().cumsum_(-1)
    seeds = np.array([a.seed for a in sequences], dtype=np.uint64)
    indices = np.array([len(a.token_ids) for a in sequences], dtype=np.uint64)
    uniform = torch.from_numpy(uniform_numbers(seeds, indices)).to(logprobs.device)[:, None]
    # "right" passes over tokens of probability 0, whose cumulative value is that of the token before them.
    return torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)[:, 0]


def uniform_numbers(seeds: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1), each a function of its seed and index alone.

    The output function of SplitMix64 (Steele, Lea and Flood 2014), once over the seed and once over seed and index.

    Args:
        seeds: [N], uint64.
        indices: [N], uint64.

    Returns:
        [N], float64.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        state = _scramble(seeds + golden)
        bits = _scramble(state + (indices + np.uint64(1)) * golden)
    # 52 bits, so that the product with a total near 1 stays below the total.
    uniform: np.ndarray = (bits >> np.uint64(12)).astype(np.float64) * 2.0**-52
    return uniform


def _scramble(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: np.ndarray = z ^ (z >> np.uint64(31))
    return scrambled
