"""Puts one stage's decisions and their step results together into a trajectory."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlinf.data.messages.action_request import PolicyFeedback
from rlinf.data.messages.batch_record import select_rows
from rlinf.data.messages.embodied import ChunkStep, Observation, PolicyOutput, Trajectory
from rlinf.models.base_policy import BasePolicy
from rlinf.models.q_policy import QPolicy


class FeedbackReader:
    """Computes what the policy says about the results of its actions: values, next inputs, executed actions.

    Args:
        model: The policy.
        bootstrap_always: Ask for the value of final observations also where the episode terminated.
        records_next: Keep what the policy saw after each chunk; the model is then a ``QPolicy``.
    """

    def __init__(self, model: BasePolicy, *, bootstrap_always: bool, records_next: bool = False) -> None:
        self.model = model
        self.bootstrap_always = bootstrap_always
        self.records_next = records_next

    def read(self, step: ChunkStep, *, acted_on: Observation | None, values: bool) -> PolicyFeedback:
        """Return the policy's feedback on a step result.

        Args:
            step: The step result.
            acted_on: What was acted on before; needed only where ``step`` has actions that the policy has not chosen.
            values: Whether to value the states in which episodes were cut off.
        """
        next_inputs = self._observe_next(step) if self.records_next else None
        executed_actions = labels = None
        if step.has_foreign_actions:
            assert acted_on is not None
            if step.expert_action is not None:
                labels = self.model.forward_inputs_of(acted_on, step.expert_action)["action"]
            else:
                assert step.intervene_action is not None
                executed_actions = self.model.forward_inputs_of(acted_on, step.intervene_action)["action"]
        rows, predicted = self._value_endings(step) if values else (None, None)
        return PolicyFeedback(rows, predicted, next_inputs, executed_actions, labels)

    def _value_endings(self, step: ChunkStep) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return the rows whose last state counts, and its values."""
        if step.final_ids is None or step.final_obs is None:
            return None, None
        wanted = torch.ones(len(step.final_ids), dtype=torch.bool)
        if not self.bootstrap_always:
            wanted = step.truncations[step.final_ids].any(-1)
        if not wanted.any():
            return None, None
        # Only rows that need it: a pass over the whole batch would cost as much as another step.
        return step.final_ids[wanted], self.model.predict_values(select_rows(step.final_obs, wanted))

    def _observe_next(self, step: ChunkStep) -> dict[str, torch.Tensor]:
        assert isinstance(self.model, QPolicy)
        inputs = self.model.observe(step.obs)
        if step.final_ids is None or step.final_obs is None:
            return inputs
        # The observation to act on next belongs to a new episode: the transition leads into the last state.
        final = self.model.observe(step.final_obs)
        rows = step.final_ids.to(self.model.device)
        return {name: tensor.index_copy(0, rows, final[name]) for name, tensor in inputs.items()}


