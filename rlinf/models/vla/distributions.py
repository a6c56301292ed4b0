"""What an action is sampled from: action tokens, or numbers around those of the L1 head."""

from __future__ import annotations

from typing import Protocol

import torch

from rlinf.models.control.heads import gaussian_entropy, gaussian_logprob
from rlinf.models.vla.action_tokens import ActionTokens, bin_entropy, bin_logprobs


class ActionDistribution(Protocol):
    """A distribution of chunks of actions, entry by entry; what is chosen is what trajectories keep."""

    def sample(self, generator: torch.Generator | None) -> torch.Tensor:
        """Return a sample, [N, C, A]."""

    def mode(self) -> torch.Tensor:
        """Return the most likely choice, [N, C, A]."""

    def logprobs(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of choices, float32 [N, C, A]."""

    def entropy(self) -> torch.Tensor:
        """Return the entropies, float32 [N, C, A]."""

    def numbers(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return choices as normalised actions, float32 [N, C, A]."""


class TokenDistribution:
    """Bins with the probabilities of their tokens.

    Args:
        logits: float32 [N, C, A, n] of bins.
        tokens: What bins stand for.
        temperature: See ``bin_logprobs``.
        top_k: See ``bin_logprobs``.
    """

    def __init__(self, logits: torch.Tensor, tokens: ActionTokens, *, temperature: float, top_k: int | None) -> None:
        self._logprobs = bin_logprobs(logits, temperature=temperature, top_k=top_k)
        self._tokens = tokens

    def sample(self, generator: torch.Generator | None) -> torch.Tensor:
        """See ``ActionDistribution``: int16 bins."""
        shape = self._logprobs.shape
        flat = torch.multinomial(self._logprobs.exp().reshape(-1, shape[-1]), 1, generator=generator)
        return flat.view(shape[:-1]).to(torch.int16)

    def mode(self) -> torch.Tensor:
        """See ``ActionDistribution``: int16 bins."""
        return self._logprobs.argmax(-1).to(torch.int16)

    def logprobs(self, chosen: torch.Tensor) -> torch.Tensor:
        """See ``ActionDistribution``."""
        return self._logprobs.gather(-1, chosen.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        """See ``ActionDistribution``."""
        return bin_entropy(self._logprobs)

    def numbers(self, chosen: torch.Tensor) -> torch.Tensor:
        """See ``ActionDistribution``."""
        return self._tokens.to_numbers(chosen)


class NumberDistribution:
    """A diagonal Gaussian over normalised actions.

    Args:
        mean: float32 [N, C, A].
        log_std: float32 [A].
    """

    def __init__(self, mean: torch.Tensor, log_std: torch.Tensor) -> None:
        self.mean, self._log_std = mean, log_std.float().expand_as(mean)

    def sample(self, generator: torch.Generator | None) -> torch.Tensor:
        """See ``ActionDistribution``: float32."""
        noise = torch.randn(self.mean.shape, generator=generator, device=self.mean.device)
        return self.mean + noise * self._log_std.exp()

    def mode(self) -> torch.Tensor:
        """See ``ActionDistribution``: float32."""
        return self.mean

    def logprobs(self, chosen: torch.Tensor) -> torch.Tensor:
        """See ``ActionDistribution``."""
        return gaussian_logprob(chosen, self.mean, self._log_std)

    def entropy(self) -> torch.Tensor:
        """See ``ActionDistribution``."""
        return gaussian_entropy(self._log_std)

    def numbers(self, chosen: torch.Tensor) -> torch.Tensor:
        """See ``ActionDistribution``."""
        return chosen
