"""``flow_policy`` with ``add_q_head``: the squashed flow of SAC Flow and an ensemble of Q functions."""

from __future__ import annotations

import torch
from torch import nn

from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import Mode, PolicyEvaluation
from rlinf.models.control.action_flow import ActionFlow
from rlinf.models.control.encoder import Encoder
from rlinf.models.control.ensemble_q_policy import EnsembleQPolicy
from rlinf.models.control.squashed_mlp_policy import log_tanh_slope
from rlinf.models.draws import normal


class FlowQPolicy(EnsembleQPolicy):
    """A flow policy whose actions are squashed into (-1, 1), and its critics.

    After SAC Flow (Zhang et al., arXiv 2509.25756): the gradient of the critics passes through all steps of the flow,
    and its noisy steps give the log-probability that soft actor-critic needs: that of all steps together, and of the
    squashing. The start is left out of it, which shifts the entropy by a constant.

    Args:
        cfg: The model's keys.
        encoder: Turns observations into features.
    """

    cfg: FlowPolicyConfig
    flow: ActionFlow

    def __init__(self, cfg: FlowPolicyConfig, encoder: Encoder) -> None:
        super().__init__(cfg, encoder, flow=ActionFlow(cfg, encoder.width))

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """See ``QPolicy``: one chunk for the start and one for each step."""
        return self.flow.noise_shape

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: the networks."""
        return [self.flow.network, *super().shard_units()]

    def act(self, features: torch.Tensor) -> torch.Tensor:
        """See ``EnsembleQPolicy``."""
        return self.sample(features, torch.zeros(features.shape[0], *self.noise_shape, device=self.device))[0]

    def sample(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``EnsembleQPolicy``."""
        action, logprobs, _ = self._sample(features, noise)
        return action, logprobs

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
        shape = (features.shape[0], *self.noise_shape)
        noise = torch.zeros(shape, device=self.device)
        if mode == "train":
            noise = normal(shape, generator=generator, device=self.device)
        action, logprobs, chain = self._sample(features, noise)
        output = PolicyOutput(
            logprobs=logprobs, values=None, forward_inputs={**inputs, "chain": chain, "action": action}
        )
        return action * self.cfg.action_scale, output

    def _sample(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return squashed actions and log-probabilities, both [N, C, A], and the points passed before squashing."""
        chain, logprobs = self.flow.sample(features, noise)
        return torch.tanh(chain[:, -1]), logprobs - log_tanh_slope(chain[:, -1]), chain
