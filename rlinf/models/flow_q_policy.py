"""``flow_policy`` with ``add_q_head``: the squashed flow of SAC Flow and an ensemble of Q functions."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.data.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import Mode, PolicyEvaluation
from rlinf.models.encoder import Encoder
from rlinf.models.flow import ActionFlow
from rlinf.models.q_policy import ActorEvaluation, CriticEvaluation, QPolicy
from rlinf.models.squashed_mlp_policy import QEnsemble, log_tanh_slope, run_critic


class FlowQPolicy(QPolicy):
    """A flow policy whose actions are squashed into (-1, 1), and its critics.

    After SAC Flow (Zhang et al., arXiv 2509.25756): the gradient of the critics passes through all steps of the flow,
    and its noisy steps give the log-probability that soft actor-critic needs: that of all steps together, and of the
    squashing. The start is left out of it, which shifts the entropy by a constant.

    Args:
        cfg: The model's keys.
        encoder: Turns observations into features; only the critics' loss trains it.
    """

    def __init__(self, cfg: FlowPolicyConfig, encoder: Encoder) -> None:
        super().__init__()
        self.cfg = cfg
        self.encoder = encoder
        self.flow = ActionFlow(cfg, encoder.width)
        self.critic = QEnsemble(cfg, input_dim=encoder.width)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    @property
    def action_size(self) -> int:
        """See ``QPolicy``."""
        return self.cfg.num_action_chunks * self.cfg.action_dim

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """See ``QPolicy``: one chunk for the start and one for each step."""
        return self.flow.noise_shape

    def observe(self, obs: Observation) -> dict[str, torch.Tensor]:
        """See ``QPolicy``."""
        return self.encoder.observe(obs, self.device)

    def augment(self, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """See ``QPolicy``: as the encoder does."""
        return self.encoder.augment(inputs, generator)

    def critic_forward(
        self,
        inputs: dict[str, torch.Tensor],
        action: torch.Tensor,
        next_inputs: dict[str, torch.Tensor],
        noise: torch.Tensor,
    ) -> CriticEvaluation:
        """See ``QPolicy``."""
        with torch.no_grad():
            next_features = self.encoder(next_inputs)
            next_action, next_logprobs, _ = self._sample(next_features, noise)
            next_q = run_critic(self.target_critic, next_features, next_action)
        q = run_critic(self.critic, self.encoder(inputs), action)
        return CriticEvaluation(q=q, next_q=next_q, next_logprobs=next_logprobs.sum((-2, -1)))

    def actor_forward(self, inputs: dict[str, torch.Tensor], noise: torch.Tensor) -> ActorEvaluation:
        """See ``QPolicy``."""
        with torch.no_grad():
            features = self.encoder(inputs)
        action, logprobs, _ = self._sample(features, noise)
        return ActorEvaluation(q=run_critic(self.critic, features, action), logprobs=logprobs.sum((-2, -1)))

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``; the entropy, which has no closed form, is estimated as minus the log-probability."""
        chain = forward_inputs["chain"]
        logprobs, _ = self.flow.evaluate(self.encoder(forward_inputs), chain)
        logprobs = logprobs - log_tanh_slope(chain[:, -1])
        return PolicyEvaluation(logprobs=logprobs, entropy=-logprobs, values=None)

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        inputs = self.observe(obs)
        features = self.encoder(inputs)
        noise = torch.zeros(len(features), *self.noise_shape, device=self.device)
        if mode == "train":
            noise.normal_(generator=generator)
        action, logprobs, chain = self._sample(features, noise)
        output = PolicyOutput(
            logprobs=logprobs, values=None, forward_inputs={**inputs, "chain": chain, "action": action}
        )
        return action * self.cfg.action_scale, output

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``: the smallest Q value of the greedy action, [B, 1]."""
        features = self.encoder(self.observe(obs))
        action, _, _ = self._sample(features, torch.zeros(len(features), *self.noise_shape, device=self.device))
        return run_critic(self.critic, features, action).amin(-1, keepdim=True)

    def is_critic_parameter(self, name: str) -> bool:
        """See ``BasePolicy``."""
        return name.startswith(("critic.", "encoder."))

    def is_training_only(self, name: str) -> bool:
        """See ``BasePolicy``: the critics."""
        return name.startswith(("critic.", "target_critic."))

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: the networks."""
        return [*self.encoder.shard_units(), self.flow.network, self.critic, self.target_critic]

    def update_statistics(
        self,
        forward_inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """See ``BasePolicy``: the observation statistics."""
        self.encoder.update_statistics(forward_inputs, valid, all_reduce)

    def _sample(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return squashed actions and log-probabilities, both [N, C, A], and the points passed before squashing."""
        chain, logprobs = self.flow.sample(features, noise)
        return torch.tanh(chain[:, -1]), logprobs - log_tanh_slope(chain[:, -1]), chain
