"""From a reasoning recipe to a running system."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.prompts import PromptSet, load_tokenizer, read_prompts
from rlinf.runners.launch_language import data_notes, launch_groups, read_sets
from rlinf.runners.output_paths import reserve_run
from rlinf.runners.reasoning_runner import ReasoningRunner
from rlinf.runners.records import open_cluster, record_run


def launch_reasoning(cfg: ReasoningConfig) -> dict[str, float]:
    """Run a recipe of ``task_type: reasoning`` to its end; whatever happens, nothing it started is left running.

    Args:
        cfg: The validated recipe.

    Returns:
        The last step's metrics.
    """
    with ExitStack() as stack:
        cfg = reserve_run(cfg, stack)
        train, val = read_prompt_sets(cfg)
        afterwards = stack.enter_context(ExitStack())
        cluster = stack.enter_context(open_cluster(cfg))
        ready = launch_groups(cfg, cluster)
        runner = ReasoningRunner(
            cfg,
            actor=ready["actor"],
            rollout=ready["rollout"],
            reward=ready["reward"],
            inference=ready.get("inference"),
            train_prompts=train,
            val_prompts=val,
        )
        runner.logger.notes += data_notes(train, val)
        record_run(runner.logger, cluster, afterwards)
        runner.init_workers()
        return runner.run()


def read_prompt_sets(cfg: ReasoningConfig) -> tuple[PromptSet | None, Mapping[str, PromptSet]]:
    """Read what a recipe asks.

    Args:
        cfg: The validated recipe.

    Returns:
        What it trains on, None where it only evaluates; and what it evaluates on, by name.

    Raises:
        DatasetError: A data set or the model's tokenizer cannot be read, or no prompt is left.
    """
    tokenizer = load_tokenizer(cfg.actor.model.model_path)
    return read_sets(cfg, partial(read_prompts, cfg=cfg.data, tokenizer=tokenizer))
