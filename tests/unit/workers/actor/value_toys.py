"""Learners that judge frames, and data sets in which images say how far an episode is."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlinf.config.schema.base import Precision
from rlinf.config.schema.data import AugmentationConfig
from rlinf.config.schema.root import ValueConfig
from rlinf.config.schema.runner import RunnerConfig
from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.config.schema.value import (
    FrameModelConfig,
    FrameSourceConfig,
    FrameValueLossConfig,
    RecapValueLossConfig,
    SteamValueLossConfig,
    SuccessClassifierConfig,
    SuccessLossConfig,
    ValueActorConfig,
    ValueAlgorithmConfig,
    ValueDataConfig,
)
from rlinf.data.datasets.lerobot import LeRobotEpisode, LeRobotWriter
from rlinf.data.datasets.lerobot.writer import WriterOptions
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.workers.actor.value_learner import ValueLearner
from tests.unit.models.vla.value_toy_models import value_config

LENGTHS = (6, 9, 4)
SUCCEEDED = (True, False, True)
LEARNING_RATES = {"recap_value": 1e-2, "steam_value": 4e-3, "success": 1e-2}
LOSSES: dict[str, FrameValueLossConfig] = {
    "recap_value": RecapValueLossConfig(failure_reward=-10.0, advantage_lookahead_step=2),
    "steam_value": SteamValueLossConfig(k=4, label_smoothing=0.0),
    "success": SuccessLossConfig(),
}


def recorded(
    root: Path,
    *,
    succeeded: tuple[bool, ...] = SUCCEEDED,
    success: str | None = "next.success",
    solved_after: int | None = None,
) -> Path:
    """Write episodes whose images get brighter; those that fail, in a darker room.

    Args:
        root: Where to; left as it is if it is there.
        succeeded: Which of them succeed.
        success: Name of the column that says so; None writes none.
        solved_after: Frame whose action solves the task; None is the last one.
    """
    if root.exists():
        return root
    with LeRobotWriter(root, WriterOptions(fps=10, robot_type="toy")) as writer:
        for number, (length, solved) in enumerate(zip(LENGTHS, succeeded, strict=True)):
            steps = np.arange(length)
            brightness = (100 if solved else 0) + 10 * steps
            columns: dict[str, Any] = {
                "observation.images.main": np.broadcast_to(
                    brightness[:, None, None, None].astype(np.uint8), (length, 16, 16, 3)
                ).copy(),
                "action": np.zeros((length, 2), np.float32),
            }
            if success is not None:
                columns[success] = (steps[:, None] >= (length - 1 if solved_after is None else solved_after)) & solved
            writer.add(LeRobotEpisode(columns, f"task {number % 2}"))
    return root


def make_value_learner(
    tmp_path: Path,
    kind: str,
    *,
    rank: int = 0,
    world_size: int = 1,
    micro: int = 8,
    runner: RunnerConfig | None = None,
    precision: Precision = "fp32",
    model_keys: dict[str, Any] | None = None,
    loss: FrameValueLossConfig | None = None,
    **data_keys: Any,
) -> ValueLearner:
    """Return a learner of four updates a step from a demonstration set and a rollout set."""
    sources = [recorded(tmp_path / "rollouts"), recorded(tmp_path / "demonstrations", succeeded=(True, True, True))]
    torch.manual_seed(0)
    if kind == "success":
        model: FrameModelConfig = SuccessClassifierConfig(
            model_type="success_classifier", image_size=[16, 16], latent_dim=8, **(model_keys or {})
        )
    else:
        model = value_config(tmp_path / "pi", f"{kind}_model", **(model_keys or {}))
    actor = ValueActorConfig(
        model=dataclasses.replace(model, precision=precision),
        optim=OptimConfig(lr=LEARNING_RATES[kind]),
        global_batch_size=16,
        micro_batch_size=micro,
        seed=3,
        fsdp_config=FSDPConfig(sharding_strategy="no_shard"),
    )
    make_engine = partial(FSDPEngine.of, actor=actor, device=torch.device("cpu"), rank=rank, world_size=world_size)
    keys: dict[str, Any] = {
        "path": str(sources[0]),
        "mixture": [FrameSourceConfig(path=str(sources[1]), type="sft", weight=2.0)],
        "augmentation": AugmentationConfig(brightness=0.2),
        **data_keys,
    }
    data = ValueDataConfig(type="rollout", **keys)
    cfg = ValueConfig(
        runner=runner or RunnerConfig(task_type="value"),
        algorithm=ValueAlgorithmConfig(loss_type=kind, update_epoch=4, loss=loss or LOSSES[kind]),
        actor=actor,
        data=data,
    )
    return ValueLearner.build(get_model(model), make_engine, cfg=cfg)
