"""Drawing the next token of many answers at once, each by its own parameters and its own stream of random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from rlinf.hybrid_engines.generation.answers import Answer


class Drawn(NamedTuple):
    """The tokens of one step.

    Attributes:
        token_ids: [N].
        logprobs: [N]; see ``Completion``.
        full_logprobs: [N]; see ``Completion``.
    """

    token_ids: list[int]
    logprobs: list[float]
    full_logprobs: list[float]


class Drawer:
    """Draws tokens; what an answer draws depends on its seed and on how many tokens it has, not on its neighbours."""

    def __init__(self) -> None:
        self._seen: dict[int, torch.Tensor] = {}

    def forget(self, keys: Sequence[int]) -> None:
        """Drop what is kept of answers that have ended."""
        for key in keys:
            self._seen.pop(key, None)

    def draw(self, logits: torch.Tensor, answers: Sequence[Answer]) -> Drawn:
        """Draw one token for each answer.

        Args:
            logits: [N, V], float32; may be changed.
            answers: N.
        """
        logits = self._penalize(logits, answers)
        temperatures = [a.params.temperature for a in answers]
        if any(t not in (0, 1) for t in temperatures):
            # Greedy answers report the distribution at temperature 1.
            logits = logits / logits.new_tensor([[t or 1.0] for t in temperatures])
        full = logits.log_softmax(-1)
        rows = [row for row, answer in enumerate(answers) if answer.params.truncates]
        logprobs = full if not rows else _narrowed(full, answers, rows)
        if not all(temperatures):
            greedy = torch.tensor([t == 0 for t in temperatures], device=logits.device)
            token_ids = torch.where(greedy, logprobs.argmax(-1), _invert(logprobs, answers))
        else:
            token_ids = _invert(logprobs, answers)
        index = token_ids[:, None]
        drawn = torch.stack([logprobs.gather(1, index)[:, 0], full.gather(1, index)[:, 0]])
        both = drawn.tolist()
        return Drawn(token_ids.tolist(), both[0], both[1])

    def _penalize(self, logits: torch.Tensor, answers: Sequence[Answer]) -> torch.Tensor:
        penalized = [(row, a) for row, a in enumerate(answers) if a.params.repetition_penalty != 1]
        if not penalized:
            return logits
        rows = [row for row, _ in penalized]
        seen = torch.stack([self._tokens_of(answer, logits) for _, answer in penalized])
        penalties = logits.new_tensor([[a.params.repetition_penalty] for _, a in penalized])
        part = logits[rows]
        changed = torch.where(part > 0, part / penalties, part * penalties)
        logits[rows] = torch.where(seen, changed, part)
        return logits

    def _tokens_of(self, answer: Answer, like: torch.Tensor) -> torch.Tensor:
        """Return which tokens the answer's prompt and the answer contain, [V]."""
        seen = self._seen.get(answer.key)
        if seen is None:
            seen = torch.zeros(like.shape[-1], dtype=torch.bool, device=like.device)
            seen[answer.context] = True
            self._seen[answer.key] = seen
        elif answer.token_ids:
            seen[answer.token_ids[-1]] = True
        return seen


def _narrowed(full: torch.Tensor, answers: Sequence[Answer], rows: list[int]) -> torch.Tensor:
    """Return log-probabilities with those rows renormalised over the tokens that their parameters leave.

    The order is vLLM's: end tokens that come too early, min-p, top-k, then top-p of what top-k left.
    """
    part = full[rows]
    params = [answers[row].params for row in rows]
    for index, row in enumerate(rows):
        if not answers[row].may_end and answers[row].end_ids:
            part[index, list(answers[row].end_ids)] = -torch.inf
    sampled = [p.temperature > 0 for p in params]
    if any(s and p.min_p > 0 for s, p in zip(sampled, params, strict=True)):
        min_p = part.new_tensor([[p.min_p if s else 0.0] for s, p in zip(sampled, params, strict=True)])
        part = part.masked_fill(part < part.amax(-1, keepdim=True) + min_p.log(), -torch.inf)
    if any(s and (p.top_k > 0 or p.top_p < 1) for s, p in zip(sampled, params, strict=True)):
        size = part.shape[-1]
        top_k = [p.top_k if s and p.top_k > 0 else size for s, p in zip(sampled, params, strict=True)]
        top_p = [p.top_p if s else 1.0 for s, p in zip(sampled, params, strict=True)]
        part = _most_likely(part, top_k=top_k, top_p=top_p)
    narrowed = full.clone()
    narrowed[rows] = part.log_softmax(-1)
    return narrowed


def _most_likely(logprobs: torch.Tensor, *, top_k: list[int], top_p: list[float]) -> torch.Tensor:
    """Leave the ``top_k`` most likely tokens of each row, and of those the ones that reach ``top_p``."""
    ordered, order = logprobs.sort(-1, descending=True)
    ranks = torch.arange(logprobs.shape[-1], device=logprobs.device)
    ordered = ordered.masked_fill(ranks >= torch.tensor(top_k, device=logprobs.device)[:, None], -torch.inf)
    probabilities = ordered.softmax(-1)
    reached = probabilities.cumsum(-1) - probabilities >= logprobs.new_tensor(top_p)[:, None]
    reached[:, 0] = False
    # Rounding must not cut off anything where top-p is off.
    reached &= logprobs.new_tensor(top_p)[:, None] < 1
    return torch.empty_like(logprobs).scatter_(-1, order, ordered.masked_fill(reached, -torch.inf))


def _invert(logprobs: torch.Tensor, answers: Sequence[Answer]) -> torch.Tensor:
    """Draw from each row by inverting its distribution function at one uniform number."""
    cumulative = logprobs.double().exp_().cumsum_(-1)
    seeds = np.array([a.seed for a in answers], dtype=np.uint64)
    indices = np.array([len(a.token_ids) for a in answers], dtype=np.uint64)
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
