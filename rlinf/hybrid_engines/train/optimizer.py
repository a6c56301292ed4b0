"""AdamW and its schedule as a pure function of the step; one optimizer for the policy, one for critics if any."""

from __future__ import annotations

import math

import torch
from torch import nn

from rlinf.config.schema.optim import AdamWConfig
from rlinf.config.schema.train import OptimConfig
from rlinf.models.trainable import TrainableModel


class ScheduledOptimizer:
    """AdamW over named groups of parameters, its schedule, and the count of its steps.

    Attributes:
        parameters: Those of all groups.

    Args:
        groups: Parameters by group name.
        cfg: Keys of the optimizer.
        base_lr: Learning rate of a group before its schedule, where it is not ``cfg.lr``.
        critic_warmup_steps: First steps in which the group ``policy`` stays as it is.
        fused: Use the single-kernel implementation (plain tensors only).
    """

    def __init__(
        self,
        groups: dict[str, list[nn.Parameter]],
        cfg: AdamWConfig,
        *,
        base_lr: dict[str, float] | None = None,
        critic_warmup_steps: int = 0,
        fused: bool = False,
    ) -> None:
        self.cfg = cfg
        self.critic_warmup_steps = critic_warmup_steps
        self.num_steps = 0
        rates = {name: (base_lr or {}).get(name, cfg.lr) for name in groups}
        self.adam = torch.optim.AdamW(
            [{"params": p, "name": name, "base_lr": rates[name], "lr": rates[name]} for name, p in groups.items() if p],
            betas=(cfg.adam_beta1, cfg.adam_beta2),
            eps=cfg.adam_eps,
            weight_decay=cfg.weight_decay,
            fused=fused,
        )
        self.parameters: list[nn.Parameter] = [p for group in self.adam.param_groups for p in group["params"]]

    @property
    def lr(self) -> float:
        """Present learning rate of the first group."""
        return float(self.adam.param_groups[0]["lr"])

    def step(self, *, skip: bool = False) -> None:
        """Update the parameters that have a gradient, and count the step.

        Args:
            skip: Count it only: the gradient is of no use.
        """
        factor = learning_rate_factor(self.num_steps, self.cfg)
        for group in self.adam.param_groups:
            warming_up = self.num_steps < self.critic_warmup_steps and group["name"] == "policy"
            group["lr"] = 0.0 if warming_up else group["base_lr"] * factor
        if not skip:
            self.adam.step()
        self.num_steps += 1


def build_optimizers(
    model: TrainableModel, cfg: OptimConfig, critic_cfg: AdamWConfig | None, *, fused: bool
) -> dict[str, ScheduledOptimizer]:
    """Build the optimizer ``policy`` (groups ``policy`` and ``value``) and, if the model has critics, ``critic``.

    Args:
        model: Names in ``model.named_parameters()`` decide which optimizer they belong to.
        cfg: The ``actor.optim`` section.
        critic_cfg: The ``actor.critic_optim`` section; None takes ``cfg`` for the critics too.
        fused: Use the single-kernel implementation (plain tensors only).
    """
    groups: dict[str, list[nn.Parameter]] = {"policy": [], "value": []}
    critics: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if model.is_critic_parameter(name):
            critics.append(parameter)
        else:
            groups["value" if model.is_value_parameter(name) else "policy"].append(parameter)
    base_lr = {"value": cfg.value_lr or cfg.lr}
    policy = ScheduledOptimizer(groups, cfg, base_lr=base_lr, critic_warmup_steps=cfg.critic_warmup_steps, fused=fused)
    if not critics:
        return {"policy": policy}
    return {"policy": policy, "critic": ScheduledOptimizer({"critic": critics}, critic_cfg or cfg, fused=fused)}


def learning_rate_factor(step: int, cfg: AdamWConfig) -> float:
    """Return the share of the base learning rate at optimizer step ``step``, counted from 0."""
    if step < cfg.lr_warmup_steps:
        return (step + 1) / (cfg.lr_warmup_steps + 1)
    if cfg.lr_scheduler == "constant" or cfg.total_training_steps is None:
        return 1.0
    span = max(1, cfg.total_training_steps - cfg.lr_warmup_steps)
    progress = min(1.0, (step - cfg.lr_warmup_steps) / span)
    shape = 1.0 - progress if cfg.lr_scheduler == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return cfg.min_lr_ratio + (1.0 - cfg.min_lr_ratio) * shape
