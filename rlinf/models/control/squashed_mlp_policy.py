"""``mlp_policy`` and ``cnn_policy`` with ``add_q_head``: a squashed Gaussian and an ensemble of Q functions."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import Mode, PolicyEvaluation
from rlinf.models.control.encoder import Encoder
from rlinf.models.control.ensemble_q_policy import EnsembleQPolicy
from rlinf.models.control.heads import ACTIVATIONS, HALF_LOG_2PI, gaussian_logprob, run_head
from rlinf.models.draws import normal

_LOG_STD_BOUNDS = (-5.0, 2.0)
"""Log standard deviations are squashed into these, as in Haarnoja et al. (2018) and CleanRL: a gradient never dies."""
_LARGEST_ACTION = 1.0 - 1e-6
"""Where the inverse of the squashing is cut off: in float32 it is infinite at 1."""


class SquashedMLPPolicy(EnsembleQPolicy):
    """A tanh-squashed Gaussian whose standard deviation depends on the state, and its critics.

    ``forward_inputs["action"]`` and log-probabilities are those of the sample in (-1, 1). Evaluation acts by the
    squashed mean.

    Args:
        cfg: The model's keys.
        encoder: Turns observations into features.
    """

    cfg: MLPPolicyConfig
    policy_head: nn.Module

    def __init__(self, cfg: MLPPolicyConfig, encoder: Encoder) -> None:
        size = cfg.num_action_chunks * cfg.action_size
        super().__init__(cfg, encoder, policy_head=_policy_network(cfg, encoder.width, size))

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: the networks."""
        return [self.policy_head, *super().shard_units()]

    def act(self, features: torch.Tensor) -> torch.Tensor:
        """See ``EnsembleQPolicy``."""
        return torch.tanh(self._gaussian(features)[0])

    def sample(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``EnsembleQPolicy``."""
        mean, log_std = self._gaussian(features)
        raw = torch.addcmul(mean, noise, log_std.exp())
        # The standardised sample is the noise itself, through which no gradient passes.
        logprobs = -0.5 * noise.square() - HALF_LOG_2PI - log_std
        return torch.tanh(raw), logprobs - log_tanh_slope(raw)

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``; the entropy, which has no closed form, is estimated as minus the log-probability."""
        mean, log_std = self._gaussian(self.encoder(forward_inputs))
        raw = torch.atanh(forward_inputs["action"].clamp(-_LARGEST_ACTION, _LARGEST_ACTION))
        logprobs = _squashed_logprob(raw, mean, log_std)
        return PolicyEvaluation(logprobs=logprobs, entropy=-logprobs, values=None)

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        inputs = self.observe(obs)
        mean, log_std = self._gaussian(self.encoder(inputs))
        raw = mean
        if mode == "train":
            raw = mean + normal(mean.shape, generator=generator, device=mean.device) * log_std.exp()
        action = torch.tanh(raw)
        output = PolicyOutput(
            logprobs=_squashed_logprob(raw, mean, log_std), values=None, forward_inputs={**inputs, "action": action}
        )
        return action * self.cfg.action_scale, output

    def _gaussian(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, raw = run_head(self.policy_head, features).view(-1, 2, *self.shape).unbind(1)
        low, high = _LOG_STD_BOUNDS
        return mean, 0.5 * (high + low) + 0.5 * (high - low) * torch.tanh(raw)


def log_tanh_slope(x: torch.Tensor) -> torch.Tensor:
    """Return log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2x)), which stays finite for large x."""
    return 2.0 * (math.log(2.0) - x - functional.softplus(-2.0 * x))


def _squashed_logprob(raw: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Log-density of ``tanh(raw)``."""
    return gaussian_logprob(raw, mean, log_std) - log_tanh_slope(raw)


def _policy_network(cfg: MLPPolicyConfig, width: int, size: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for hidden in cfg.hidden_dims:
        layers += [nn.Linear(width, hidden), ACTIVATIONS[cfg.activation]()]
        width = hidden
    output = nn.Linear(width, 2 * size)
    low, high = _LOG_STD_BOUNDS
    share = (cfg.initial_log_std - low) / (high - low)
    with torch.no_grad():
        output.weight[size:] *= 0.01
        output.bias[size:] = math.atanh(2.0 * share - 1.0)
    return nn.Sequential(*layers, output)
