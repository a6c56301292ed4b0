"""What vision-language-action policies with flows have in common: from noise to chunks of actions, and back for losses.

Published time runs from 1 (noise) to 0 (actions); ``chain`` holds the points that a flow passed in that order.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.config.schema.vla import FlowVLAConfig
from rlinf.data.messages.embodied import PREVIOUS_ACTIONS, Observation, PolicyOutput
from rlinf.errors import ConfigError
from rlinf.models.base_policy import Mode, PolicyEvaluation
from rlinf.models.control.heads import gaussian_entropy, gaussian_logprob, run_head
from rlinf.models.draws import normal, uniform
from rlinf.models.lora import merged
from rlinf.models.trainable import WeightForm
from rlinf.models.velocity_policy import VelocityEvaluation, VelocityPolicy
from rlinf.models.vla.flow_inputs import FlowInputs
from rlinf.models.vla.guidance import led, requesting
from rlinf.models.vla.layer_stack import KeysValues
from rlinf.models.vla.published_folder import PublishedWeights, StartingWeights, initial_head, read_config
from rlinf.models.vla.real_time import PlannedBefore, guided_velocity, prefix_weights
from rlinf.models.vla.rl_token import RLT_MODULE, Reconstruction, initial_token, token_module
from rlinf.models.vla.step_noise import LAST_NOISE_LAYER, STEP_NOISES, LearnedStepNoise
from rlinf.models.vla.value_heads import value_head

CHAIN = "chain"
"""Where the points of a flow stand in ``forward_inputs``: float32 [N, K + 1, H, D]; with ``noise_steps: one`` those at
both ends of the noisy step alone, [N, 2, H, D]."""
STEP_IDS = "step_ids"
"""Where the number of the noisy step stands in ``forward_inputs`` with ``noise_steps: one``: int64 [N]."""
ACTION = "action"
"""Where recorded actions stand in ``forward_inputs``: float32 [N, H, A], normalised."""
_TIME_CONCENTRATION = 1.5
"""Times of training have the density of Beta(1.5, 1), ..."""
_LAST_TIME = 0.001
"""... and end just before the actions."""
_PERIODS = (4e-3, 4.0)
"""Shortest and longest period of the embedding of time, which lies between 0 and 1."""


class PublishedShape(Protocol):
    """What is read from a folder's ``config.json``."""

    @property
    def action_dim(self) -> int:
        """Width of padded actions (``D``)."""

    @property
    def horizon(self) -> int:
        """Actions that are predicted (``H``) unless ``actor.model.horizon`` says otherwise."""


Shape = TypeVar("Shape", bound=PublishedShape)


@dataclass(frozen=True, slots=True)
class Prefix:
    """What the expert attends to.

    Attributes:
        keys_values: Of each layer.
        there: bool [N, P]; false for padding.
        output: [N, P, W]; of the language model.
    """

    keys_values: list[KeysValues]
    there: torch.Tensor
    output: torch.Tensor

    def mean(self) -> torch.Tensor:
        """Return the mean output [N, W] over what is there."""
        there = self.there.unsqueeze(-1)
        return (self.output * there).sum(1) / there.sum(1)


