"""Puts one stage's decisions and their outcomes together into a trajectory."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlinf.data.embodied import ChunkStep, Observation, PolicyOutput, Trajectory
from rlinf.models.base_policy import BasePolicy
from rlinf.models.q_policy import QPolicy


class TrajectoryCollector:
    """Collects one rollout epoch of one pipeline stage.

    Args:
        model: Asked for values, where it has a value head, of the last observation and of final observations.
        bootstrap_always: Ask for the value of final observations also where the episode terminated.
        records_next: Keep what the policy saw after each chunk; the model is then a ``QPolicy``.
    """

    def __init__(self, model: BasePolicy, *, bootstrap_always: bool, records_next: bool = False) -> None:
        self.model = model
        self.bootstrap_always = bootstrap_always
        self.decisions: list[PolicyOutput] = []
        self.versions: list[int] = []
        self.acted_on: Observation = {}
        self.outcomes: list[ChunkStep] = []
        self.final_values: list[torch.Tensor] = []
        self.last_values: torch.Tensor | None = None
        self.records_next = records_next
        self.next_inputs: list[dict[str, torch.Tensor]] = []

    def add_decision(self, obs: Observation, output: PolicyOutput, *, version: int) -> None:
        """Take the report on a chunk that is about to be executed in ``obs``, by the weights of ``version``."""
        self.acted_on = obs
        self.decisions.append(output)
        self.versions.append(version)

    def add_outcome(self, step: ChunkStep) -> None:
        """Take what came of the last decision, and value the states in which episodes were cut off."""
        self.outcomes.append(step)
        self._record_interventions(step)
        if self.records_next:
            self.next_inputs.append(self._observe_next(step))
        values = self.decisions[-1].values
        if values is None:
            return
        final_values = torch.zeros_like(values)
        if step.final_ids is not None and step.final_obs is not None:
            wanted = torch.ones(len(step.final_ids), dtype=torch.bool)
            if not self.bootstrap_always:
                wanted = step.truncations[step.final_ids].any(-1)
            if wanted.any():
                # Only rows that need it: a pass over the whole batch would cost as much as another step.
                predicted = self.model.predict_values(_select(step.final_obs, wanted))
                final_values[step.final_ids[wanted].to(values.device)] = predicted
        self.final_values.append(final_values)

    def _record_interventions(self, step: ChunkStep) -> None:
        """Replace actions that somebody else took the place of: what is learned from is what was executed."""
        if step.intervene_flag is None or step.intervene_action is None or not step.intervene_flag.any():
            return
        decision = self.decisions[-1]
        executed = self.model.recorded_inputs(self.acted_on, step.intervene_action)["action"]
        flag = step.intervene_flag.to(executed.device)
        action = decision.forward_inputs["action"]
        action = torch.where(flag.view(*flag.shape, *[1] * (action.ndim - flag.ndim)), executed, action)
        self.decisions[-1] = replace(decision, forward_inputs={**decision.forward_inputs, "action": action})

    def _observe_next(self, step: ChunkStep) -> dict[str, torch.Tensor]:
        assert isinstance(self.model, QPolicy)
        inputs = self.model.observe(step.obs)
        if step.final_ids is None or step.final_obs is None:
            return inputs
        # The observation to act on next belongs to a new episode: the transition leads into the last state.
        final = self.model.observe(step.final_obs)
        rows = step.final_ids.to(self.model.device)
        return {name: tensor.index_copy(0, rows, final[name]) for name, tensor in inputs.items()}

    def add_last_obs(self, obs: Observation) -> None:
        """Value the observation after the last chunk."""
        if self.decisions[-1].values is not None:
            self.last_values = self.model.predict_values(obs)

    def finish(
        self, *, env_ids: torch.Tensor, group_ids: torch.Tensor, rewards: torch.Tensor | None = None
    ) -> Trajectory:
        """Return the trajectory, on the host.

        Args:
            env_ids: int64 [B].
            group_ids: int64 [B].
            rewards: float32 [T, B, C]; None takes the environments' own.
        """
        values = final_values = None
        if self.last_values is not None:
            rows = [d.values for d in self.decisions if d.values is not None]
            values = torch.stack([*rows, self.last_values]).cpu()
            final_values = torch.stack(self.final_values).cpu()
        names = self.decisions[0].forward_inputs
        return Trajectory(
            forward_inputs={k: torch.stack([d.forward_inputs[k] for d in self.decisions]).cpu() for k in names},
            logprobs=torch.stack([d.logprobs for d in self.decisions]).cpu(),
            values=values,
            rewards=torch.stack([o.rewards for o in self.outcomes]) if rewards is None else rewards,
            terminations=torch.stack([o.terminations for o in self.outcomes]),
            truncations=torch.stack([o.truncations for o in self.outcomes]),
            executed=torch.stack([o.executed for o in self.outcomes]),
            final_values=final_values,
            group_ids=group_ids,
            env_ids=env_ids,
            versions=torch.tensor(self.versions).unsqueeze(1).expand(-1, len(env_ids)),
            next_inputs={k: torch.stack([n[k] for n in self.next_inputs]).cpu() for k in self.next_inputs[0]}
            if self.records_next
            else None,
            intervened=_stack_optional([o.intervene_flag for o in self.outcomes]),
        )


def _stack_optional(rows: list[torch.Tensor | None]) -> torch.Tensor | None:
    present = [row for row in rows if row is not None]
    return torch.stack(present) if present else None


def _select(obs: Observation, wanted: torch.Tensor) -> Observation:
    keep = wanted.nonzero().flatten().tolist()
    return {
        key: value[wanted] if isinstance(value, torch.Tensor) else [value[i] for i in keep]
        for key, value in obs.items()
    }
