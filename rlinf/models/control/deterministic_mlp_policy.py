"""``mlp_policy`` and ``cnn_policy`` with ``add_q_head`` and ``deterministic``: the policy that TD3 trains."""

from __future__ import annotations

import copy

import torch
from torch import nn

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import Mode, PolicyEvaluation
from rlinf.models.control.encoder import Encoder
from rlinf.models.control.ensemble_q_policy import EnsembleQPolicy
from rlinf.models.control.heads import ACTIVATIONS, run_head
from rlinf.models.draws import normal


class DeterministicMLPPolicy(EnsembleQPolicy):
    """One action for each state, the critics of it, and target networks of both (Fujimoto et al., 2018).

    Training explores by normal noise of standard deviation ``exploration_noise`` on the actions, cut off at -1 and 1.
    There are no log-probabilities: those that are reported are 0.

    Args:
        cfg: The model's keys.
        encoder: Turns observations into features.
    """

    cfg: MLPPolicyConfig
    policy_head: nn.Module

    def __init__(self, cfg: MLPPolicyConfig, encoder: Encoder) -> None:
        size = cfg.num_action_chunks * cfg.action_size
        super().__init__(cfg, encoder, policy_head=_policy_network(cfg, encoder.width, size))
        self.exploration_noise = cfg.exploration_noise
        self.target_policy_head = copy.deepcopy(self.policy_head).requires_grad_(False)

    def targets(self) -> list[tuple[nn.Module, nn.Module]]:
        """See ``QPolicy``: also the policy has one."""
        return [*super().targets(), (self.target_policy_head, self.policy_head)]

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: the networks."""
        return [self.policy_head, *super().shard_units()]

    def act(self, features: torch.Tensor) -> torch.Tensor:
        """See ``EnsembleQPolicy``."""
        return self._run(self.policy_head, features)

    def sample(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, None]:
        """See ``EnsembleQPolicy``: there is nothing to sample."""
        del noise
        return self.act(features), None

    def sample_next(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, None]:
        """See ``EnsembleQPolicy``: the target policy's actions, smoothed by the noise."""
        return (self._run(self.target_policy_head, features) + noise).clamp(-1.0, 1.0), None

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``; log-probabilities and entropies are 0."""
        zeros = torch.zeros_like(forward_inputs["action"])
        return PolicyEvaluation(logprobs=zeros, entropy=zeros, values=None)

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        inputs = self.observe(obs)
        action = self.act(self.encoder(inputs))
        if mode == "train":
            noise = normal(action.shape, generator=generator, device=action.device)
            action = (action + self.exploration_noise * noise).clamp(-1.0, 1.0)
        output = PolicyOutput(
            logprobs=torch.zeros_like(action), values=None, forward_inputs={**inputs, "action": action}
        )
        return action * self.cfg.action_scale, output

    def _run(self, head: nn.Module, features: torch.Tensor) -> torch.Tensor:
        return torch.tanh(run_head(head, features)).view(-1, *self.shape)


def _policy_network(cfg: MLPPolicyConfig, width: int, size: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for hidden in cfg.hidden_dims:
        layers += [nn.Linear(width, hidden), ACTIVATIONS[cfg.activation]()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, size))