class TrajectoryCollector:
    """Collects one rollout epoch of one pipeline stage, on the host: images of many chunks would fill a device."""

    def __init__(self) -> None:
        self.decisions: list[PolicyOutput] = []
        self.versions: list[int] = []
        self.results: list[ChunkStep] = []
        self.final_values: list[torch.Tensor] = []
        self.last_values: torch.Tensor | None = None
        self.next_inputs: list[dict[str, torch.Tensor]] = []

    @property
    def has_values(self) -> bool:
        """Whether the policy values what it sees; known from its first decision on."""
        return bool(self.decisions) and self.decisions[-1].values is not None

    def add_decision(self, output: PolicyOutput, *, version: int) -> None:
        """Take the report on a chunk that is about to be executed, by the weights of ``version``."""
        self.decisions.append(output.to("cpu"))
        self.versions.append(version)

    def add_result(self, step: ChunkStep, feedback: PolicyFeedback) -> None:
        """Take the result of the last decision, and the policy's estimates of it."""
        # The policy's report has of the observations what training needs.
        self.results.append(replace(step, obs={}, final_obs=None))
        feedback = feedback.to("cpu")
        if feedback.executed_actions is not None:
            self._record_interventions(step, feedback.executed_actions)
        if feedback.labels is not None:
            self._record_labels(step, feedback.labels)
        if feedback.next_inputs is not None:
            self.next_inputs.append(feedback.next_inputs)
        values = self.decisions[-1].values
        if values is None:
            return
        final_values = torch.zeros_like(values)
        if feedback.final_rows is not None and feedback.final_values is not None:
            final_values[feedback.final_rows] = feedback.final_values
        self.final_values.append(final_values)

    def _record_interventions(self, step: ChunkStep, executed_actions: torch.Tensor) -> None:
        """Replace policy actions by the executed (intervened) ones, which are learned from."""
        assert step.intervene_flag is not None
        decision, flag = self.decisions[-1], step.intervene_flag
        action = decision.forward_inputs["action"]
        action = torch.where(flag.view(*flag.shape, *[1] * (action.ndim - flag.ndim)), executed_actions, action)
        self.decisions[-1] = replace(decision, forward_inputs={**decision.forward_inputs, "action": action})

    def _record_labels(self, step: ChunkStep, labels: torch.Tensor) -> None:
        """Put the expert's actions next to the policy's own, and which of them answer what the policy saw.

        That was the state before the chunk. An action of the expert answers it as long as all actions before were the
        expert's, too: after others it answers a state that the policy's choice led to, which another policy would not
        meet.
        """
        assert step.intervene_flag is not None
        acts = step.intervene_flag
        labelled = torch.cat([torch.ones_like(acts[:, :1]), acts[:, :-1]], 1).cumprod(1).bool()
        decision = self.decisions[-1]
        inputs = {"label": labels, "labelled": labelled, "expert_acts": acts[:, 0]}
        self.decisions[-1] = replace(decision, forward_inputs={**decision.forward_inputs, **inputs})

    def add_last_values(self, values: torch.Tensor) -> None:
        """Take the value of the observation after the last chunk, float32 [B, V]."""
        self.last_values = values.cpu()

    def finish(
        self, *, env_ids: torch.Tensor, group_ids: torch.Tensor, rewards: torch.Tensor | None = None
    ) -> Trajectory:
        """Return the trajectory.

        Args:
            env_ids: int64 [B].
            group_ids: int64 [B].
            rewards: float32 [T, B, C]; None takes the environments' own.
        """
        values = final_values = None
        if self.last_values is not None:
            rows = [d.values for d in self.decisions if d.values is not None]
            values = torch.stack([*rows, self.last_values])
            final_values = torch.stack(self.final_values)
        names = self.decisions[0].forward_inputs
        next_names = self.next_inputs[0] if self.next_inputs else ()
        return Trajectory(
            forward_inputs={k: torch.stack([d.forward_inputs[k] for d in self.decisions]) for k in names},
            logprobs=torch.stack([d.logprobs for d in self.decisions]),
            values=values,
            rewards=torch.stack([r.rewards for r in self.results]) if rewards is None else rewards,
            terminations=torch.stack([r.terminations for r in self.results]),
            truncations=torch.stack([r.truncations for r in self.results]),
            executed=torch.stack([r.executed for r in self.results]),
            final_values=final_values,
            group_ids=group_ids,
            env_ids=env_ids,
            versions=torch.tensor(self.versions).unsqueeze(1).expand(-1, len(env_ids)),
            next_inputs={k: torch.stack([n[k] for n in self.next_inputs]) for k in next_names}
            if self.next_inputs
            else None,
            intervened=_stack_optional([r.intervene_flag for r in self.results]),
        )


def _stack_optional(rows: list[torch.Tensor | None]) -> torch.Tensor | None:
    present = [row for row in rows if row is not None]
    return torch.stack(present) if present else None
