"""``mlp_policy``, and what it shares with ``cnn_policy``: heads on an encoder's features, for any kind of action."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.model import MLPPolicyConfig, StatePolicyConfig
from rlinf.data.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import BasePolicy, Mode, PolicyEvaluation
from rlinf.models.encoder import Encoder, StateEncoder

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def build_mlp_policy(cfg: MLPPolicyConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: mlp_policy`` names."""
    return build_heads(cfg, StateEncoder(cfg), num_values=num_values)


def build_heads(cfg: MLPPolicyConfig, encoder: Encoder, *, num_values: int) -> BasePolicy:
    """Build the policy on an encoder's features: with Q heads one that off-policy losses train, or ``MLPPolicy``."""
    if not cfg.add_q_head:
        return MLPPolicy(cfg, encoder, num_values=num_values)
    if cfg.add_value_head:
        from rlinf.models.iql_policy import IQLPolicy

        return IQLPolicy(cfg, encoder)
    if cfg.deterministic:
        from rlinf.models.deterministic_mlp_policy import DeterministicMLPPolicy

        return DeterministicMLPPolicy(cfg, encoder)
    from rlinf.models.squashed_mlp_policy import SquashedMLPPolicy

    return SquashedMLPPolicy(cfg, encoder)


class MLPPolicy(BasePolicy):
    """Separate policy and value networks on the features of one encoder.

    Continuous actions follow a diagonal Gaussian with a state-independent standard deviation; log-probabilities are
    those of the unclipped sample. Discrete actions follow a categorical distribution (``A`` is then 1). Weights start
    orthogonal, with a small policy output (Andrychowicz et al., 2021, "What matters in on-policy RL").

    Args:
        cfg: The model's keys.
        encoder: Turns observations into features.
        num_values: Values per observation (``V``).
    """

    def __init__(self, cfg: MLPPolicyConfig, encoder: Encoder, *, num_values: int = 1) -> None:
        super().__init__()
        self.cfg = cfg
        self.chunk = cfg.num_action_chunks
        self.encoder = encoder
        width = encoder.width
        self.policy_head = orthogonal_mlp(cfg, self.chunk * cfg.action_size, output_gain=0.01, input_dim=width)
        self.value_head = None
        if cfg.add_value_head:
            self.value_head = orthogonal_mlp(cfg, num_values, output_gain=1.0, input_dim=width)
        if not cfg.discrete:
            self.log_std = nn.Parameter(torch.full((self.chunk, cfg.action_size), cfg.initial_log_std))

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``; ``forward_inputs`` holds what the encoder sees and ``action`` [N, C(, A)]."""
        features = self.encoder(forward_inputs)
        action = forward_inputs["action"]
        output = run_head(self.policy_head, features).view(-1, self.chunk, self.cfg.action_size)
        if self.cfg.discrete:
            logits = output.log_softmax(-1)
            logprobs = logits.gather(-1, action.unsqueeze(-1))
            entropy = -(logits.exp() * logits).sum(-1, keepdim=True)
        else:
            log_std = self.log_std.float()
            logprobs = gaussian_logprob(action, output, log_std)
            entropy = gaussian_entropy(log_std).expand_as(output)
        values = None if self.value_head is None else run_head(self.value_head, features)
        greedy = None if self.cfg.discrete else output
        return PolicyEvaluation(logprobs=logprobs, entropy=entropy, values=values, greedy=greedy)

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        seen = self.encoder.observe(obs, self.device)
        features = self.encoder(seen)
        output = run_head(self.policy_head, features).view(-1, self.chunk, self.cfg.action_size)
        if self.cfg.discrete:
            logits = output.log_softmax(-1)
            action = logits.argmax(-1)
            if mode == "train":
                flat = torch.multinomial(logits.exp().flatten(0, 1), 1, generator=generator)
                action = flat.view(-1, self.chunk)
            logprobs = logits.gather(-1, action.unsqueeze(-1))
            env_action = action
        else:
            action, log_std = output, self.log_std.float()
            if mode == "train":
                noise = torch.randn(output.shape, generator=generator, device=output.device)
                action = output + noise * log_std.exp()
            logprobs = gaussian_logprob(action, output, log_std)
            env_action = action * self.cfg.action_scale
        values = None if self.value_head is None else run_head(self.value_head, features)
        inputs = {**seen, "action": action}
        return env_action, PolicyOutput(logprobs=logprobs, values=values, forward_inputs=inputs)

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``."""
        assert self.value_head is not None
        return run_head(self.value_head, self.encoder(self.encoder.observe(obs, self.device)))

    def recorded_inputs(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``."""
        action = actions.to(self.device)
        return {
            **self.encoder.observe(obs, self.device),
            "action": action if self.cfg.discrete else action / self.cfg.action_scale,
        }

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: the networks."""
        heads = [head for head in (self.policy_head, self.value_head) if head is not None]
        return [*self.encoder.shard_units(), *heads]

    def update_statistics(
        self,
        forward_inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """See ``BasePolicy``: the observation statistics."""
        self.encoder.update_statistics(forward_inputs, valid, all_reduce)


def run_head(head: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """Run a network in the precision of its weights; everything outside stays float32."""
    output: torch.Tensor = head(features.to(next(head.parameters()).dtype))
    return output.float() if output.dtype in {torch.bfloat16, torch.float16} else output


def gaussian_logprob(action: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Return the log-density of each component under a diagonal Gaussian."""
    return -0.5 * ((action - mean) * torch.exp(-log_std)) ** 2 - log_std - HALF_LOG_2PI


def gaussian_entropy(log_std: torch.Tensor) -> torch.Tensor:
    """Return the entropy of each component of a diagonal Gaussian."""
    return log_std + 0.5 + HALF_LOG_2PI


def orthogonal_mlp(
    cfg: StatePolicyConfig, output_dim: int, *, output_gain: float, input_dim: int | None = None
) -> nn.Sequential:
    """Build a network with the hidden layers of ``cfg`` and orthogonal weights; it reads ``obs_dim`` unless told."""
    layers: list[nn.Module] = []
    width = input_dim or cfg.state_size
    for hidden in cfg.hidden_dims:
        layers += [orthogonal(nn.Linear(width, hidden), math.sqrt(2)), ACTIVATIONS[cfg.activation]()]
        width = hidden
    layers.append(orthogonal(nn.Linear(width, output_dim), output_gain))
    return nn.Sequential(*layers)


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """Initialise a layer with orthogonal weights of a gain and no bias, and return it."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
