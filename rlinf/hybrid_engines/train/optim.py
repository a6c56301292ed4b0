"""AdamW with separate learning rates for policy and value head, and its schedule as a pure function of the step."""

from __future__ import annotations

import math

import torch
from torch import nn

from rlinf.config.schema.train import OptimConfig
from rlinf.models.base_policy import BasePolicy


def build_optimizer(model: BasePolicy, cfg: OptimConfig, *, fused: bool) -> torch.optim.AdamW:
    """Build AdamW with the groups ``policy`` and, if the model has a value head, ``value``.

    Args:
        model: Names in ``model.named_parameters()`` are asked ``model.is_value_parameter``.
        cfg: The ``actor.optim`` section.
        fused: Use the single-kernel implementation (plain tensors only).
    """
    groups: dict[str, list[nn.Parameter]] = {"policy": [], "value": []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups["value" if model.is_value_parameter(name) else "policy"].append(parameter)
    base_lr = {"policy": cfg.lr, "value": cfg.value_lr or cfg.lr}
    return torch.optim.AdamW(
        [{"params": p, "name": name, "base_lr": base_lr[name], "lr": base_lr[name]} for name, p in groups.items() if p],
        betas=(cfg.adam_beta1, cfg.adam_beta2),
        eps=cfg.adam_eps,
        weight_decay=cfg.weight_decay,
        fused=fused,
    )


def learning_rate_factor(step: int, cfg: OptimConfig) -> float:
    """Return the share of the base learning rate at optimizer step ``step``, counted from 0."""
    if step < cfg.lr_warmup_steps:
        return (step + 1) / (cfg.lr_warmup_steps + 1)
    if cfg.lr_scheduler == "constant" or cfg.total_training_steps is None:
        return 1.0
    span = max(1, cfg.total_training_steps - cfg.lr_warmup_steps)
    progress = min(1.0, (step - cfg.lr_warmup_steps) / span)
    shape = 1.0 - progress if cfg.lr_scheduler == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return cfg.min_lr_ratio + (1.0 - cfg.min_lr_ratio) * shape


def apply_schedule(optimizer: torch.optim.Optimizer, step: int, cfg: OptimConfig) -> None:
    """Set every group's learning rate for optimizer step ``step``; during critic warm-up the policy's is 0."""
    factor = learning_rate_factor(step, cfg)
    for group in optimizer.param_groups:
        warming_up = step < cfg.critic_warmup_steps and group["name"] == "policy"
        group["lr"] = 0.0 if warming_up else group["base_lr"] * factor
