"""From the scores of answers to what a loss learns from: advantages and returns of each token.

A token is a step in time, an answer an episode, and its score is the reward of its last token of its own. With that
every advantage estimator serves text as it serves environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from rlinf.algorithms.filtering import differing_groups, filter_by_config
from rlinf.algorithms.kl import estimate_kl
from rlinf.algorithms.registry import calculate_adv_and_returns
from rlinf.algorithms.types import AllReduce, Metrics, at_least_float32, masked_metric, metric_pair
from rlinf.errors import AlgorithmError

Ragged = Sequence[torch.Tensor]
"""One tensor [L] per answer."""


@dataclass(frozen=True, slots=True)
class TextTargets:
    """What a loss needs besides the model's outputs, for each token of each answer.

    Attributes:
        advantages: float [L] each; 0 outside the mask.
        returns: float [L] each; targets of the values.
        loss_masks: bool [L] each; the given ones, all false for groups that were filtered out.
    """

    advantages: tuple[torch.Tensor, ...]
    returns: tuple[torch.Tensor, ...]
    loss_masks: tuple[torch.Tensor, ...]


def compute_text_targets(
    *,
    scores: torch.Tensor,
    loss_masks: Ragged,
    group_ids: torch.Tensor,
    adv_type: str,
    adv_config: Mapping[str, Any],
    values: Ragged | None = None,
    old_logprobs: Ragged | None = None,
    ref_logprobs: Ragged | None = None,
    kl_beta: float = 0.0,
    kl_penalty: str = "k1",
    only_teaching: bool = False,
    all_reduce: AllReduce | None = None,
) -> tuple[TextTargets, Metrics]:
    """Compute advantages and returns of answers.

    Whole groups must be here, so that this comes before answers are spread over ranks and micro-batches.

    Args:
        scores: float [N]; what each answer earned.
        loss_masks: bool [L] each; tokens of the model's own.
        group_ids: int64 [N]; equal for answers to one prompt.
        adv_type: Registered advantage estimator.
        adv_config: Fields of its config dataclass; ``filter_rewards`` and its bounds are applied here.
        values: float [L] each; value of the state before each token. None without a value head.
        old_logprobs: float [L] each, of the policy that acted; needed with ``kl_beta``.
        ref_logprobs: float [L] each, of the reference policy; needed with ``kl_beta``.
        kl_beta: Weight of the divergence from the reference, subtracted from the reward of each token (Ziegler et al.,
            arXiv 1909.08593, Eq. 2). It counts in advantages, and not in which groups are filtered out.
        kl_penalty: Its estimator, see ``kl.py``; ``k1`` makes the expected penalty the divergence itself.
        only_teaching: Also filter out groups whose scores are all equal: what dynamic sampling could not replace.
        all_reduce: Sum over data-parallel ranks; None on one rank.

    Returns:
        The targets, and metrics as (sum, count) pairs: ``advantage``, ``return``, ``score``, ``filtered_fraction`` (of
        answers) and ``kl_reward`` (mean divergence of a token; without count where there is none).

    Raises:
        RegistryError: An unknown ``adv_type``.
        AlgorithmError: Tensors or keys that do not fit.
    """
    lengths = [len(mask) for mask in loss_masks]
    _check(lengths, scores=scores, group_ids=group_ids, values=values, old=old_logprobs, ref=ref_logprobs)
    given = pad_sequence(list(loss_masks))
    is_last = given & (given.flip(0).cumsum(0).flip(0) == 1)
    rewards = torch.where(
        is_last, at_least_float32(scores).expand_as(given), torch.zeros_like(scores[:1]).expand_as(given)
    )
    kept = filter_by_config(rewards=rewards, loss_mask=given, group_ids=group_ids, adv_config=adv_config)
    if only_teaching:
        kept = kept & differing_groups(at_least_float32(scores), group_ids)
    rewards, penalty = _penalised(rewards, kept, old_logprobs, ref_logprobs, kl_beta=kl_beta, kl_penalty=kl_penalty)
    advantages, returns = calculate_adv_and_returns(
        adv_type,
        **{
            **adv_config,
            "rewards": rewards,
            "values": None if values is None else _with_end(values),
            "bootstrap_values": None,
            "dones": is_last,
            "loss_mask": kept,
            "group_ids": group_ids,
            "all_reduce": all_reduce,
        },
    )
    asked, left = given.any(0), kept.any(0)
    metrics = {
        "advantage": masked_metric(advantages, kept),
        "return": masked_metric(returns, kept),
        "score": masked_metric(at_least_float32(scores), asked),
        "filtered_fraction": metric_pair((asked & ~left).sum().to(rewards), asked.sum()),
        "kl_reward": penalty,
    }
    targets = (_ragged(tensor, lengths) for tensor in (advantages, returns, kept))
    return TextTargets(*targets), metrics


def _penalised(
    rewards: torch.Tensor,
    mask: torch.Tensor,
    old_logprobs: Ragged | None,
    ref_logprobs: Ragged | None,
    *,
    kl_beta: float,
    kl_penalty: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rewards less the divergence of each token, and the metric of it."""
    if old_logprobs is None or ref_logprobs is None:
        if kl_beta > 0:
            raise AlgorithmError("compute_text_targets: kl_beta > 0 needs 'old_logprobs' and 'ref_logprobs'.")
        return rewards, torch.zeros(2, device=rewards.device)
    divergence = estimate_kl(pad_sequence(list(old_logprobs)), pad_sequence(list(ref_logprobs)), kl_penalty)
    divergence = torch.where(mask, divergence, torch.zeros_like(divergence))
    return rewards - kl_beta * divergence, masked_metric(divergence, mask)


def _with_end(values: Ragged) -> torch.Tensor:
    """[L] each to [S + 1, N]: what follows an answer's last token has value 0."""
    padded = at_least_float32(pad_sequence(list(values)))
    return torch.cat((padded, torch.zeros_like(padded[:1])))


def _ragged(padded: torch.Tensor, lengths: Sequence[int]) -> tuple[torch.Tensor, ...]:
    return tuple(padded[:length, number].clone() for number, length in enumerate(lengths))


def _check(lengths: list[int], *, scores: torch.Tensor, group_ids: torch.Tensor, **ragged: Ragged | None) -> None:
    problems = [
        f"{name} [{len(t)}]" for name, t in (("scores", scores), ("group_ids", group_ids)) if len(t) != len(lengths)
    ]
    for name, tensors in ragged.items():
        if tensors is not None and [len(tensor) for tensor in tensors] != lengths:
            problems.append(f"{name} with lengths {[len(tensor) for tensor in tensors]}")
    if problems or not lengths:
        raise AlgorithmError(
            f"compute_text_targets: loss_masks have lengths {lengths}, received {', '.join(problems)}."
        )
