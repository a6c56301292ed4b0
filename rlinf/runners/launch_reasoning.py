"""From a reasoning recipe to a running system."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.prompts import PromptSet, load_tokenizer, read_prompts
from rlinf.runners.reasoning_runner import ReasoningRunner
from rlinf.runners.session import run_folder
from rlinf.scheduler import Cluster
from rlinf.utils.placement import HybridComponentPlacement
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
    train, val = _prompts(cfg)
    with Cluster(cfg.cluster.num_nodes, cfg.cluster, log_dir=str(run_folder(cfg))) as cluster:
        placement = HybridComponentPlacement(cfg, cluster)
        num_rollout, num_actor = (placement.get_world_size(component) for component in ("rollout", "actor"))
        groups = {
            "actor": TextActor.create_group(cfg, num_rollout),
            "rollout": GenerationWorker.create_group(cfg, num_actor),
            "reward": TextRewardWorker.create_group(cfg),
        }
        # All groups start at once: most of the time is spent importing torch.
        for component, group in groups.items():
            strategy = placement.get_strategy(component)
            group.launch(cluster, name=cfg.group_names[component], placement_strategy=strategy, wait=False)
        ready = {component: group.wait_ready() for component, group in groups.items()}
        runner = ReasoningRunner(
            cfg,
            actor=ready["actor"],
            rollout=ready["rollout"],
            reward=ready["reward"],
            train_prompts=train,
            val_prompts=val,
        )
        runner.session.notes.append(f"training: {train.describe()}")
        runner.session.notes += [f"evaluation on {name}: {prompts.describe()}" for name, prompts in val.items()]
        runner.init_workers()
        return runner.run()


def _prompts(cfg: ReasoningConfig) -> tuple[PromptSet, Mapping[str, PromptSet]]:
    data = cfg.data
    tokenizer = load_tokenizer(cfg.actor.model.model_path)
    train = read_prompts(data.train_data_paths, data, tokenizer, split=data.train_split)
    val = {
        name: read_prompts([path], data.for_evaluation(), tokenizer, split=data.val_split, limit=data.max_val_prompts)
        for name, path in zip(data.val_names, data.val_data_paths, strict=True)
    }
    return train, val
