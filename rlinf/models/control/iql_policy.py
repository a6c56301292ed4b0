"""``mlp_policy`` and ``cnn_policy`` with Q heads and a value head: what implicit Q-learning trains."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import BasePolicy, Mode, PolicyEvaluation
from rlinf.models.control.encoder import Encoder
from rlinf.models.control.ensemble_q_policy import QEnsemble, run_critic
from rlinf.models.control.heads import gaussian_entropy, gaussian_logprob, orthogonal_mlp, run_head

_LOG_STD_BOUNDS = (-5.0, 2.0)
"""Those of the authors' code: the policy never grows so certain that a new action has no likelihood."""


@dataclass(frozen=True, slots=True)
class ValueEvaluation:
    """Predictions of critics and value head for transitions.

    Attributes:
        q: float32 [N, Q]; values of the executed actions, with gradients.
        target_q: float32 [N, Q]; the same of the target critics.
        values: float32 [N]; of the states, with gradients.
        next_values: float32 [N]; of the states that follow.
    """

    q: torch.Tensor
    target_q: torch.Tensor
    values: torch.Tensor
    next_values: torch.Tensor


@dataclass(frozen=True, slots=True)
class AdvantageEvaluation:
    """Log-probabilities of actions, and the critics' estimates of their advantage.

    Attributes:
        logprobs: float32 [N, C, A]; with gradients.
        target_q: float32 [N, Q].
        values: float32 [N].
    """

    logprobs: torch.Tensor
    target_q: torch.Tensor
    values: torch.Tensor


class IQLPolicy(BasePolicy):
    """A Gaussian around a squashed mean, an ensemble of critics with a frozen copy as target, and a value head.

    The standard deviation does not depend on the state. Actions are ``action_scale`` times a sample that is not
    squashed: recorded actions at their bounds keep a finite likelihood. The encoder is trained by the critics' loss
    alone.

    Args:
        cfg: The model's keys.
        encoder: Turns observations into features.
    """

    def __init__(self, cfg: MLPPolicyConfig, encoder: Encoder) -> None:
        super().__init__()
        self.cfg = cfg
        self.shape = (cfg.num_action_chunks, cfg.action_size)
        self.encoder = encoder
        width = encoder.width
        self.policy_head = orthogonal_mlp(
            cfg, cfg.num_action_chunks * cfg.action_size, output_gain=0.01, input_dim=width
        )
        self.value_head = orthogonal_mlp(cfg, 1, output_gain=1.0, input_dim=width)
        self.log_std = nn.Parameter(torch.full(self.shape, cfg.initial_log_std))
        self.critic = QEnsemble(cfg, input_dim=width)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    def critic_forward(
        self, inputs: dict[str, torch.Tensor], action: torch.Tensor, next_inputs: dict[str, torch.Tensor]
    ) -> ValueEvaluation:
        """Evaluate ``N`` transitions.

        Args:
            inputs: What the encoder sees.
            action: float32 [N, C, A]; as in ``forward_inputs``.
            next_inputs: As ``inputs``, after the chunk.
        """
        with torch.no_grad():
            next_values = self._values(self.encoder(next_inputs))
        features = self.encoder(inputs)
        with torch.no_grad():
            target_q = run_critic(self.target_critic, features, action)
        q = run_critic(self.critic, features, action)
        return ValueEvaluation(q=q, target_q=target_q, values=self._values(features), next_values=next_values)

    def augment(self, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Return what the encoder is trained on: its inputs, with images changed at random if the recipe says so.

        Args:
            inputs: What the encoder sees, on the host.
            generator: Source of randomness.
        """
        return self.encoder.augment(inputs, generator)

    def actor_forward(self, inputs: dict[str, torch.Tensor], action: torch.Tensor) -> AdvantageEvaluation:
        """Evaluate ``N`` actions; arguments as those of ``critic_forward``."""
        with torch.no_grad():
            features = self.encoder(inputs)
            target_q = run_critic(self.target_critic, features, action)
            values = self._values(features)
        mean, log_std = self._gaussian(features)
        return AdvantageEvaluation(logprobs=gaussian_logprob(action, mean, log_std), target_q=target_q, values=values)

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> PolicyEvaluation:
        """See ``BasePolicy``."""
        features = self.encoder(forward_inputs)
        mean, log_std = self._gaussian(features)
        return PolicyEvaluation(
            logprobs=gaussian_logprob(forward_inputs["action"], mean, log_std),
            entropy=gaussian_entropy(log_std).expand_as(mean),
            values=self._values(features).unsqueeze(-1),
            greedy=mean,
        )

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``."""
        inputs = self.encoder.observe(obs, self.device)
        features = self.encoder(inputs)
        mean, log_std = self._gaussian(features)
        action = mean
        if mode == "train":
            action = mean + torch.randn(mean.shape, generator=generator, device=mean.device) * log_std.exp()
        output = PolicyOutput(
            logprobs=gaussian_logprob(action, mean, log_std), values=None, forward_inputs={**inputs, "action": action}
        )
        return action * self.cfg.action_scale, output

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``."""
        return self._values(self.encoder(self.encoder.observe(obs, self.device))).unsqueeze(-1)

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``."""
        return {**self.encoder.observe(obs, self.device), "action": actions.to(self.device) / self.cfg.action_scale}

    def is_critic_parameter(self, name: str) -> bool:
        """See ``BasePolicy``: critics, values and the encoder."""
        return name.startswith(("critic.", "value_head.", "encoder."))

    def is_training_only(self, name: str) -> bool:
        """See ``BasePolicy``: critics and values."""
        return name.startswith(("critic.", "target_critic.", "value_head."))

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: the networks."""
        heads = [self.policy_head, self.value_head, self.critic, self.target_critic]
        return [*self.encoder.shard_units(), *heads]

    def update_statistics(
        self,
        forward_inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """See ``BasePolicy``: the observation statistics."""
        self.encoder.update_statistics(forward_inputs, valid, all_reduce)

    def _gaussian(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = torch.tanh(run_head(self.policy_head, features).view(-1, *self.shape))
        return mean, self.log_std.float().clamp(*_LOG_STD_BOUNDS)

    def _values(self, features: torch.Tensor) -> torch.Tensor:
        return run_head(self.value_head, features).squeeze(-1)