class FlowVLAPolicy(VelocityPolicy):
    """A flow policy of which the first ``C`` of ``H`` actions, and ``A`` of ``D`` numbers, are executed.

    Log-probabilities are those of the noisy steps: a product of Gaussians over what is executed, summed over the steps
    (``chain_reduction``), or of the one step that ``noise_steps: one`` has chosen for a sample. Everything else follows
    the velocity, so that nothing random is left out.

    Values read the mean of what the expert attends to, or of the expert's output where flows start, at the mean of
    their starts: what noise does to a flow has no part in either.

    Args:
        cfg: The model's keys.
        inputs: Makes records of observations.
        horizon: Actions that are predicted (``H``).
        padded_dim: Width of padded actions and states (``D``).
        width: Of the prefix's mean (``W``).
        expert_width: Of the expert's output (``E``).
        num_values: Values per observation (``V``).
        output_width: Of the prefix's outputs; None is that of its mean.
    """

    def __init__(
        self,
        cfg: FlowVLAConfig,
        inputs: FlowInputs,
        *,
        horizon: int,
        padded_dim: int,
        width: int,
        expert_width: int,
        num_values: int,
        output_width: int | None = None,
    ) -> None:
        super().__init__()
        self.cfg, self.inputs, self.padded_dim, self.feature_width = cfg, inputs, padded_dim, width
        self.horizon = horizon
        self.noise = STEP_NOISES[cfg.noise_method](cfg, expert_width) if cfg.has_step_noise else None
        value_width = expert_width if cfg.value_reads_expert else width
        self.value_head = value_head(cfg, value_width, num_values) if cfg.add_value_head else None
        self.rlt_module = token_module(cfg, output_width or width)

    @abc.abstractmethod
    def prefix(self, record: dict[str, torch.Tensor]) -> Prefix:
        """Return what the expert attends to; see ``FlowInputs.record``."""

    @abc.abstractmethod
    def expert_output(self, prefix: Prefix, state: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return what velocities are read from, [N, J, H, E]; see ``velocity``."""

    @abc.abstractmethod
    def velocity_of(self, output: torch.Tensor) -> torch.Tensor:
        """Return the published velocity, float32 [N, J, H, D], of what ``expert_output`` has returned."""

    def velocity(self, prefix: Prefix, state: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the published velocity at ``J`` points, which stand side by side and do not see each other.

        Args:
            prefix: What they all attend to.
            state: [N, D], padded.
            x: float32 [N, J, H, D].
            time: float32 [J], or [N, J] where samples have their own; 1 is noise.

        Returns:
            float32 [N, J, H, D].
        """
        return self.velocity_of(self.expert_output(prefix, state, x, time))

    @property
    @abc.abstractmethod
    def word_embeddings(self) -> nn.Module:
        """The embeddings of the language model's words."""

    def shard_units(self) -> list[nn.Module]:
        """See ``TrainableModel``: layers of all stacks, word embeddings, the heads of values and of learned noise."""
        heads: list[nn.Module] = [self.value_head] if self.value_head is not None else []
        heads += self.rlt_module.layers() if self.rlt_module is not None else []
        if isinstance(self.noise, LearnedStepNoise):
            heads.append(self.noise.head)
        return [*self.recompute_units(), self.word_embeddings, *heads]

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``; all noisy steps of a flow are evaluated in one pass."""
        assert self.noise is not None
        chain, prefix = forward_inputs[CHAIN], self.prefix(forward_inputs)
        begins, steps = chain[:, :-1], self._noisy_steps(forward_inputs)
        times = self._times(chain.device)[steps]
        output, values = self._outputs_and_values(prefix, forward_inputs["state"], begins, times)
        log_stds = self.noise.log_stds(output, steps)
        means = self.executed(self._drifted(begins, self.velocity_of(output), steps))
        logprobs = gaussian_logprob(self.executed(chain[:, 1:]), means, log_stds)
        return PolicyEvaluation(
            logprobs=self._reduced(logprobs.sum(1)),
            entropy=self._reduced(gaussian_entropy(log_stds).sum(1)),
            values=values,
        )

    def velocity_forward(
        self, forward_inputs: dict[str, torch.Tensor], noise: torch.Tensor, time: torch.Tensor
    ) -> VelocityEvaluation:
        """See ``VelocityPolicy``, whose time runs the other way; what is not executed keeps the start that it had."""
        chain, prefix = forward_inputs[CHAIN], self.prefix(forward_inputs)
        start = chain[:, :1].clone()
        self.executed(start)[:, 0] = noise
        point = torch.lerp(start, chain[:, -1:], time.view(-1, 1, 1, 1))
        output, values = self._outputs_and_values(prefix, forward_inputs["state"], point, (1.0 - time).unsqueeze(1))
        velocity = self.velocity_of(output)
        target = self.executed(chain[:, -1:] - start)[:, 0]
        return VelocityEvaluation(
            velocity=-self.executed(velocity)[:, 0],
            target=target,
            saturated=torch.zeros_like(target, dtype=torch.bool),
            values=values,
        )

    @property
    def num_supervised_actions(self) -> int:
        """See ``BasePolicy``."""
        return self.horizon

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``; actions are normalised."""
        return {**self.inputs.record(obs, self.device), ACTION: self.inputs.of_actions(actions.to(self.device), obs)}

    def actions_beyond(self, obs: Observation, actions: torch.Tensor) -> list[float]:
        """See ``BasePolicy``."""
        return self.inputs.beyond(actions, obs)

    def supervised_draws(self, count: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``: noise [count, H, D], and times from a Beta distribution that prefers noise (pi-0)."""
        share = torch.rand(count, generator=generator).pow(1.0 / _TIME_CONCENTRATION)
        noise = torch.randn(count, self.horizon, self.padded_dim, generator=generator)
        return {"noise": noise, "time": _LAST_TIME + (1.0 - _LAST_TIME) * share}

    def supervised_forward(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``BasePolicy``: squared errors of the velocity between noise and actions (flow matching)."""
        return self._velocity_errors(self.prefix(forward_inputs), forward_inputs)

    def reconstruction_forward(self, forward_inputs: dict[str, torch.Tensor]) -> Reconstruction:
        """Return the errors of the token's reconstruction and, where the flow learns too, its own; see ``use_rlt``.

        Args:
            forward_inputs: As for ``supervised_forward``.
        """
        assert self.rlt_module is not None
        learns = self.cfg.rlt.vla_loss_weight > 0
        with torch.set_grad_enabled(learns and torch.is_grad_enabled()):
            prefix = self.prefix(forward_inputs)
        losses = self._velocity_errors(prefix, forward_inputs) if learns else None
        return Reconstruction(self.rlt_module.errors(prefix.output, prefix.there), losses)

    def features(self, prefix: Prefix) -> torch.Tensor:
        """Return what small policies see, float32: a prefix's token [N, E] with ``use_rlt``, else its mean [N, W]."""
        if self.rlt_module is None:
            return prefix.mean().float()
        return self.rlt_module.encode(prefix.output, prefix.there).float()

    def _velocity_errors(self, prefix: Prefix, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return squared errors of the velocity between noise and actions, float32 [N, H, A]."""
        actions, noise, time = (forward_inputs[name] for name in (ACTION, "noise", "time"))
        padded = F.pad(actions, (0, self.padded_dim - actions.shape[-1]))
        late = time[:, None, None]
        point = late * noise + (1.0 - late) * padded
        velocity = self.velocity(prefix, forward_inputs["state"], point.unsqueeze(1), time.unsqueeze(1))[:, 0]
        return (noise - padded - velocity).square()[..., : self.cfg.action_dim]

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        record, prefix = self.observe(obs)
        start = self._start(len(record["state"]), mode, generator)
        has_noise = mode == "train" and self.noise is not None
        ids = self._draw_steps(len(start), generator) if has_noise and self.cfg.noise_steps == "one" else None
        used = generator if has_noise else None
        chain, logprobs = self.sample(prefix, record["state"], start, used, step_ids=ids)
        kept = {CHAIN: chain} if ids is None else _ends_of_steps(chain, ids)
        actions = self.executed(chain[:, -1:])[:, 0]
        values = self._values(prefix, record["state"])
        output = PolicyOutput(logprobs=logprobs, values=values, forward_inputs={**record, **kept})
        return self.inputs.to_actions(actions, obs), output

    @torch.no_grad()
    def plan_action_batch(self, obs: Observation, *, generator: torch.Generator | None = None) -> torch.Tensor:
        """See ``BasePolicy``."""
        record, prefix = self.observe(obs)
        start = self._start(len(record["state"]), "eval", generator)
        chain, _ = self.sample(prefix, record["state"], start, None, before=self._planned_before(obs))
        return self.inputs.to_actions(chain[:, -1, :, : self.cfg.action_dim], obs)

    @torch.no_grad()
    def actions_from(self, obs: Observation, start: torch.Tensor) -> torch.Tensor:
        """Return the actions that the flow carries noise to without adding more, float32 [B, C, A] as executed.

        Args:
            obs: ``B`` observations.
            start: float32 [B, H, D].
        """
        record, prefix = self.observe(obs)
        chain, _ = self.sample(prefix, record["state"], start, None)
        return self.inputs.to_actions(self.executed(chain[:, -1:])[:, 0], obs)

    def observe(self, obs: Observation) -> tuple[dict[str, torch.Tensor], Prefix]:
        """Return what ``N`` observations ask for, and the prefix to act by, see ``sample``.

        The prefix is of ``N`` rows or, where guidance compares, of twice as many: first what is requested.
        """
        guidance = self.cfg.guidance
        record = self.inputs.record(requesting(obs, guidance), self.device)
        if not self.compares:
            return record, self.prefix(record)
        plain = self.inputs.record(obs, self.device)
        return record, self.prefix({name: torch.cat([tensor, plain[name]]) for name, tensor in record.items()})

    @property
    def compares(self) -> bool:
        """Whether acting compares velocities with and without the word for what is requested."""
        return self.cfg.guidance.type != "none" and self.cfg.guidance.scale != 1.0

    def _led(
        self, prefix: Prefix, state: torch.Tensor, x: torch.Tensor, time: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the expert's output and the velocity to act by, of ``N`` samples; see ``velocity`` and ``observe``."""
        if not self.compares:
            output = self.expert_output(prefix, state, x, time)
            return output, self.velocity_of(output)
        output = self.expert_output(prefix, torch.cat([state, state]), torch.cat([x, x]), time)
        return output[: len(x)], led(self.velocity_of(output), self.cfg.guidance.scale)

    def _continued_velocity(
        self, prefix: Prefix, state: torch.Tensor, x: torch.Tensor, time: torch.Tensor, before: PlannedBefore
    ) -> torch.Tensor:
        """Return the velocity to act by where actions were planned before; see ``_led``, with one point."""

        def velocity(point: torch.Tensor) -> torch.Tensor:
            return self._led(prefix, state, point.unsqueeze(1), time)[1][:, 0]

        return guided_velocity(velocity, x[:, 0], float(time), before).unsqueeze(1)

    def _planned_before(self, obs: Observation) -> PlannedBefore | None:
        cfg, planned = self.cfg.real_time_chunking, obs.get(PREVIOUS_ACTIONS)
        if planned is None or not cfg.max_guidance_weight:
            return None
        actions = torch.zeros(len(planned), self.horizon, self.padded_dim, device=self.device)
        size = self.cfg.action_dim
        actions[:, : planned.shape[1], :size] = self.inputs.of_actions(planned.to(self.device), obs)
        weights = torch.zeros_like(actions[0])
        weights[:, :size] = prefix_weights(
            cfg, horizon=self.horizon, num_executed=self.cfg.num_action_chunks
        ).unsqueeze(1)
        return PlannedBefore(actions, weights, cfg.max_guidance_weight)

    def sample(
        self,
        prefix: Prefix,
        state: torch.Tensor,
        start: torch.Tensor,
        generator: torch.Generator | None,
        *,
        step_ids: torch.Tensor | None = None,
        before: PlannedBefore | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Carry noise to actions.

        Args:
            prefix: What the expert attends to; see ``observe``.
            state: [N, D].
            start: float32 [N, H, D]; where flows start.
            generator: Of the steps' noise; None has none.
            step_ids: int64 [N]; the step of each sample that has noise. None is all steps.
            before: What leads the flow; only without noise.

        Returns:
            The points passed, [N, K + 1, H, D], and log-probabilities [N, C, A], 0 without noise.
        """
        times, chain = self._times(start.device), [start]
        logprobs = torch.zeros_like(self.executed(start.unsqueeze(1))[:, 0])
        for step in range(self.cfg.num_steps):
            begin, steps = chain[-1].unsqueeze(1), torch.tensor([step], device=start.device)
            if generator is None:
                if before is None:
                    _, velocity = self._led(prefix, state, begin, times[steps])
                else:
                    velocity = self._continued_velocity(prefix, state, begin, times[steps], before)
                chain.append((begin - velocity / self.cfg.num_steps)[:, 0])
                continue
            assert self.noise is not None
            output, velocity = self._led(prefix, state, begin, times[steps])
            log_std = self.noise.log_stds(output, steps)[:, 0]
            end = self._drifted(begin, velocity, steps)[:, 0]
            mean = self.executed(end.unsqueeze(1))[:, 0].clone()
            reached = mean + normal(logprobs.shape, generator=generator, device=start.device) * log_std.exp()
            self.executed(end.unsqueeze(1))[:, 0] = reached
            logprob = gaussian_logprob(reached, mean, log_std)
            if step_ids is not None:
                is_noisy = (step_ids == step).view(-1, 1, 1)
                end = torch.where(is_noisy, end, (begin - velocity / self.cfg.num_steps)[:, 0])
                logprob = torch.where(is_noisy, logprob, 0.0)
            logprobs = logprobs + logprob
            chain.append(end)
        return torch.stack(chain, 1), self._reduced(logprobs)

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``."""
        record, prefix = self.observe(obs)
        values = self._values(prefix, record["state"])
        assert values is not None
        return values

    def export(
        self, whole: Callable[[torch.Tensor], torch.Tensor], form: WeightForm = "merged"
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``TrainableModel``; ``merged`` names are those of published folders."""
        if self.cfg.is_lora and form == "merged":
            yield from merged(self.state_dict(), self.cfg, whole)
        else:
            yield from super().export(whole, form)

    def _times(self, device: torch.device) -> torch.Tensor:
        """Return when the steps begin, float32 [K]: from 1 on.

        Rounded as the published code does, which adds the steps up: the embedding's shortest period is that short.
        """
        step, times = torch.tensor(-1.0 / self.cfg.num_steps), [torch.tensor(1.0)]
        for _ in range(self.cfg.num_steps - 1):
            times.append(times[-1] + step)
        return torch.stack(times).to(device)

    def _drifted(self, begins: torch.Tensor, velocity: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Return where steps end without noise [N, J, H, D]; what will have noise drifts by as much more as it takes.

        Args:
            begins: Where they begin, [N, J, H, D].
            velocity: There.
            steps: int64 [J] or [N, J]; their numbers.
        """
        assert self.noise is not None
        count = self.cfg.num_steps
        # The noise's time and velocity run from noise to actions.
        elapsed = (1.0 - self._times(begins.device))[steps].unsqueeze(-1).unsqueeze(-1)
        ends = begins - velocity / count
        drift = self.noise.drift(-self.executed(velocity), self.executed(begins), elapsed)
        drifted = self.executed(begins) + drift / count
        chunk, size = drifted.shape[2:]
        rest = torch.cat([drifted, ends[:, :, :chunk, size:]], -1)
        return torch.cat([rest, ends[:, :, chunk:]], 2)

    def executed(self, points: torch.Tensor) -> torch.Tensor:
        """Return what is executed of points [N, J, H, D]: a view [N, J, C, A]."""
        return points[:, :, : self.cfg.num_action_chunks, : self.cfg.action_dim]

    def _start(self, count: int, mode: Mode, generator: torch.Generator | None) -> torch.Tensor:
        """Return where flows start, float32 [N, H, D]."""
        shape = (count, self.horizon, self.padded_dim)
        if mode == "train":
            return normal(shape, generator=generator, device=self.device).mul_(self.cfg.start_std)
        if self.cfg.eval_start == "normal" and generator is not None:
            return normal(shape, generator=generator, device=self.device)
        return torch.zeros(shape, device=self.device)

    def _draw_steps(self, count: int, generator: torch.Generator | None) -> torch.Tensor:
        """Return the noisy step of each sample, int64 [N]."""
        num_steps = self.cfg.num_steps - self.cfg.ignore_last
        return (uniform(count, generator=generator) * num_steps).long().to(self.device)

    def _noisy_steps(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the numbers of the steps between the points of a chain, int64 [K], or [N, 1] of one each."""
        if STEP_IDS in forward_inputs:
            return forward_inputs[STEP_IDS].unsqueeze(1)
        return torch.arange(self.cfg.num_steps, device=forward_inputs[CHAIN].device)

    def _reduced(self, sums: torch.Tensor) -> torch.Tensor:
        """Return what ``chain_reduction`` makes of sums over the noisy steps."""
        return sums / (self.cfg.num_steps + 1) if self.cfg.chain_reduction == "mean" else sums

    def _outputs_and_values(
        self, prefix: Prefix, state: torch.Tensor, x: torch.Tensor, time: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the expert's output at points and the values of the observations; see ``expert_output``.

        Both come from one pass: where values read the expert, their point stands next to the others.
        """
        if self.value_head is None or not self.cfg.value_reads_expert:
            return self.expert_output(prefix, state, x, time), self._values(prefix, state)
        points = torch.cat([x, torch.zeros_like(x[:, :1])], 1)
        output = self.expert_output(prefix, state, points, torch.cat([time, torch.ones_like(time[..., :1])], -1))
        return output[:, :-1], self._value_of(output[:, -1])

    def _values(self, prefix: Prefix, state: torch.Tensor) -> torch.Tensor | None:
        """Return the values of observations, float32 [N, V]; see ``expert_output``."""
        if self.value_head is None:
            return None
        if not self.cfg.value_reads_expert:
            return self._value(prefix.mean())
        first = torch.zeros(len(state), 1, self.horizon, self.padded_dim, device=state.device)
        return self._value_of(self.expert_output(prefix, state, first, first.new_ones(1))[:, 0])

    def _value_of(self, output: torch.Tensor) -> torch.Tensor:
        """Return the values [N, V] of what the expert has made [N, H, E] of where flows start."""
        seen = output if self.cfg.value_input == "expert_mean" else output[:, : self.cfg.num_action_chunks]
        return self._value(seen.mean(1))

    def _value(self, features: torch.Tensor) -> torch.Tensor:
        assert self.value_head is not None
        return run_head(self.value_head, features.detach() if self.cfg.value_detach else features)


def _ends_of_steps(chain: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what is kept of chains [N, K + 1, H, D] of which one step each, int64 [N], has noise."""
    ends = ids.unsqueeze(1) + torch.arange(2, device=ids.device)
    return {CHAIN: chain[torch.arange(len(chain), device=ids.device).unsqueeze(1), ends], STEP_IDS: ids}


def time_embedding(time: torch.Tensor, width: int) -> torch.Tensor:
    """Return sines and cosines of time, float32 [..., width], computed in float64.

    Args:
        time: float32 [...].
        width: Even.
    """
    low, high = _PERIODS
    fractions = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64, device=time.device)
    angles = time.double().unsqueeze(-1) * 2.0 * math.pi / (low * (high / low) ** fractions)
    return torch.cat([angles.sin(), angles.cos()], -1).float()


def suffix_mask(there: torch.Tensor, num_points: int, own: torch.Tensor) -> torch.Tensor:
    """Return what tokens of the expert attend to, bool [N, 1, J * block, P + J * block].

    Each sees the prefix and, as ``own`` says, the block that it stands in.

    Args:
        there: bool [N, P]; false for padding of the prefix.
        num_points: Blocks (``J``).
        own: bool [block, block]; which token of a block attends to which.
    """
    blocks = torch.kron(torch.eye(num_points, dtype=torch.bool, device=own.device), own)
    before = there[:, None, None, :].expand(-1, 1, len(blocks), -1)
    return torch.cat([before, blocks.expand(len(there), 1, -1, -1)], -1)


def read_shape(
    cfg: FlowVLAConfig,
    read: Callable[[Path, Mapping[str, Any]], Shape],
    written_by: str,
    *,
    may_lack: bool = False,
) -> tuple[Path, Shape]:
    """Return the folder of ``model_path``, and what its ``config.json`` says.

    Args:
        cfg: The ``actor.model`` section.
        read: Makes it of the folder and the content.
        written_by: What writes such folders, for the message.
        may_lack: See ``read_config``.

    Raises:
        ConfigError: The folder does not exist, is not of this model, or the model predicts less than is executed.
        MissingPackageError: transformers is not installed.
    """
    folder, shape = read_config(cfg.model_path, cfg.model_type, read, written_by, may_lack=may_lack)
    if cfg.action_dim > shape.action_dim:
        raise ConfigError(
            f"actor.model.action_dim: received {cfg.action_dim}; the model predicts {shape.action_dim} numbers. Choose "
            "another checkpoint."
        )
    executed, predicted = cfg.num_action_chunks + (cfg.inference_delay or 0), cfg.horizon or shape.horizon
    if executed > predicted:
        raise ConfigError(
            f"actor.model.num_action_chunks: received {cfg.num_action_chunks}; with actor.model.real_time_chunking "
            f"{executed} actions are executed before the next chunk, and the model predicts {predicted}. Set it to "
            f"{predicted - (cfg.inference_delay or 0)} or less, or actor.model.horizon to {executed} or more."
        )
    return folder, shape


def freeze(parts: Mapping[str, nn.Module], names: Sequence[str]) -> None:
    """Keep the weights of parts by the names that ``freeze`` has for them."""
    for name in names:
        parts[name].requires_grad_(False)


def starting_weights(policy: FlowVLAPolicy, published: PublishedWeights, folder: Path) -> StartingWeights:
    """Return the published weights, and first ones of new heads: of values, of learned noise and of a token."""
    seed = torch.initial_seed()
    has_token = any(name.startswith(f"{RLT_MODULE}.") for name in published.shapes())
    last = {"value_head.": f"value_head.{2 * len(policy.cfg.value_hidden_dims)}.", "noise.head.": LAST_NOISE_LAYER}

    def new(name: str, shape: Sequence[int]) -> torch.Tensor | None:
        if name.startswith(f"{RLT_MODULE}."):
            return None if has_token else initial_token(name, shape, seed=seed)
        head = next((head for head in last if name.startswith(head)), None)
        return None if head is None else initial_head(name, shape, seed=seed, last=last[head])

    return StartingWeights(policy, published, new=new, folder=folder, cfg=policy.cfg)
