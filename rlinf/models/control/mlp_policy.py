"""``mlp_policy``: the policy for on-policy losses, and the builder that chooses a policy by its heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.models.base_policy import BasePolicy, Mode, PolicyEvaluation
from rlinf.models.control.deterministic_mlp_policy import DeterministicMLPPolicy
from rlinf.models.control.encoder import Encoder, StateEncoder
from rlinf.models.control.heads import gaussian_entropy, gaussian_logprob, orthogonal_mlp, run_head
from rlinf.models.control.iql_policy import IQLPolicy
from rlinf.models.control.squashed_mlp_policy import SquashedMLPPolicy
from rlinf.models.draws import categorical, normal


def build_mlp_policy(cfg: MLPPolicyConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: mlp_policy`` names."""
    return build_heads(cfg, StateEncoder(cfg), num_values=num_values)


def build_heads(cfg: MLPPolicyConfig, encoder: Encoder, *, num_values: int) -> BasePolicy:
    """Build the policy on an encoder's features: with Q heads one that off-policy losses train, or ``MLPPolicy``."""
    if not cfg.add_q_head:
        return MLPPolicy(cfg, encoder, num_values=num_values)
    if cfg.add_value_head:
        return IQLPolicy(cfg, encoder)
    return DeterministicMLPPolicy(cfg, encoder) if cfg.deterministic else SquashedMLPPolicy(cfg, encoder)


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
                action = categorical(logits.exp(), generator=generator)
            logprobs = logits.gather(-1, action.unsqueeze(-1))
            env_action = action
        else:
            action, log_std = output, self.log_std.float()
            if mode == "train":
                noise = normal(output.shape, generator=generator, device=output.device)
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

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
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
