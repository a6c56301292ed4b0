"""Folders of runs that hold a policy, made without a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import yaml

from rlinf.checkpoint import CheckpointManager
from rlinf.config import load_recipe, to_dict, validate_cfg
from rlinf.hybrid_engines.train import state
from rlinf.hybrid_engines.train.chunks import write_state
from rlinf.models import get_policy
from rlinf.models.base_policy import BasePolicy
from rlinf.telemetry.rundir import CONFIG_FILE


def save_policy(run: Path, recipe: str = "gym_cartpole_ppo_mlp", *overrides: str) -> tuple[Any, BasePolicy]:
    """Write ``config.yaml`` and the checkpoint of step 3; returns the recipe and the policy that is in it."""
    cfg: Any = validate_cfg(load_recipe(recipe, overrides))
    torch.manual_seed(5)
    model = get_policy(cfg.actor.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape), alpha=0.3)
    manager = CheckpointManager(run / "checkpoints")
    optimizer = torch.optim.AdamW(model.parameters())
    write_state(manager.begin(3) / "actor", state.training_state(model, [optimizer], {"num_steps": 3}))
    manager.commit(3, {})
    (run / CONFIG_FILE).write_text(yaml.safe_dump(to_dict(cfg)))
    return cfg, model.eval()
