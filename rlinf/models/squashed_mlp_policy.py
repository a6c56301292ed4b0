"""``mlp_policy`` and ``cnn_policy`` with ``add_q_head``: a squashed Gaussian and an ensemble of Q functions."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from rlinf.config.schema.model import MLPPolicyConfig, StatePolicyConfig
from rlinf.data.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import Mode, PolicyEvaluation
from rlinf.models.encoder import Encoder
from rlinf.models.mlp_policy import ACTIVATIONS, gaussian_logprob
from rlinf.models.q_policy import ActorEvaluation, CriticEvaluation, QPolicy

_LOG_STD_BOUNDS = (-5.0, 2.0)
"""Log standard deviations are squashed into these, as in Haarnoja et al. (2018) and CleanRL: a gradient never dies."""
_LARGEST_ACTION = 1.0 - 1e-6
"""Where the inverse of the squashing is cut off: in float32 it is infinite at 1."""


class EnsembleLinear(nn.Module):
    """``E`` linear layers side by side.

    Args:
        ensemble: Their number.
        in_dim: Width of the input.
        out_dim: Width of the output.
    """

    def __init__(self, ensemble: int, in_dim: int, out_dim: int) -> None:
        super().__init__()
        layers = [nn.Linear(in_dim, out_dim) for _ in range(ensemble)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]).unsqueeze(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``x`` [E, N, in_dim] to [E, N, out_dim]."""
        return torch.baddbmm(self.bias, x, self.weight)


class QEnsemble(nn.Module):
    """Q functions of observation features and chunks of actions, independent of each other.

    Args:
        cfg: The model's keys.
        input_dim: Observation features (``F``); None takes ``obs_dim``.
    """

    def __init__(self, cfg: StatePolicyConfig, *, input_dim: int | None = None) -> None:
        super().__init__()
        self.num_heads = cfg.num_q_heads
        widths = [(input_dim or cfg.obs_dim) + cfg.num_action_chunks * cfg.action_dim, *cfg.hidden_dims]
        layers: list[nn.Module] = []
        for width, hidden in zip(widths, cfg.hidden_dims, strict=False):
            layers += [EnsembleLinear(self.num_heads, width, hidden), ACTIVATIONS[cfg.activation]()]
        self.layers = nn.Sequential(*layers, EnsembleLinear(self.num_heads, widths[-1], 1))

    def forward(self, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Value actions [N, C, A] in states of features [N, F]: [N, Q]."""
        joined = torch.cat([features, action.flatten(1)], -1)
        output: torch.Tensor = self.layers(joined.expand(self.num_heads, -1, -1))
        return output.squeeze(-1).T


class SquashedMLPPolicy(QPolicy):
    """A tanh-squashed Gaussian whose standard deviation depends on the state, and its critics.

    Actions are ``action_scale`` times a sample in (-1, 1); ``forward_inputs["action"]`` and log-probabilities are those
    of the sample. Evaluation acts by the squashed mean. Policy and target critics share the critics' encoder, which the
    critics' loss alone trains (Yarats et al., 2022, "Mastering visual continuous control").

    Args:
        cfg: The model's keys.
        encoder: Turns observations into features.
    """

    def __init__(self, cfg: MLPPolicyConfig, encoder: Encoder) -> None:
        super().__init__()
        self.cfg = cfg
        self.shape = (cfg.num_action_chunks, cfg.action_dim)
        self.encoder = encoder
        self.policy_head = _policy_network(cfg, encoder.width, self.action_size)
        self.critic = QEnsemble(cfg, input_dim=encoder.width)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    @property
    def action_size(self) -> int:
        """See ``QPolicy``."""
        return self.cfg.num_action_chunks * self.cfg.action_dim

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """See ``QPolicy``."""
        return self.shape

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
            next_action, next_logprobs = self._sample(next_features, noise)
            next_q = run_critic(self.target_critic, next_features, next_action)
        q = run_critic(self.critic, self.encoder(inputs), action)
        return CriticEvaluation(q=q, next_q=next_q, next_logprobs=next_logprobs.sum((-2, -1)))

    def actor_forward(self, inputs: dict[str, torch.Tensor], noise: torch.Tensor) -> ActorEvaluation:
        """See ``QPolicy``."""
        with torch.no_grad():
            features = self.encoder(inputs)
        action, logprobs = self._sample(features, noise)
        return ActorEvaluation(q=run_critic(self.critic, features, action), logprobs=logprobs.sum((-2, -1)))

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
            raw = mean + torch.randn(mean.shape, generator=generator, device=mean.device) * log_std.exp()
        action = torch.tanh(raw)
        output = PolicyOutput(
            logprobs=_squashed_logprob(raw, mean, log_std), values=None, forward_inputs={**inputs, "action": action}
        )
        return action * self.cfg.action_scale, output

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``: the smallest Q value of the greedy action, [B, 1]."""
        features = self.encoder(self.observe(obs))
        mean, _ = self._gaussian(features)
        return run_critic(self.critic, features, torch.tanh(mean)).amin(-1, keepdim=True)

    def is_critic_parameter(self, name: str) -> bool:
        """See ``BasePolicy``."""
        return name.startswith(("critic.", "encoder."))

    def is_training_only(self, name: str) -> bool:
        """See ``BasePolicy``: the critics."""
        return name.startswith(("critic.", "target_critic."))

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: the networks."""
        return [*self.encoder.shard_units(), self.policy_head, self.critic, self.target_critic]

    def update_statistics(
        self,
        forward_inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """See ``BasePolicy``: the observation statistics."""
        self.encoder.update_statistics(forward_inputs, valid, all_reduce)

    def _gaussian(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dtype = next(self.policy_head.parameters()).dtype
        mean, raw = self.policy_head(features.to(dtype)).float().view(-1, 2, *self.shape).unbind(1)
        low, high = _LOG_STD_BOUNDS
        return mean, low + 0.5 * (high - low) * (torch.tanh(raw) + 1.0)

    def _sample(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self._gaussian(features)
        raw = mean + noise * log_std.exp()
        return torch.tanh(raw), _squashed_logprob(raw, mean, log_std)


def run_critic(critic: nn.Module, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Value actions in the precision of the critics' weights; see ``QEnsemble``."""
    dtype = next(critic.parameters()).dtype
    values: torch.Tensor = critic(features.to(dtype), action.to(dtype))
    return values.float() if values.dtype in {torch.bfloat16, torch.float16} else values


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
