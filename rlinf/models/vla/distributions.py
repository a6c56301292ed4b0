"""What an action is sampled from: action tokens, or numbers around those of the L1 head."""

from __future__ import annotations

from typing import Protocol

import torch

from rlinf.models.control.heads import gaussian_entropy, gaussian_logprob
from rlinf.models.draws import categorical, normal
from rlinf.models.vla.action_tokens import ActionTokens, among_bins, bin_entropy, bin_logprobs


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

    An update changes which bins are the most likely, so that an action may leave them: its log-probability would be
    minus infinity and its gradient 0. Training therefore keeps the bins that the rollout sampled among
    (DeepSeek-V3.2, arXiv 2512.02556, section 3.1, "Keep Sampling Mask").

    Attributes:
        kept: int16 [N, C, A, k]; the bins that samples are taken among. None without ``top_k``.

    Args:
        logits: float32 [N, C, A, n] of bins.
        tokens: What bins stand for.
        temperature: See ``bin_logprobs``.
        top_k: Bins that remain possible, after the temperature; None keeps all.
        chosen: [N, C, A]; given actions that ``forward_inputs`` hold. None to act.
        kept: With ``chosen``: as the rollout reported it, see ``among_bins``.
    """

    def __init__(
        self,
        logits: torch.Tensor,
        tokens: ActionTokens,
        *,
        temperature: float,
        top_k: int | None = None,
        chosen: torch.Tensor | None = None,
        kept: torch.Tensor | None = None,
    ) -> None:
        among = None
        self.kept = kept
        if chosen is not None:
            among = None if kept is None else among_bins(kept, chosen, logits.shape[-1])
        elif top_k is not None:
            most_likely = logits.topk(min(top_k, logits.shape[-1]), -1).indices
            self.kept = most_likely.to(torch.int16)
            among = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, most_likely, value=True)
        self._logprobs = bin_logprobs(logits, temperature=temperature, among=among)
        self._tokens = tokens

    def sample(self, generator: torch.Generator | None) -> torch.Tensor:
        """See ``ActionDistribution``: int16 bins."""
        return categorical(self._logprobs.exp(), generator=generator).to(torch.int16)

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
        noise = normal(self.mean.shape, generator=generator, device=self.mean.device)
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
