"""A small policy that chooses actions next to those that a frozen flow proposes, on the flow's own features.

After RLT, whose policy sees what the vision-language model has understood (as the token of ``rlt``, or as a mean),
the state and the proposal, and is held near the proposal by the loss (``loss_type: rlt_td3``).
"""

from __future__ import annotations

import torch
from torch import nn

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import Mode
from rlinf.models.control.deterministic_mlp_policy import DeterministicMLPPolicy
from rlinf.models.control.encoder import Encoder
from rlinf.models.vla.flow_vla import FlowVLAPolicy
from rlinf.models.vla.steered_policy import SteeredWeights

PROPOSAL, KEPT = "proposal", "proposal_kept"
"""In what is seen: the flow's actions, float32 [N, C, A], normalised; whether the policy sees them, float32 [N, 1]."""


class RefinedPolicy(DeterministicMLPPolicy):
    """Actions in normalised units, (-1, 1) times ``action_scale``, learned next to the proposals of a frozen flow.

    Args:
        cfg: Keys of the small policy.
        flow: The flow, which keeps its weights.
        dropout: Probability that an update hides a sample's proposal from the policy.
    """

    flow: FlowVLAPolicy

    def __init__(self, cfg: MLPPolicyConfig, flow: FlowVLAPolicy, *, dropout: float) -> None:
        super().__init__(cfg, ProposalEncoder(cfg, flow, dropout=dropout))
        own = {name: tensor.detach().clone() for name, tensor in self.state_dict().items()}
        self.flow = flow.requires_grad_(False)
        if flow.weight_source is not None:
            self.weight_source = SteeredWeights(flow.weight_source, own)

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        actions, output = super().predict_action_batch(obs, mode=mode, generator=generator)
        return self.flow.inputs.to_actions(actions, obs), output

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``."""
        return super().forward_inputs_of(obs, self.flow.inputs.of_actions(actions.to(self.device), obs))

    def proposal_distance(self, inputs: dict[str, torch.Tensor], action: torch.Tensor) -> torch.Tensor:
        """See ``EnsembleQPolicy``: the mean squared distance from the flow's actions, both normalised."""
        return (self.cfg.action_scale * action - inputs[PROPOSAL]).square().mean((-2, -1))

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: those of the flow, too."""
        return [*super().shard_units(), *self.flow.shard_units()]

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``: the flow has no backward pass."""
        return super().shard_units()


class ProposalEncoder(Encoder):
    """What the flow's expert attends to, as its mean or its token; the state; and the flow's own actions.

    Args:
        cfg: Keys of the small policy.
        flow: The flow.
        dropout: Probability that an update hides a sample's proposal from the policy.
    """

    def __init__(self, cfg: MLPPolicyConfig, flow: FlowVLAPolicy, *, dropout: float) -> None:
        super().__init__()
        self._flow = (flow,)  # not a submodule: the policy has it already
        self.dropout = dropout
        width = flow.feature_width if flow.rlt_module is None else flow.rlt_module.width
        self.width = width + len(flow.inputs.states) + cfg.num_action_chunks * cfg.action_size

    @torch.no_grad()
    def observe(self, obs: Observation, device: torch.device) -> dict[str, torch.Tensor]:
        """See ``Encoder``."""
        (flow,) = self._flow
        record, prefix = flow.observe(obs)
        start = torch.zeros(len(record["state"]), flow.horizon, flow.padded_dim, device=device)
        chain, _ = flow.sample(prefix, record["state"], start, None)
        return {
            "features": flow.features(prefix),
            "states": record["state"][:, : len(flow.inputs.states)],
            PROPOSAL: flow.executed(chain[:, -1:])[:, 0].float(),
            KEPT: torch.ones(len(start), 1, device=device),
        }

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``Encoder``."""
        proposal = inputs[PROPOSAL].flatten(1) * inputs[KEPT]
        return torch.cat([inputs["features"], inputs["states"], proposal], -1)

    def augment(self, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """See ``Encoder``: some samples' proposals are hidden."""
        kept = torch.rand(inputs[KEPT].shape, generator=generator) >= self.dropout
        return inputs | {KEPT: kept.float()}


def action_policy_config(flow: FlowVLAPolicy) -> MLPPolicyConfig:
    """Return the keys of the small policy that refines the actions of a flow."""
    cfg, keys = flow.cfg, flow.cfg.action_policy
    return MLPPolicyConfig(
        model_type=cfg.model_type,
        add_q_head=True,
        deterministic=True,
        num_q_heads=cfg.num_q_heads,
        q_head_type=cfg.q_head_type,
        num_action_chunks=cfg.num_action_chunks,
        obs_dim=len(flow.inputs.states),
        action_dim=cfg.action_dim,
        action_scale=keys.action_scale,
        hidden_dims=keys.hidden_dims,
        activation=keys.activation,
        exploration_noise=keys.exploration_noise,
    )
