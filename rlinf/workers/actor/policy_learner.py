"""On-policy learning: from a rank's trajectories to optimizer steps, independent of ranks and micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from rlinf.algorithms.advantages_and_returns import compute_advantages_and_returns
from rlinf.algorithms.aggregation import LossDenominators, compute_loss_denominators
from rlinf.algorithms.importance import mismatch_metrics
from rlinf.algorithms.levels import expand_to_level, mask_at_level, reduce_to_level
from rlinf.algorithms.losses.inputs import LossInputs
from rlinf.algorithms.minibatch import MicroBatch, SampleOwnership, plan_micro_batches, plan_minibatches
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.steps import Steps, rows_to_samples, samples_to_steps, steps_to_samples, trajectory_to_steps
from rlinf.algorithms.types import add_metrics
from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.errors import AlgorithmError, NumericalError
from rlinf.hybrid_engines.train.train_engine import Loss, MetricSums, Pass, TrainEngine
from rlinf.models.base_policy import PolicyEvaluation
from rlinf.models.policy_conformance import check_evaluation
from rlinf.workers.actor.learner import REFERENCE, EmbodiedLearner, metrics_over_ranks
from rlinf.workers.actor.policy_passes import compute_logprobs, inputs_on_device
from rlinf.workers.actor.policy_teacher import PolicyTeacher
from rlinf.workers.actor.supervised_frames import SupervisedFrames


@dataclass(frozen=True, slots=True)
class Samples:
    """A rank's whole rollout as training samples.

    Inputs, which have images, are on the host, where a micro-batch fetches its own; what is learned from them is on
    the engine's device.

    Attributes:
        forward_inputs: Tensors [N, ...], on the host.
        logprobs: float [N, C, A] under the policies that acted, as the rollout or the actor computes them.
        advantages: float [N, K].
        returns: float [N, K].
        prev_values: float [N, K], predicted during the rollout; None without a value head.
        value_mask: bool [N, K]; which of these entries count.
        action_mask: bool [N, C]; executed actions of trajectories that were not filtered out. ``mask_at_level`` makes
            the masks of log-probabilities and entropies from it.
        ids: int64 [N]; global sample numbers, on the host.
        proximal_logprobs: float [N, C, A] under the policy at the start of the update; None where the loss does not
            need them.
        ref_logprobs: float [N, C, A] under the policy that the run started from, or under ``algorithm.teacher``; None
            where the policy is compared with neither.
    """

    forward_inputs: dict[str, torch.Tensor]
    logprobs: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    prev_values: torch.Tensor | None
    value_mask: torch.Tensor
    action_mask: torch.Tensor
    ids: torch.Tensor
    proximal_logprobs: torch.Tensor | None = None
    ref_logprobs: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: rows of the samples (on the host), and at each level which entries count."""

    rows: torch.Tensor
    masks: dict[str, torch.Tensor]


