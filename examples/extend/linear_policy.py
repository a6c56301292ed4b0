"""A model: chooses actions, and recomputes their log-probabilities under the current weights."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.distributions import Normal

from rlinf.config.schema.model import ModelConfig
from rlinf.data.messages.embodied import PolicyOutput
from rlinf.models import BasePolicy, PolicyEvaluation


@dataclass(frozen=True, kw_only=True)
class LinearPolicyConfig(ModelConfig):
    """Keys of ``model_type: linear_policy``."""

    obs_dim: int
    action_dim: int


class LinearPolicy(BasePolicy):
    """A Gaussian whose mean is linear in the observation."""

    def __init__(self, cfg: Any, *, num_values: int = 1) -> None:
        super().__init__()
        self.shape = (cfg.num_action_chunks, cfg.action_dim)
        self.mean = torch.nn.Linear(cfg.obs_dim, cfg.num_action_chunks * cfg.action_dim)
        torch.nn.init.zeros_(self.mean.weight)
        self.value_head = torch.nn.Linear(cfg.obs_dim, num_values)

    def distribution(self, states: torch.Tensor) -> Normal:
        return Normal(self.mean(states).unflatten(-1, self.shape), 0.5)

    def default_forward(self, forward_inputs: dict[str, torch.Tensor]) -> Any:
        states = forward_inputs["states"]
        distribution = self.distribution(states)
        logprobs = distribution.log_prob(forward_inputs["action"])
        return PolicyEvaluation(logprobs=logprobs, entropy=distribution.entropy(), values=self.value_head(states))

    @torch.no_grad()
    def predict_action_batch(
        self, obs: dict[str, torch.Tensor], *, mode: str, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        states = obs["states"].to(self.device, torch.float32)
        distribution = self.distribution(states)
        action = distribution.mean
        if mode == "train":
            action = torch.normal(action, distribution.stddev, generator=generator)
        inputs = {"states": states, "action": action}
        return action, PolicyOutput(distribution.log_prob(action), self.value_head(states), inputs)

    @torch.no_grad()
    def predict_values(self, obs: dict[str, torch.Tensor]) -> Any:
        return self.value_head(obs["states"].to(self.device, torch.float32))
