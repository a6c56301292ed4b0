"""Experts that label what a policy meets, and when they take over from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from rlinf.config.registries import experts
from rlinf.config.schema.algorithm import DAggerLossConfig
from rlinf.config.schema.expert import PolicyExpertConfig, ScriptedExpertConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.envs.scripted import make_scripted_policy
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.models import get_policy
from rlinf.models.base_policy import BasePolicy
from rlinf.models.draws import uniform

Expert = Callable[[Observation], torch.Tensor]
"""Maps ``B`` observations to actions as the environment takes them: float32 [B, C, A], or int64 [B, C] if discrete."""


register_expert = experts.register
"""``register_expert(name, builder, config=MyConfig)`` makes an expert known from outside."""


class Teacher:
    """Labels every observation with the expert's action, and lets the expert act in some.

    With ``takeover_distance`` the expert takes over where the policy would act too differently, and only its own
    actions are labels (SafeDAgger, Zhang and Cho, 2017, with the distance itself for its prediction). Otherwise it
    acts with probability ``beta * beta_decay^(step - 1)``, and all its actions are labels (Ross et al., 2011).

    Args:
        loss: Keys of the loss.
        policy: The policy that learns.
        expert: The expert.
    """

    def __init__(self, loss: DAggerLossConfig, policy: BasePolicy, expert: Expert) -> None:
        self.loss, self.policy, self.expert = loss, policy, expert
        self.beta = loss.beta

    def begin(self, step: int) -> None:
        """Set the share of the expert in a step, counted from 1."""
        self.beta = self.loss.beta * self.loss.beta_decay ** (step - 1)

    @torch.no_grad()
    def mix_actions(
        self, obs: Observation, actions: torch.Tensor, output: PolicyOutput, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """Return what is executed, and the policy's report with labels.

        Args:
            obs: ``B`` observations.
            actions: The policy's actions for the environment.
            output: The policy's report.
            generator: Source of randomness.

        Returns:
            Actions for the environment, and the report; its ``forward_inputs`` also hold ``label`` (as ``action``),
            ``labelled`` bool [B] and ``expert_acts`` bool [B].
        """
        chosen = self.expert(obs).to(actions.device, actions.dtype)
        label = self.policy.forward_inputs_of(obs, chosen)["action"]
        output = with_actions(self.policy, obs, actions, output)
        if self.loss.takeover_distance is None:
            draws = uniform(len(chosen), generator=generator)
            expert_mask = draws.to(actions.device) < self.beta
            labelled = torch.ones_like(expert_mask)
        else:
            gap = (label - output.forward_inputs["action"]).float().flatten(1)
            expert_mask = gap.square().mean(-1).sqrt() > self.loss.takeover_distance
            labelled = expert_mask
        mixed = torch.where(expert_mask.view(-1, *[1] * (actions.ndim - 1)), chosen, actions)
        inputs = {**output.forward_inputs, "label": label, "labelled": labelled, "expert_acts": expert_mask}
        return mixed, replace(output, forward_inputs=inputs)


def with_actions(policy: BasePolicy, obs: Observation, actions: torch.Tensor, output: PolicyOutput) -> PolicyOutput:
    """Return a report whose ``forward_inputs`` hold the actions, for losses that imitate; a flow's hold its chain.

    Args:
        policy: The policy.
        obs: ``B`` observations.
        actions: Its actions for the environment.
        output: Its report.
    """
    if "action" in output.forward_inputs:
        return output
    return replace(output, forward_inputs=policy.forward_inputs_of(obs, actions))


def build_teacher(recipe: EmbodiedConfig, policy: BasePolicy, device: torch.device) -> Teacher | None:
    """Build the teacher that the recipe's loss asks for, if it asks for one that sees no more than the policy."""
    loss = recipe.algorithm.loss
    if not isinstance(loss, DAggerLossConfig) or recipe.labelled_in_env is not None:
        return None
    expert = experts.get(loss.expert.expert_type)(loss.expert, recipe=recipe, device=device)
    return Teacher(loss, policy, expert)


def build_policy_expert(cfg: PolicyExpertConfig, *, recipe: EmbodiedConfig, device: torch.device) -> Expert:
    """Build what ``expert_type: policy`` names."""
    model_cfg = cfg.model_beside(recipe.actor.model)
    model = get_policy(model_cfg, on_meta=True)
    precision = recipe.rollout.model.precision or model_cfg.precision
    for parameter in model.parameters():
        parameter.data = parameter.data.to(DTYPES[precision])
    # Importing what reads sharded checkpoints takes as long as importing torch: rollouts without an expert do without.
    from rlinf.hybrid_engines.train.state import load_weights
    from rlinf.models.materialize import materialize

    materialize(model, device)
    if cfg.ckpt_path is not None:
        load_weights(Path(cfg.ckpt_path), model)
    model.eval().requires_grad_(False)

    def act(obs: Observation) -> torch.Tensor:
        return model.predict_action_batch(obs, mode="eval")[0]

    return act


def build_scripted_expert(cfg: ScriptedExpertConfig, *, recipe: EmbodiedConfig, device: torch.device) -> Expert:
    """Build what ``expert_type: scripted`` names."""
    del device
    return make_scripted_policy(cfg.policy, recipe.env.train)
