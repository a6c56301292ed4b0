"""``flow_policy``: a conditional flow over chunks of continuous actions, on states, images or both."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import BasePolicy, Mode, PolicyEvaluation
from rlinf.models.control.action_flow import ActionFlow
from rlinf.models.control.cnn_policy import ImageEncoder
from rlinf.models.control.encoder import Encoder, StateEncoder
from rlinf.models.control.heads import orthogonal_mlp, run_head
from rlinf.models.draws import normal
from rlinf.models.velocity_policy import VelocityEvaluation, VelocityPolicy


def build_flow_policy(cfg: FlowPolicyConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: flow_policy`` names: with Q heads the policy of SAC Flow, otherwise ``FlowPolicy``."""
    encoder: Encoder = ImageEncoder(cfg) if cfg.image_keys else StateEncoder(cfg)
    if not cfg.add_q_head:
        return FlowPolicy(cfg, encoder, num_values=num_values)
    from rlinf.models.control.flow_q_policy import FlowQPolicy

    return FlowQPolicy(cfg, encoder)


class FlowPolicy(VelocityPolicy):
    """A flow policy and a separate value network on the features of one encoder.

    ``forward_inputs`` holds what the encoder sees, the points ``chain`` [N, K + 1, C, A] that the flow passed and the
    last of them, ``action``. Log-probabilities and entropies are those of its noisy steps. Evaluation follows the
    velocity, without noise, from the mean of the starting points.

    Args:
        cfg: The model's keys.
        encoder: Turns observations into features.
        num_values: Values per observation (``V``).
    """

    def __init__(self, cfg: FlowPolicyConfig, encoder: Encoder, *, num_values: int = 1) -> None:
        super().__init__()
        self.cfg = cfg
        self.encoder = encoder
        self.flow = ActionFlow(cfg, encoder.width)
        self.value_head = None
        if cfg.add_value_head:
            self.value_head = orthogonal_mlp(cfg, num_values, output_gain=1.0, input_dim=encoder.width)

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``; not without noise in the steps (``noise_method: flow_ode``)."""
        features = self.encoder(forward_inputs)
        logprobs, entropy = self.flow.evaluate(features, forward_inputs["chain"])
        return PolicyEvaluation(logprobs=logprobs, entropy=entropy, values=self._values(features))

    def velocity_forward(
        self, forward_inputs: dict[str, torch.Tensor], noise: torch.Tensor, time: torch.Tensor
    ) -> VelocityEvaluation:
        """See ``VelocityPolicy``."""
        features, action = self.encoder(forward_inputs), forward_inputs["action"]
        point = torch.lerp(noise, action, time.view(-1, 1, 1))
        velocity = self.flow.velocity(features, point, time)
        saturated = self._bounded(action).abs() >= 1.0
        return VelocityEvaluation(
            velocity=velocity, target=action - noise, saturated=saturated, values=self._values(features)
        )

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        seen = self.encoder.observe(obs, self.device)
        features = self.encoder(seen)
        shape = (features.shape[0], *self.flow.noise_shape)
        noise = torch.zeros(shape, device=self.device)
        if mode == "train":
            noise = normal(shape, generator=generator, device=self.device)
            chain, logprobs = self.flow.sample(features, noise)
            action = self._bounded(chain[:, -1])
        else:
            action = self._bounded(self.flow.integrate(features, noise[:, 0]))
            chain, logprobs = noise, torch.zeros_like(action)
        inputs = {**seen, "chain": chain, "action": action}
        output = PolicyOutput(logprobs=logprobs, values=self._values(features), forward_inputs=inputs)
        return action * self.cfg.action_scale, output

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``."""
        values = self._values(self.encoder(self.encoder.observe(obs, self.device)))
        assert values is not None
        return values

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: the networks."""
        heads = [head for head in (self.flow.network, self.value_head) if head is not None]
        return [*self.encoder.shard_units(), *heads]

    def update_statistics(
        self,
        forward_inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """See ``BasePolicy``: the observation statistics."""
        self.encoder.update_statistics(forward_inputs, valid, all_reduce)

    def _bounded(self, action: torch.Tensor) -> torch.Tensor:
        # There the actions are learned from, and these should be what was executed.
        return action.clamp(-1.0, 1.0) if self.cfg.noise_method == "flow_ode" else action

    def _values(self, features: torch.Tensor) -> torch.Tensor | None:
        return None if self.value_head is None else run_head(self.value_head, features)
