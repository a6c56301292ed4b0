"""Policies with an ensemble of critics on an encoder's features, for any distribution of actions."""

from __future__ import annotations

import abc
import copy
import itertools
from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.model import StatePolicyConfig
from rlinf.data.messages.embodied import Observation
from rlinf.models.control.encoder import Encoder
from rlinf.models.control.ensemble import EnsembleBatchRenorm, EnsembleLayer, EnsembleLayerNorm, EnsembleLinear
from rlinf.models.control.heads import ACTIVATIONS
from rlinf.models.q_policy import ActorEvaluation, CriticEvaluation, QPolicy

_BEFORE_LINEAR: dict[str, Callable[[int, int], nn.Module]] = {"crossq": EnsembleBatchRenorm}
"""By ``q_head_type``: what stands before each linear layer, given the number of networks and the width."""
_BEFORE_ACTIVATION: dict[str, Callable[[int, int], nn.Module]] = {"layer_norm": EnsembleLayerNorm}
"""By ``q_head_type``: what stands before each activation."""


class QEnsemble(nn.Module):
    """Q functions of observation features and chunks of actions, independent of each other.

    Args:
        cfg: The model's keys.
        input_dim: Observation features (``F``); None takes ``obs_dim``.
    """

    def __init__(self, cfg: StatePolicyConfig, *, input_dim: int | None = None) -> None:
        super().__init__()
        self.num_heads = cfg.num_q_heads
        first = (input_dim or cfg.state_size) + cfg.num_action_chunks * cfg.action_size
        before, between = _BEFORE_LINEAR.get(cfg.q_head_type), _BEFORE_ACTIVATION.get(cfg.q_head_type)
        layers: list[nn.Module] = []
        for width, next_width in itertools.pairwise([first, *cfg.hidden_dims, 1]):
            layers += [before(self.num_heads, width)] if before else []
            layers.append(EnsembleLinear(self.num_heads, width, next_width))
            layers += [between(self.num_heads, next_width)] if between else []
            layers.append(ACTIVATIONS[cfg.activation]())
        # Nothing stands behind the last linear layer.
        self.layers = nn.ModuleList(layers[: -2 if between else -1])

    def forward(
        self, features: torch.Tensor, action: torch.Tensor, members: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Value actions [N, C, A] in states of features [N, F]: [N, Q], or by int64 ``members`` [M] alone: [N, M]."""
        joined = torch.cat([features, action.flatten(1)], -1)
        output = joined.expand(self.num_heads if members is None else len(members), -1, -1)
        for layer in self.layers:
            output = layer(output, members) if isinstance(layer, EnsembleLayer) else layer(output)
        return output.squeeze(-1).T


class EnsembleQPolicy(QPolicy):
    """What policies with a ``QEnsemble`` have in common; a subclass samples actions.

    Actions are ``action_scale`` times a sample in (-1, 1), which critics value. Policy and target networks share the
    critics' encoder, which the critics' loss alone trains (Yarats et al., 2022, "Mastering visual continuous control").

    Critics with ``q_head_type: crossq`` have no target network: they value present and next actions in one pass, whose
    batch moments are those of both (Bhatt et al., 2024, section 4); a policy's actions are valued by running moments.

    Args:
        cfg: The model's keys.
        encoder: Turns observations into features.
        **networks: Those that act; each becomes the submodule of its name.
    """

    def __init__(self, cfg: StatePolicyConfig, encoder: Encoder, **networks: nn.Module) -> None:
        super().__init__()
        self.cfg = cfg
        self.shape = (cfg.num_action_chunks, cfg.action_size)
        self.encoder = encoder
        for name, network in networks.items():
            self.add_module(name, network)
        self.critic = QEnsemble(cfg, input_dim=encoder.width)
        self.has_target = cfg.q_head_type != "crossq"
        if self.has_target:
            self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    @abc.abstractmethod
    def sample(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return actions in (-1, 1) and their log-probabilities, [N, C, A] both, with gradients.

        Args:
            features: float [N, F].
            noise: float [N, *noise_shape]; standard normal.
        """

    @abc.abstractmethod
    def act(self, features: torch.Tensor) -> torch.Tensor:
        """Return the greedy actions [N, C, A], in (-1, 1)."""

    def sample_next(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return what ``sample`` does, for the targets of the critics.

        Args:
            features: float [N, F].
            noise: float [N, *noise_shape]; as the algorithm makes it of standard normal noise.
        """
        return self.sample(features, noise)

    def proposal_distance(self, inputs: dict[str, torch.Tensor], action: torch.Tensor) -> torch.Tensor | None:
        """Return how far actions are from what a frozen model proposes, float32 [N]; None where none does.

        Args:
            inputs: As ``observe`` returns.
            action: float32 [N, C, A], in (-1, 1).
        """
        return None

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """See ``QPolicy``."""
        return self.shape

    @property
    def action_size(self) -> int:
        """See ``QPolicy``."""
        return self.cfg.num_action_chunks * self.cfg.action_size

    def targets(self) -> list[tuple[nn.Module, nn.Module]]:
        """See ``QPolicy``."""
        return super().targets() if self.has_target else []

    def observe(self, obs: Observation) -> dict[str, torch.Tensor]:
        """See ``QPolicy``."""
        return self.encoder.observe(obs, self.device)

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``; actions are cut off at the bounds of the policy's own."""
        action = (actions.to(self.device, torch.float32) / self.cfg.action_scale).clamp(-1.0, 1.0)
        return {**self.observe(obs), "action": action}

    def augment(self, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """See ``QPolicy``: as the encoder does."""
        return self.encoder.augment(inputs, generator)

    def critic_forward(
        self,
        inputs: dict[str, torch.Tensor],
        action: torch.Tensor,
        next_inputs: dict[str, torch.Tensor],
        noise: torch.Tensor,
        members: torch.Tensor | None = None,
    ) -> CriticEvaluation:
        """See ``QPolicy``."""
        with torch.no_grad():
            next_features = self.encoder(next_inputs)
            next_action, logprobs = self.sample_next(next_features, noise)
        features = self.encoder(inputs)
        value = self._value_apart if self.has_target else self._value_jointly
        q, next_q = value(features, action, next_features, next_action, members)
        return CriticEvaluation(q=q, next_q=next_q, next_logprobs=_sum_over_chunk(logprobs))

    def actor_forward(self, inputs: dict[str, torch.Tensor], noise: torch.Tensor) -> ActorEvaluation:
        """See ``QPolicy``."""
        with torch.no_grad():
            features = self.encoder(inputs)
        action, logprobs = self.sample(features, noise)
        self.critic.eval()
        return ActorEvaluation(
            q=run_critic(self.critic, features, action),
            logprobs=_sum_over_chunk(logprobs),
            distance=self.proposal_distance(inputs, action),
        )

    @torch.no_grad()
    def predict_values(self, obs: Observation) -> torch.Tensor:
        """See ``BasePolicy``: the smallest Q value of the greedy action, [B, 1]."""
        features = self.encoder(self.observe(obs))
        self.critic.eval()
        return run_critic(self.critic, features, self.act(features)).amin(-1, keepdim=True)

    def is_critic_parameter(self, name: str) -> bool:
        """See ``BasePolicy``."""
        return name.startswith(("critic.", "encoder."))

    def is_training_only(self, name: str) -> bool:
        """See ``BasePolicy``: the critics, and the target networks."""
        return name.startswith(("critic.", "target_"))

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: all but the networks that act."""
        targets = [target for target, _ in self.targets()]
        return [*self.encoder.shard_units(), self.critic, *targets]

    def update_statistics(
        self,
        forward_inputs: dict[str, torch.Tensor],
        valid: torch.Tensor,
        all_reduce: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """See ``BasePolicy``: the observation statistics."""
        self.encoder.update_statistics(forward_inputs, valid, all_reduce)

    def _value_apart(
        self,
        features: torch.Tensor,
        action: torch.Tensor,
        next_features: torch.Tensor,
        next_action: torch.Tensor,
        members: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            next_q = run_critic(self.target_critic, next_features, next_action, members)
        return run_critic(self.critic, features, action), next_q

    def _value_jointly(
        self,
        features: torch.Tensor,
        action: torch.Tensor,
        next_features: torch.Tensor,
        next_action: torch.Tensor,
        members: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.critic.train()
        both = run_critic(self.critic, torch.cat([features, next_features]), torch.cat([action, next_action]))
        q, next_q = both.chunk(2)
        next_q = next_q.detach()
        return q, next_q if members is None else next_q[:, members]


def run_critic(
    critic: nn.Module, features: torch.Tensor, action: torch.Tensor, members: torch.Tensor | None = None
) -> torch.Tensor:
    """Value actions in the precision of the critics' weights; see ``QEnsemble``."""
    dtype = next(critic.parameters()).dtype
    values: torch.Tensor = critic(features.to(dtype), action.to(dtype), members)
    return values.float() if values.dtype in {torch.bfloat16, torch.float16} else values


def _sum_over_chunk(logprobs: torch.Tensor | None) -> torch.Tensor | None:
    return None if logprobs is None else logprobs.sum((-2, -1))
