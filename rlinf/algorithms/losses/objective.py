"""From the policy's loss of each entry to the one number that is minimised, with the terms that its config adds."""

from __future__ import annotations

import torch

from rlinf.algorithms.aggregation import Denominators, aggregate_loss
from rlinf.algorithms.kl import estimate_kl
from rlinf.algorithms.losses.actor_critic import value_loss
from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.types import Metrics, masked_metric, masked_metrics, metric_pair
from rlinf.config.schema.algorithm import LossConfig, PolicyLossConfig, RegularizedLossConfig, ValueLossConfig
from rlinf.errors import AlgorithmError


def compute_objective(output: LossOutput, inputs: LossInputs, cfg: LossConfig) -> tuple[torch.Tensor, Metrics]:
    """Return a micro-batch's part of the objective, and its metrics.

    A ``RegularizedLossConfig`` adds - entropy_bonus * entropy + kl_beta * KL(current || reference), a
    ``ValueLossConfig`` value_loss_coef * value loss where there are values. The policy's loss and the KL are aggregated
    by ``loss_agg_func``; entropy and value loss are always means over their valid entries.

    Args:
        output: The policy's loss.
        inputs: What it was computed from.
        cfg: Its config.

    Returns:
        Scalar loss, and metrics as (sum, count) pairs: those of ``output`` and of the terms, the policy's part alone
        (``output.name``), ``actor_ratio_max``, ``actor_entropy``, ``actor_kl_ref`` and ``total_loss``.

    Raises:
        AlgorithmError: A weight without its tensor, or shapes that differ.
    """
    how = cfg.loss_agg_func if isinstance(cfg, PolicyLossConfig) else "token-mean"
    loss = _aggregate(output.per_entry, inputs, how)
    metrics = masked_metrics(inputs.loss_mask, **output.metrics) if output.metrics else {}
    if "actor_ratio" in output.metrics:
        metrics["actor_ratio_max"] = _largest(output.metrics["actor_ratio"], inputs.loss_mask)
    metrics[output.name] = _loss_metric(loss, inputs)
    if isinstance(cfg, RegularizedLossConfig):
        mean_entropy, metrics["actor_entropy"] = _entropy(inputs)
        if cfg.entropy_bonus > 0:
            if mean_entropy is None:
                raise AlgorithmError("algorithm.entropy_bonus > 0 needs 'entropy'; let the model return it.")
            loss = loss - cfg.entropy_bonus * mean_entropy
        kl, metrics["actor_kl_ref"] = _kl_to_reference(inputs, cfg.kl_penalty)
        if cfg.kl_beta > 0:
            if kl is None:
                raise AlgorithmError("algorithm.kl_beta > 0 needs 'ref_logprobs' of the reference policy.")
            loss = loss + cfg.kl_beta * _aggregate(kl, inputs, how)
    if isinstance(cfg, ValueLossConfig) and inputs.values is not None:
        critic = value_loss(inputs, cfg)
        mask = inputs.loss_mask if inputs.value_mask is None else inputs.value_mask
        loss = loss + cfg.value_loss_coef * _mean(critic.per_entry, mask, inputs.denominators.value)
        metrics |= masked_metrics(mask, **critic.metrics)
    if isinstance(cfg, (RegularizedLossConfig, ValueLossConfig)):
        metrics["total_loss"] = _loss_metric(loss, inputs)
    return loss, metrics


def value_objective(
    inputs: LossInputs, *, value_clip: float | None = None, huber_delta: float | None = None
) -> tuple[torch.Tensor, Metrics]:
    """Return a micro-batch's part of the mean value loss, and its metrics: what a critic of its own minimises.

    Args:
        inputs: With ``values``, ``prev_values`` and ``returns``.
        value_clip: See ``value_loss``, here and below.
        huber_delta: Switch from squared to linear error.
    """
    counted = inputs.loss_mask if inputs.value_mask is None else inputs.value_mask
    critic = value_loss(inputs, ValueLossConfig(value_clip=value_clip, huber_delta=huber_delta))
    return _mean(critic.per_entry, counted, inputs.denominators.value), masked_metrics(counted, **critic.metrics)


def _aggregate(per_entry: torch.Tensor, inputs: LossInputs, how: str) -> torch.Tensor:
    return aggregate_loss(
        per_entry,
        inputs.loss_mask,
        loss_agg_func=how,
        denominators=inputs.denominators.policy,
        sequence_ids=inputs.sequence_ids,
        sequence_weights=inputs.sequence_weights,
    )


def _mean(per_entry: torch.Tensor, mask: torch.Tensor, denominators: Denominators) -> torch.Tensor:
    return aggregate_loss(per_entry, mask, loss_agg_func="token-mean", denominators=denominators)


def _loss_metric(loss: torch.Tensor, inputs: LossInputs) -> torch.Tensor:
    """Return the pair of a micro-batch's part of a loss: added up over an update batch it is (its loss, 1)."""
    denominators = inputs.denominators.policy
    return metric_pair(loss / denominators.data_parallel_size, denominators.share(inputs.loss_mask))


def _entropy(inputs: LossInputs) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Return the micro-batch's part of the mean entropy, and its metric; (None, an empty metric) without one."""
    if inputs.entropy is None:
        return None, torch.zeros(2, device=inputs.loss_mask.device)
    mask = inputs.loss_mask if inputs.entropy_mask is None else inputs.entropy_mask
    return _mean(inputs.entropy, mask, inputs.denominators.entropy), masked_metric(inputs.entropy, mask)


def _kl_to_reference(inputs: LossInputs, kind: str) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Return KL(current || reference) of each entry, 0 outside the mask, and its metric."""
    if inputs.ref_logprobs is None:
        return None, torch.zeros(2, device=inputs.loss_mask.device)
    # Masked before the exponential: an infinite value outside the mask would poison the gradient.
    logprobs, reference, old = (inputs.masked(name) for name in ("logprobs", "ref_logprobs", "old_logprobs"))
    kl = estimate_kl(logprobs, reference, kind, old)
    return kl, masked_metric(kl, inputs.loss_mask)


def _largest(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the largest of the values in the mask, which are not negative, as a pair of ``LARGEST``."""
    counted = torch.where(mask, values.detach(), torch.zeros_like(values)).flatten()
    largest = torch.cat([counted, counted.new_zeros(1)]).amax()
    return torch.stack((largest, mask.any().to(largest)))
