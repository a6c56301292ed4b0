"""From a reasoning recipe to a running system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf.config.schema.root import LanguageConfig, ReasoningConfig
from rlinf.data.prompts import PromptSet, load_tokenizer, read_prompts
from rlinf.runners.reasoning_runner import ReasoningRunner
from rlinf.runners.session import run_folder
from rlinf.scheduler import Cluster, WorkerGroup
from rlinf.utils.placement import HybridComponentPlacement
from rlinf.workers.actor.language_actor import LanguageActor
from rlinf.workers.actor.text_actor import TextActor
from rlinf.workers.reward.text_reward_worker import TextRewardWorker
from rlinf.workers.rollout.generation_worker import GenerationWorker


def launch_reasoning(cfg: ReasoningConfig) -> dict[str, float]:
    """Run a recipe of ``task_type: reasoning`` to its end; whatever happens, nothing it started is left running.

    Args:
        cfg: The validated recipe.

    Returns:
        The last step's metrics.
    """
    train, val = read_prompt_sets(cfg)
    with Cluster(cfg.cluster.num_nodes, cfg.cluster, log_dir=str(run_folder(cfg))) as cluster:
        ready = launch_groups(cfg, cluster, TextActor)
        runner = ReasoningRunner(
            cfg,
            actor=ready["actor"],
            rollout=ready["rollout"],
            reward=ready["reward"],
            train_prompts=train,
            val_prompts=val,
        )
        if train is not None:
            runner.session.notes.append(f"training: {train.describe()}")
        runner.session.notes += [f"evaluation on {name}: {prompts.describe()}" for name, prompts in val.items()]
        runner.init_workers()
        return runner.run()


def launch_groups(
    cfg: LanguageConfig, cluster: Cluster, actor: type[LanguageActor[Any]]
) -> dict[str, WorkerGroup[Any]]:
    """Launch the worker groups that a recipe of a language model has sections for, and wait until they are ready.

    Args:
        cfg: The recipe.
        cluster: Where to.
        actor: Class of the actor.

    Returns:
        The groups, by component.
    """
    placement = HybridComponentPlacement(cfg, cluster)
    num_rollout = 0 if cfg.rollout is None else placement.get_world_size("rollout")
    groups: dict[str, WorkerGroup[Any]] = {"actor": actor.create_group(cfg, num_rollout)}
    if cfg.rollout is not None:
        groups["rollout"] = GenerationWorker.create_group(cfg, placement.get_world_size("actor"))
    if cfg.reward is not None:
        groups["reward"] = TextRewardWorker.create_group(cfg)
    # All groups start at once: most of the time is spent importing torch.
    for component, group in groups.items():
        strategy = placement.get_strategy(component)
        group.launch(cluster, name=cfg.group_names[component], placement_strategy=strategy, wait=False)
    return {component: group.wait_ready() for component, group in groups.items()}


def read_prompt_sets(cfg: ReasoningConfig) -> tuple[PromptSet | None, Mapping[str, PromptSet]]:
    """Read what a recipe asks.

    Args:
        cfg: The validated recipe.

    Returns:
        What it trains on, None where it only evaluates; and what it evaluates on, by name.

    Raises:
        DatasetError: A data set or the model's tokenizer cannot be read, or no prompt is left.
    """
    data, tokenizer = cfg.data, load_tokenizer(cfg.actor.model.model_path)
    train = None
    if not cfg.runner.only_eval:
        train = read_prompts(data.train_data_paths, data, tokenizer, split=data.train_split)
    val = {
        name: read_prompts(
            [path], data, tokenizer, split=data.val_split, limit=data.max_val_prompts, is_evaluation=True
        )
        for name, path in zip(data.val_names, data.val_data_paths, strict=True)
    }
    return train, val
