"""Drawing the next token of many answers at once, each by its own parameters and its own stream of random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from rlinf.data.generation import SamplingParams
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
    """Return log-probabilities with those rows renormalised over the tokens that their parameters leave."""
    narrowings = [
        Narrowing.of(answers[row].params, banned=() if answers[row].may_end else tuple(answers[row].end_ids))
        for row in rows
    ]
    narrowed = full.clone()
    narrowed[rows] = narrow(full[rows], narrowings).log_softmax(-1)
    return narrowed


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What is left out of one row.

    Attributes:
        banned: Tokens that may not be drawn.
        top_k: See ``SamplingParams``.
        top_p: See ``SamplingParams``.
        min_p: See ``SamplingParams``.
    """

    banned: tuple[int, ...] = ()
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0

    @classmethod
    def of(cls, params: SamplingParams, *, banned: tuple[int, ...]) -> Narrowing:
        """Return what an answer's parameters leave out; greedy ones only what is banned."""
        if params.temperature == 0:
            return cls(banned)
        return cls(banned, params.top_k, params.top_p, params.min_p)


def narrow(logprobs: torch.Tensor, narrowings: Sequence[Narrowing]) -> torch.Tensor:
    """Set what is left out to minus infinity.

    The order is that of vLLM: banned tokens, min-p, top-k, then top-p of what top-k left.

    Args:
        logprobs: Normalised, [N, V].
        narrowings: N.

    Returns:
        [N, V], not normalised again.
    """
    logprobs = logprobs.clone()
    for row, narrowing in enumerate(narrowings):
        if narrowing.banned:
            logprobs[row, list(narrowing.banned)] = -torch.inf
    if any(each.min_p > 0 for each in narrowings):
        min_p = logprobs.new_tensor([[each.min_p] for each in narrowings])
        logprobs = logprobs.masked_fill(logprobs < logprobs.amax(-1, keepdim=True) + min_p.log(), -torch.inf)
    if any(each.top_k > 0 or each.top_p < 1 for each in narrowings):
        top_k = [each.top_k if each.top_k > 0 else logprobs.shape[-1] for each in narrowings]
        logprobs = _most_likely(logprobs, top_k=top_k, top_p=[each.top_p for each in narrowings])
    return logprobs


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
