"""A value model of its own: predicts the values of responses' tokens, and learns their returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist
from torch import nn

from rlinf.algorithms.losses.inputs import LossInputs
from rlinf.algorithms.losses.objective import value_objective
from rlinf.algorithms.types import Ragged
from rlinf.config.schema.root import ReasoningConfig
from rlinf.data.messages.responses import ResponseBatch
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.train_engine import Loss, MetricSums, Pass, TrainEngine
from rlinf.models import get_model
from rlinf.models.language.causal_lm import CausalLM
from rlinf.models.language.language_model import TokenEvaluation
from rlinf.workers.actor.learner import metrics_over_ranks
from rlinf.workers.actor.logprobs import MicroBatchPlanner, compute_logprobs
from rlinf.workers.actor.text_samples import TextBatch, TextSamples, evaluate_tokens, text_denominators

CRITIC_FOLDER = "critic"
"""Below the actor's checkpoint."""


class TextCritic:
    """Predicts and learns values; all ranks call every method together.

    Every rank holds all responses of a step, so the critic may spread its model over the ranks in another way than the
    policy's engine does.

    Args:
        engine: Holds the value model.
        cfg: The recipe; ``critic.use_critic_model`` is true.
    """

    def __init__(self, engine: TrainEngine, *, cfg: ReasoningConfig) -> None:
        self.engine, self.cfg = engine, cfg
        self.planner = MicroBatchPlanner.of(
            engine,
            cfg.runner,
            max_tokens=cfg.runner.max_tokens_per_mbs,
            max_samples=cfg.actor.micro_batch_size,
            whole_episodes=cfg.algorithm.loss.needs_whole_sequences,
        )

    @classmethod
    def beside(cls, policy: TrainEngine, cfg: ReasoningConfig) -> TextCritic:
        """Build the critic on the ranks of a policy's engine.

        Args:
            policy: Has joined the process group.
            cfg: The recipe.
        """
        section = cfg.critic
        chosen = replace(section.model or cfg.actor.model, add_value_head=True)
        model = get_model(chosen, on_meta=True)
        assert isinstance(model, CausalLM)
        model.predict_values_only()
        engine = FSDPEngine(
            model,
            optim=section.optim,
            fsdp=section.fsdp_config,
            precision=chosen.precision,
            device=policy.device,
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
        )
        if section.enable_offload:
            engine.offload()
        return cls(engine, cfg=cfg)

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Bring the model to its device; take it back to the host where the recipe says so."""
        self.engine.onload()
        yield
        if self.cfg.critic.enable_offload:
            self.engine.offload()

    def values(self, batch: ResponseBatch) -> Ragged:
        """Return float32 [L] values of each response's tokens, on every rank."""
        with self.on_device():
            found = compute_logprobs(batch, planner=self.planner, algorithm=self.cfg.algorithm).values
        assert found is not None
        return found

    def learn(self, minibatch: TextSamples) -> dict[str, float]:
        """Make one optimizer step towards the returns of a minibatch; called ``on_device``.

        Args:
            minibatch: Samples of all ranks, with ``returns`` and ``prev_values``.

        Returns:
            ``critic_grad_norm``, ``critic_lr`` and the metrics of the value loss, over all ranks.
        """
        sums = self._forward_backward(minibatch)
        step = {f"critic_{name}": value for name, value in self.engine.step().items()}
        return metrics_over_ranks(self.engine, sums) | step

    def save(self, path: Path) -> None:
        """Write the model and its optimizer below the actor's checkpoint."""
        with self.on_device():
            self.engine.save(path / CRITIC_FOLDER)

    def load(self, path: Path) -> None:
        """Read what ``save`` wrote, under any number of ranks."""
        with self.on_device():
            self.engine.load(path / CRITIC_FOLDER)

    def _forward_backward(self, minibatch: TextSamples) -> MetricSums:
        section, engine, algorithm = self.cfg.critic, self.engine, self.cfg.algorithm
        batches = self.planner.pack(minibatch, self.planner.plan(minibatch))
        denominators = text_denominators(
            batches,
            max_tokens=self.cfg.max_own_tokens,
            data_parallel_size=engine.world_size,
            all_reduce=engine.all_reduce,
        )

        def call(model: nn.Module, batch: TextBatch) -> TokenEvaluation:
            return evaluate_tokens(model, batch, algorithm=algorithm)

        def use(result: TokenEvaluation, batch: TextBatch) -> Loss:
            inputs = LossInputs(
                loss_mask=batch.tokens["loss_mask"],
                denominators=denominators,
                values=result.values,
                prev_values=batch.tokens["prev_values"],
                returns=batch.tokens["returns"],
            )
            return value_objective(inputs, value_clip=section.value_clip, huber_delta=section.huber_delta)

        return engine.forward_backward(batches, Pass(call, use))
