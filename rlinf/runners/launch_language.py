"""What recipes of language models have in common on their way to a running system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from rlinf.config.schema.root import LanguageConfig
from rlinf.scheduler import Cluster, WorkerGroup
from rlinf.utils.placement import HybridComponentPlacement
from rlinf.workers.actor.actor_worker import ActorWorker
from rlinf.workers.inference.logprob_worker import LogprobWorker
from rlinf.workers.reward.reward_worker import RewardWorker
from rlinf.workers.rollout.generation_worker import GenerationWorker


class RowSet(Protocol):
    """What was read of the rows of data sets."""

    def describe(self) -> str:
        """Return what was read and left out, in words."""


RowSetT = TypeVar("RowSetT", bound=RowSet)


def launch_groups(cfg: LanguageConfig, cluster: Cluster) -> dict[str, WorkerGroup[Any]]:
    """Launch the worker groups that a recipe of a language model has sections for, and wait until they are ready.

    Args:
        cfg: The recipe.
        cluster: Where to.

    Returns:
        The groups, by component.
    """
    placement = HybridComponentPlacement(cfg, cluster)
    names, num_actors = cfg.group_names, placement.get_world_size("actor")
    receivers = {names[part]: placement.get_world_size(part) for part in ("rollout", "inference") if part in names}
    groups: dict[str, WorkerGroup[Any]] = {"actor": ActorWorker.create_group(cfg, receivers)}
    if cfg.rollout is not None:
        groups["rollout"] = GenerationWorker.create_group(cfg, num_actors)
    if "inference" in names:
        groups["inference"] = LogprobWorker.create_group(cfg, num_actors)
    if cfg.reward is not None:
        groups["reward"] = RewardWorker.create_group(cfg)
    # All groups start at once: most of the time is spent importing torch.
    for component, group in groups.items():
        strategy = placement.get_strategy(component)
        group.launch(cluster, name=names[component], placement_strategy=strategy, wait=False)
    return {component: group.wait_ready() for component, group in groups.items()}


def read_sets(cfg: LanguageConfig, read: Callable[..., RowSetT]) -> tuple[RowSetT | None, Mapping[str, RowSetT]]:
    """Read what a recipe trains and evaluates on.

    Args:
        cfg: The validated recipe.
        read: Called as ``read(paths, split=..., limit=..., is_evaluation=...)``.

    Returns:
        What it trains on, None where it only evaluates; and what it evaluates on, by name.

    Raises:
        DatasetError: From ``read``.
    """
    data, train = cfg.data, None
    if not cfg.runner.only_eval:
        train = read(data.train_data_paths, split=data.train_split, limit=None, is_evaluation=False)
    val = {
        name: read([path], split=data.val_split, limit=data.max_val_prompts, is_evaluation=True)
        for name, path in zip(data.val_names, data.val_data_paths, strict=True)
    }
    return train, val


def data_notes(train: RowSet | None, val: Mapping[str, RowSet]) -> list[str]:
    """Return what was read, a line each, for the head of a run's report."""
    notes = [] if train is None else [f"training: {train.describe()}"]
    return notes + [f"evaluation on {name}: {rows.describe()}" for name, rows in val.items()]
