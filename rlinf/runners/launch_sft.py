"""From a recipe of fine-tuning to a running system."""

from __future__ import annotations

import dataclasses
import math
from contextlib import ExitStack
from functools import partial

from rlinf.config.schema.root import SftConfig
from rlinf.data.examples import read_examples
from rlinf.data.prompts import load_tokenizer
from rlinf.runners.launch_language import data_notes, launch_groups, read_sets
from rlinf.runners.output_paths import reserve_run
from rlinf.runners.records import open_cluster, record_run
from rlinf.runners.sft_runner import SftRunner


def launch_sft(cfg: SftConfig) -> dict[str, float]:
    """Run a recipe of ``task_type: sft`` to its end; whatever happens, nothing it started is left running.

    Args:
        cfg: The validated recipe.

    Returns:
        The last step's metrics.
    """
    with ExitStack() as stack:
        cfg = reserve_run(cfg, stack)
        tokenizer = load_tokenizer(cfg.actor.model.model_path)
        read = partial(read_examples, cfg=cfg.data, tokenizer=tokenizer, asks=cfg.rollout is not None)
        train, val = read_sets(cfg, read)
        cfg = with_length(cfg, 0 if train is None else len(train.examples))
        afterwards = stack.enter_context(ExitStack())
        cluster = stack.enter_context(open_cluster(cfg))
        runner = SftRunner(cfg, launch_groups(cfg, cluster), train=train, val=val)
        runner.logger.notes += data_notes(train, val)
        record_run(runner.logger, cluster, afterwards)
        runner.init_workers()
        return runner.run()


def with_length(cfg: SftConfig, num_examples: int) -> SftConfig:
    """Return the recipe with the steps that its passes over the data take, and with the end of its learning rate.

    Args:
        cfg: The recipe.
        num_examples: Examples of one pass.
    """
    runner, optim = cfg.runner, cfg.actor.optim
    if runner.max_steps < 0:
        steps = max(math.ceil(runner.max_epochs * num_examples / cfg.samples_per_step), 1)
        cfg = dataclasses.replace(cfg, runner=dataclasses.replace(runner, max_steps=steps))
    if optim.lr_scheduler == "constant" or optim.total_training_steps is not None:
        return cfg
    end = max(cfg.runner.max_steps * cfg.algorithm.update_epoch, optim.lr_warmup_steps + 1)
    optim = dataclasses.replace(optim, total_training_steps=end)
    return dataclasses.replace(cfg, actor=dataclasses.replace(cfg.actor, optim=optim))