class PolicyLearner(EmbodiedLearner):
    """Improves a policy on rollouts it made itself.

    With ``actor.sft_loss_weight`` each optimizer step also has the gradient of a batch of recorded frames: RL in
    simulation and fine-tuning on real data at once (https://arxiv.org/abs/2602.12628).

    Args:
        engine: Holds the policy.
        cfg: The recipe.
    """

    def __init__(self, engine: TrainEngine, *, cfg: RLinfConfig) -> None:
        super().__init__(engine, cfg=cfg)
        self.teacher: PolicyTeacher | None = None
        if self.algorithm.teacher is not None:
            assert isinstance(cfg, EmbodiedConfig)
            self.teacher = PolicyTeacher.beside(engine, cfg)
        elif self.algorithm.needs_reference:
            engine.remember(REFERENCE)
        self.samples: Samples | None = None
        self.ownership: SampleOwnership | None = None
        self.frames = self._open_frames()

    def compute_advantages(self, batch: Trajectory) -> dict[str, float]:
        """See ``Learner``: also lays the trajectories out as samples."""
        trajectory = batch.sorted()
        inputs = {name: rows_to_samples(rows) for name, rows in trajectory.forward_inputs.items()}
        logprobs, mismatch = self._old_logprobs(trajectory, inputs)
        reference = self._reference_logprobs(inputs) if self.algorithm.needs_reference else None
        in_time = self._in_time(trajectory, logprobs, reference)
        computed, metrics = compute_advantages_and_returns(self.algorithm.adv_type, in_time, self.algorithm.advantage)
        if not torch.isfinite(computed.advantages[computed.loss_mask]).all():
            raise NumericalError(
                "Advantages are not finite: the environments returned a reward, or the policy a value, that is NaN or "
                "infinite. Look at env/reward and at the observations."
            )

        def column(per_step: torch.Tensor) -> torch.Tensor:
            return steps_to_samples(per_step, trajectory.num_steps).to(self.engine.device)

        steps = torch.arange(trajectory.num_steps)
        ids = (trajectory.env_ids.unsqueeze(1) * trajectory.num_steps + steps).flatten()
        self.samples = Samples(
            forward_inputs=inputs,
            logprobs=logprobs.to(self.engine.device),
            advantages=column(computed.advantages),
            returns=column(computed.returns),
            prev_values=None if in_time.values is None else column(in_time.values[:-1]),
            value_mask=column(computed.loss_mask),
            action_mask=self._to_samples(trajectory.executed & computed.loss_mask.any(dim=0).unsqueeze(-1)),
            ids=ids,
            ref_logprobs=reference,
        )
        self.ownership = SampleOwnership.from_ids(self.engine.all_gather(ids))
        return metrics_over_ranks(self.engine, metrics | mismatch)

    def update(self, step: int) -> dict[str, float]:
        """Make the step's optimizer updates on the prepared samples, then take them into running statistics.

        Args:
            step: Step of the run; names the shuffles.

        Returns:
            Metrics over all ranks, micro-batches and optimizer steps.

        Raises:
            AlgorithmError: ``early_stop_kl`` with a loss that reports no divergence.
            NumericalError: A gradient is not finite.
        """
        assert self.samples is not None
        assert self.ownership is not None
        samples, ownership = self.samples, self.ownership
        if self.algorithm.loss.needs_proximal_logprobs:
            size = self.actor.micro_batch_size
            proximal = compute_logprobs(self.engine, samples.forward_inputs, micro_batch_size=size)
            samples = replace(samples, proximal_logprobs=proximal)
        sums: MetricSums = {}
        steps: list[dict[str, float]] = []
        for number, minibatch in self._minibatches(step):
            plan = plan_micro_batches(
                minibatch, ownership, rank=self.engine.rank, micro_batch_size=self.actor.micro_batch_size
            )
            found = self.forward_backward(samples, plan)
            add_metrics(sums, found)
            if steps and self._is_too_far(found):
                self.engine.model.zero_grad()
                break
            if self.frames is not None:
                add_metrics(sums, self.frames.forward_backward(number, weight=self.actor.sft_loss_weight))
            steps.append(self.engine.step())
        valid = samples.action_mask.any(-1).cpu()
        self.policy.update_statistics(samples.forward_inputs, valid, self.engine.all_reduce)
        self.samples = None
        metrics = metrics_over_ranks(self.engine, sums, steps)
        return metrics if self.algorithm.early_stop_kl is None else metrics | {"optimizer_steps": float(len(steps))}

    def _minibatches(self, step: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the minibatches of a step's update epochs, each with its number in the run; see ``plan``."""
        num_epochs = self.algorithm.update_epoch
        for epoch in range(num_epochs):
            minibatches = self.plan(step=step, epoch=epoch)
            yield from enumerate(minibatches, start=((step - 1) * num_epochs + epoch) * len(minibatches))

    def _is_too_far(self, found: MetricSums) -> bool:
        """Return whether a minibatch, over all ranks, shows a policy beyond ``algorithm.early_stop_kl``.

        Raises:
            AlgorithmError: The loss does not say how far the policy is.
        """
        if self.algorithm.early_stop_kl is None:
            return False
        if "actor_approx_kl" not in found:
            raise AlgorithmError(
                f"algorithm.early_stop_kl: loss_type={self.algorithm.loss_type} reports no actor_approx_kl. Remove the "
                "key, or let the loss return that metric."
            )
        total, count = self.engine.all_reduce(found["actor_approx_kl"].to(self.engine.device)).tolist()
        return bool(total > self.algorithm.early_stop_kl * count)

    def plan(self, *, step: int, epoch: int) -> list[torch.Tensor]:
        """Return the minibatches of an update epoch: int64 [global_batch_size] of global sample numbers each."""
        assert self.ownership is not None
        size = self.actor.global_batch_size
        return plan_minibatches(self.ownership.num_samples, size, seed=self.actor.seed, step=step, epoch=epoch)

    def forward_backward(self, samples: Samples, plan: list[MicroBatch]) -> MetricSums:
        """Accumulate the gradient of one minibatch.

        Args:
            samples: This rank's samples.
            plan: This rank's micro-batches of the minibatch.

        Returns:
            This rank's metric sums.
        """
        batches = [Batch(batch.indices, self._masks(samples, batch)) for batch in plan]
        joined = _join([batch.masks for batch in batches])
        denominators = compute_loss_denominators(
            policy_mask=joined["policy"],
            entropy_mask=joined["entropy"],
            value_mask=joined["value"],
            data_parallel_size=self.engine.world_size,
            all_reduce=self.engine.all_reduce,
        )

        def loss_fn(model: nn.Module, batch: Batch) -> Loss:
            return self._loss(model, samples, batch, denominators)

        return self.engine.forward_backward(batches, Pass.whole(loss_fn))

    def _open_frames(self) -> SupervisedFrames | None:
        """Return the recorded frames that the policy is also trained on; None without co-training."""
        cfg = self.cfg
        if not self.actor.sft_loss_weight or cfg.runner.only_eval:
            return None
        assert isinstance(cfg, EmbodiedConfig)
        assert isinstance(cfg.data, LeRobotDataConfig)
        size = self.actor.sft_batch_size or self.actor.global_batch_size
        return SupervisedFrames(self.engine, cfg=cfg, data=cfg.data, batch_size=size)

    def _old_logprobs(self, trajectory: Trajectory, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, MetricSums]:
        """Return what ratios are formed to, [N, C, A] on the host, and how far the rollout's are from it."""
        rollout = rows_to_samples(trajectory.logprobs)
        if not self.algorithm.recompute_logprobs:
            return rollout, {}
        own = compute_logprobs(self.engine, inputs, micro_batch_size=self.actor.micro_batch_size).cpu()
        executed = rows_to_samples(trajectory.executed).unsqueeze(-1).expand_as(own)
        return own, mismatch_metrics(trainer_logprobs=own, engine_logprobs=rollout, loss_mask=executed)

    def _in_time(self, trajectory: Trajectory, logprobs: torch.Tensor, reference: torch.Tensor | None) -> Steps:
        """Return a trajectory as steps in time; for distillation with the divergence from the teacher."""
        in_time = trajectory_to_steps(
            trajectory,
            reward_type=self.algorithm.reward_type,
            bootstrap_type=self.algorithm.bootstrap_type,
            all_reduce=self.engine.all_reduce,
        )
        if reference is None or not self.algorithm.advantage.needs_reference:
            return in_time
        executed = rows_to_samples(trajectory.executed)
        gap = logprobs - reference.to(logprobs.device)
        kl = reduce_to_level(gap, executed, self.algorithm.reward_type)
        return replace(in_time, kl=samples_to_steps(kl, trajectory.num_steps))

    def _reference_logprobs(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return log-probabilities [N, C, A] under the teacher, or the policy that the run started from."""
        size = self.actor.micro_batch_size
        if self.teacher is not None:
            return self.teacher.logprobs(inputs, micro_batch_size=size)
        with self.engine.weights_of(REFERENCE):
            return compute_logprobs(self.engine, inputs, micro_batch_size=size)

    def _advantages(self, samples: Samples, rows: torch.Tensor, executed: torch.Tensor, level: str) -> torch.Tensor:
        """Return the advantages of some samples at a level: those of a teacher are of tokens, others of steps."""
        old_logprobs = samples.logprobs[rows]
        if samples.ref_logprobs is not None and self.algorithm.advantage.needs_reference:
            return reduce_to_level(samples.ref_logprobs[rows] - old_logprobs, executed, level)
        num_actions, action_dim = old_logprobs.shape[1:]
        return expand_to_level(samples.advantages[rows], level, num_actions=num_actions, action_dim=action_dim)

    def _loss(
        self, model: nn.Module, samples: Samples, batch: Batch, denominators: LossDenominators
    ) -> tuple[torch.Tensor, MetricSums]:
        rows, masks = batch.rows, batch.masks
        inputs = inputs_on_device(samples.forward_inputs, rows, self.engine.device)
        executed = samples.action_mask[rows]
        old_logprobs, proximal, reference = samples.logprobs[rows], samples.proximal_logprobs, samples.ref_logprobs
        level, entropy_level = self.algorithm.logprob_type, self.algorithm.entropy_type
        evaluation: PolicyEvaluation = model(forward_inputs=inputs)
        prev_values = None if samples.prev_values is None else samples.prev_values[rows]
        check_evaluation(evaluation, logprobs=old_logprobs, values=prev_values)
        loss_inputs = LossInputs(
            logprobs=reduce_to_level(evaluation.logprobs, executed, level),
            old_logprobs=reduce_to_level(old_logprobs, executed, level),
            proximal_logprobs=None if proximal is None else reduce_to_level(proximal[rows], executed, level),
            advantages=self._advantages(samples, rows, executed, level),
            loss_mask=masks["policy"],
            entropy=reduce_to_level(evaluation.entropy, executed, entropy_level),
            entropy_mask=masks["entropy"],
            values=evaluation.values,
            prev_values=prev_values,
            returns=samples.returns[rows],
            value_mask=masks["value"],
            ref_logprobs=None if reference is None else reduce_to_level(reference[rows], executed, level),
            denominators=denominators,
        )
        return policy_loss(self.algorithm.loss_type, loss_inputs, self.algorithm.loss)

    def _masks(self, samples: Samples, batch: MicroBatch) -> dict[str, torch.Tensor]:
        executed = batch.masked(samples.action_mask)
        action_dim = samples.logprobs.shape[-1]
        return {
            "policy": mask_at_level(executed, self.algorithm.logprob_type, action_dim=action_dim),
            "entropy": mask_at_level(executed, self.algorithm.entropy_type, action_dim=action_dim),
            "value": batch.masked(samples.value_mask),
        }

    def _to_samples(self, rows: torch.Tensor) -> torch.Tensor:
        return rows_to_samples(rows).to(self.engine.device)


def _join(parts: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
