"""The phases of supervised fine-tuning: the actor trains on sampled examples; evaluations measure loss and accuracy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from rlinf.config.schema.root import SftConfig
from rlinf.data.datasets.examples import Example, ExampleSet, read_examples
from rlinf.data.datasets.prompts import PromptSampler, load_tokenizer
from rlinf.errors import WorkerDiedError
from rlinf.runners.language_runner import LanguageRunner, image_processor, read_sets
from rlinf.runners.step_runner import Metrics
from rlinf.scheduler import WorkerGroup


class SftRunner(LanguageRunner[Example]):
    """Drives the actor through a recipe of ``task_type: sft``, and engines and rewards through its evaluations.

    Args:
        cfg: The recipe; ``runner.max_steps`` says how long it is.
        train: What is trained on; None where the run only evaluates.
        val: What evaluations measure, by name.
        **groups: ``actor``; ``rollout`` and ``reward`` where the recipe has these sections.
    """

    def __init__(
        self,
        cfg: SftConfig,
        *,
        train: ExampleSet | None,
        val: Mapping[str, ExampleSet],
        **groups: WorkerGroup[Any],
    ) -> None:
        examples = () if train is None else train.examples
        sampler = PromptSampler(examples, shuffle=cfg.data.shuffle, seed=cfg.data.seed)
        super().__init__(cfg, groups, sampler=sampler, position_file="examples.json", train=train, val=val)
        self.cfg, self.val, self.num_examples = cfg, val, len(examples)
        self.batch: list[Example] = []
        self.batch_step: int | None = None
        self.is_rollout_awake = True

    def generate_rollouts(self) -> Metrics:
        """Sample the examples of a step: what is imitated need not be generated."""
        self._let_rollout_sleep()
        self.logger.phase("data")
        if self.batch_step != self.step:
            self.batch = [self.sampler.sample()[1] for _ in range(self.cfg.samples_per_step)]
            self.batch_step = self.step
        tokens = sum(example.num_learned for example in self.batch)
        return {"train/tokens": float(tokens), "train/epoch": self.sampler.position / self.num_examples}

    def compute_advantages(self) -> Metrics:
        """Send the examples to the actor; they have no advantages."""
        self.groups["actor"].compute_advantages(self.batch, dump=self.dump_folder()).wait()
        return {}

    def sync_weights(self) -> None:
        """See ``StepRunner``: engines need weights for evaluations only."""
        if "rollout" in self.groups and self.logger.is_evaluation_due(self.step):
            super().sync_weights()
            self.is_rollout_awake = True

    def evaluate(self) -> Metrics:
        """Return loss and token accuracy on held-out examples, and the shares of correct responses."""
        self.logger.phase("evaluation")
        metrics = self._measure()
        if self.pool is None:
            return metrics
        return metrics | self.evaluate_prompts({name: examples.prompts for name, examples in self.val.items()})

    def _measure(self) -> Metrics:
        """Return loss and token accuracy over all tokens and, if there are several sets of them, over each."""
        results = {name: self.groups["actor"].evaluate(part.examples) for name, part in self.val.items()}
        found = {name: dict(result.wait()[0]) for name, result in results.items()}
        shares = {name: part.num_learned for name, part in self.val.items()}
        total = sum(shares.values())
        names = next(iter(found.values()))
        metrics = {
            f"eval/{metric}": math.fsum(found[name][metric] * share for name, share in shares.items()) / total
            for metric in names
        }
        if len(found) > 1:
            metrics |= {f"eval/{name}/{metric}": value for name in found for metric, value in found[name].items()}
        return metrics

    def throughput(self, step_seconds: float) -> Metrics:
        """See ``StepRunner``: samples and tokens, prompts included."""
        tokens = sum(len(example.prompt_ids) + len(example.answer_ids) for example in self.batch)
        return {
            "time/samples_per_second": len(self.batch) / step_seconds,
            "time/tokens_per_second": tokens / step_seconds,
        }

    def num_unconsumed(self) -> int:
        """See ``LanguageRunner``: the examples of a step that an interrupt has ended before it was made."""
        return self.cfg.samples_per_step if self.batch_step == self.step else 0

    def reset_batch(self) -> None:
        """See ``LanguageRunner``."""
        self.batch_step = None

    def recover(self, death: WorkerDiedError) -> bool:
        """See ``LanguageRunner``."""
        self.is_rollout_awake = True
        return super().recover(death)

    def _let_rollout_sleep(self) -> None:
        """Give back the engines' memory until the next evaluation."""
        if self.cfg.rollout is not None and self.cfg.rollout.enable_offload and self.is_rollout_awake:
            self.groups["rollout"].sleep().wait()
            self.is_rollout_awake = False


def read_example_sets(cfg: SftConfig, _: ExitStack) -> tuple[SftConfig, dict[str, Any]]:
    """Read the examples of a recipe of fine-tuning; see ``TaskType.data``.

    Args:
        cfg: The validated recipe.

    Returns:
        The recipe, with its length in steps; and arguments of ``SftRunner``.

    Raises:
        DatasetError: A data set or the model's tokenizer cannot be read, or no example is left.
    """
    tokenizer = load_tokenizer(cfg.actor.model.model_path)
    read = partial(
        read_examples,
        cfg=cfg.data,
        tokenizer=tokenizer,
        with_prompts=cfg.rollout is not None,
        processor=image_processor(cfg),
    )
    train, val = read_sets(cfg, read)
    return with_length(cfg, 0 if train is None else len(train.examples)), {"train": train, "val": val}


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
