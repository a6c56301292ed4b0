"""Estimators of the KL divergence of the current policy from a reference, KL(current || reference).

All are means over samples of the current policy of a function of its log-probability and the reference's, after
J. Schulman, "Approximating KL Divergence" (2020).
"""

from __future__ import annotations

import torch

from rlinf.algorithms.types import at_least_float32, require_same_shape
from rlinf.errors import AlgorithmError

_ALIASES = {"kl": "k1", "low_var_kl": "k3"}

MAX_LOG_RATIO = 20.0
"""Bound on log-ratios that are exponentiated: e^20 is far outside any trust region, and e^89 is infinite in float32."""


def estimate_kl(
    logprobs: torch.Tensor, ref_logprobs: torch.Tensor, kind: str, old_logprobs: torch.Tensor | None = None
) -> torch.Tensor:
    """Estimate KL(current || reference) at each sampled entry.

    ``k1`` (alias ``kl``): log p - log q; unbiased, may be negative. As a loss its own gradient is 0 in expectation:
    it is meant for rewards and metrics. ``abs``: its size. ``k2``: half its square; its gradient is that of the
    divergence. ``k3`` (alias ``low_var_kl``): q/p - 1 - log(q/p); unbiased and never negative.
    ``k3_unbiased``: k3 times p / (the policy that acted), as in DeepSeek-V3.2 (arXiv 2512.02556, Section 3.1): the
    gradient of k3 alone is that of KL(reference || current), and this one's is that of KL(current || reference), also
    where the policy that acted is an older one.

    Args:
        logprobs: Of the current policy p, which the actions were sampled from (or are close to); any shape.
        ref_logprobs: Of the reference q for the same actions, of the same shape; no gradient flows into it.
        kind: ``k1``, ``abs``, ``k2``, ``k3``, ``k3_unbiased``, ``kl`` or ``low_var_kl``.
        old_logprobs: Of the policy that acted, of the same shape, for ``k3_unbiased``; None takes the current one's.

    Returns:
        Estimates of the same shape.

    Raises:
        AlgorithmError: An unknown kind, or shapes that differ.
    """
    require_same_shape("estimate_kl", logprobs=logprobs, ref_logprobs=ref_logprobs, old_logprobs=old_logprobs)
    log_ratio = at_least_float32(logprobs) - ref_logprobs.detach()
    name = _ALIASES.get(kind, kind)
    if name == "k1":
        return log_ratio
    if name == "abs":
        return log_ratio.abs()
    if name == "k2":
        return 0.5 * log_ratio.square()
    if name in {"k3", "k3_unbiased"}:
        k3 = torch.exp((-log_ratio).clamp(max=MAX_LOG_RATIO)) - 1 + log_ratio
        if name == "k3":
            return k3
        acted = (logprobs if old_logprobs is None else old_logprobs).detach()
        return k3 * torch.exp((at_least_float32(logprobs) - acted).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    raise AlgorithmError(
        f"kl_penalty: unknown kind '{kind}'; choose k1, abs, k2, k3, k3_unbiased, kl (= k1) or low_var_kl (= k3)."
    )


def approximate_kl(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return k3 of the old against the current policy, from log(current / old); without a gradient."""
    exact = log_ratio.detach()
    return torch.exp(exact.clamp(max=MAX_LOG_RATIO)) - 1 - exact
