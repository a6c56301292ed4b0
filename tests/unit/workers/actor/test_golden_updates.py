"""Whole updates of SAC, TD3, CrossQ, RLPD and SAC Flow against the papers' equations written down in NumPy.

The NumPy below shares no line with the package: it takes the weights, a batch and the noise, and computes in float64
what the losses are, through policy, critics and targets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from off_policy_toys import CHUNK, DIM, LOSS, make_learner, make_trajectory, train, weights

from rlinf.config.schema.algorithm import CrossQLossConfig, TD3LossConfig
from rlinf.config.schema.model import FlowPolicyConfig

if TYPE_CHECKING:
    from rlinf.workers.actor.learner import Learner


GAMMA, STEPS = 0.99, 4
LOW, HIGH = -5.0, 2.0
CROSSQ = CrossQLossConfig(**{field.name: getattr(LOSS, field.name) for field in dataclasses.fields(LOSS)})
TD3 = TD3LossConfig(tau=0.1, replay_buffer=LOSS.replay_buffer, target_noise=0.4)
RLPD = dataclasses.replace(LOSS, num_min_q=2, backup_entropy=False)
FLOW = {"velocity": "gated", "noise_method": "flow_noise", "noise_level": 0.3, "num_denoise_steps": STEPS}
LEARNERS = {
    "sac": {},
    "td3": {"loss": TD3, "loss_type": "embodied_td3", "deterministic": True},
    "crossq": {"loss": CROSSQ, "loss_type": "embodied_crossq", "q_head_type": "crossq", "micro": 32},
    "rlpd": {"loss": RLPD, "num_q_heads": 5, "q_head_type": "layer_norm"},
    "sac_flow": {"model_config": FlowPolicyConfig, **FLOW},
}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def squash(raw: np.ndarray) -> tuple[Any, Any]:
    """Return actions, and what squashing takes from log-densities."""
    return np.tanh(raw), np.log(1 - np.tanh(raw) ** 2)


def gaussian(noise: np.ndarray, log_std: np.ndarray) -> Any:
    """Return the log-density of ``mean + noise * exp(log_std)``."""
    return -0.5 * noise**2 - 0.5 * np.log(2 * np.pi) - log_std


class Reference:
    """The losses in NumPy.

    Args:
        name: Which of ``LEARNERS``.
        learner: Whose weights to compute with.
    """

    def __init__(self, name: str, learner: Learner[Any]) -> None:
        self.name = name
        self.w = {key: tensor.double().numpy() for key, tensor in weights(learner).items()}
        temperature = learner.losses.temperature
        self.alpha = 0.0 if temperature is None else np.log1p(np.exp(self.w["temperature"][0]))

    def features(self, states: np.ndarray) -> Any:
        scaled = (states - self.w["encoder.normalizer.mean"]) / np.sqrt(self.w["encoder.normalizer.var"] + 1e-8)
        return np.clip(scaled, -10, 10)

    def network(self, name: str, x: np.ndarray) -> np.ndarray:
        for layer in (0, 2):
            x = x @ self.w[f"{name}.{layer}.weight"].T + self.w[f"{name}.{layer}.bias"]
            x = np.tanh(x) if layer == 0 else x
        return x

    def policy(self, features: Any, noise: np.ndarray, head: str = "policy_head") -> tuple[Any, Any]:
        """Return actions [N, C, A] and their log-probabilities [N]."""
        if self.name == "sac_flow":
            return self.flow(features, noise)
        output = self.network(head, features)
        if self.name == "td3":
            return np.tanh(output).reshape(noise.shape), None
        mean, raw = output.reshape(-1, 2, CHUNK, DIM).swapaxes(0, 1)
        log_std = LOW + (HIGH - LOW) * (np.tanh(raw) + 1) / 2
        action, slope = squash(mean + np.exp(log_std) * noise)
        return action, (gaussian(noise, log_std) - slope).sum((1, 2))

    def flow(self, features: Any, noise: np.ndarray) -> tuple[Any, Any]:
        """Integrate from the first noise to an action; each step adds noise of the size that the state asks for."""
        raw = self.network("flow.noise.head", features).reshape(-1, CHUNK, DIM)
        log_std = LOW + (HIGH - LOW) * (np.tanh(raw) + 1) / 2
        x, logprobs = noise[:, 0], 0.0
        for step in range(STEPS):
            angles = np.pi * np.array([1, 2, 4, 8]) * step / STEPS
            time = np.tile(np.concatenate([np.sin(angles), np.cos(angles)]), (len(x), 1))
            joined = np.concatenate([features, x.reshape(len(x), -1), time], 1)
            gate, candidate = self.network("flow.network.trunk", joined).reshape(-1, 2, CHUNK, DIM).swapaxes(0, 1)
            x = x + sigmoid(gate) * (candidate - x) / STEPS + np.exp(log_std) * noise[:, step + 1]
            logprobs = logprobs + gaussian(noise[:, step + 1], log_std)
        action, slope = squash(x)
        return action, (logprobs - slope).sum((1, 2))

    def critic(
        self, head: int, features: np.ndarray, action: np.ndarray, name: str = "critic", running: bool = False
    ) -> Any:
        """Value by one critic, layer by layer; indices without weights are activations."""
        x, layer = np.concatenate([features, action.reshape(len(action), -1)], 1), 0
        while any(key.startswith(f"{name}.layers.{index}.") for key in self.w for index in (layer, layer + 1)):
            prefix = f"{name}.layers.{layer}"
            layer += 1
            if f"{prefix}.weight" not in self.w:
                x = np.tanh(x)
                continue
            weight, bias = self.w[f"{prefix}.weight"][head], self.w[f"{prefix}.bias"][head, 0]
            if f"{prefix}.mean" in self.w:
                mean, var = x.mean(0), x.var(0)
                if running:
                    mean, var = self.w[f"{prefix}.mean"][head, 0], self.w[f"{prefix}.var"][head, 0]
                x = (x - mean) / np.sqrt(var + 1e-3) * weight[0] + bias
            elif weight.shape[0] == 1:
                x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight[0] + bias
            else:
                x = x @ weight + bias
        return x[:, 0]

    def critic_loss(self, batch: dict[str, np.ndarray], noise: np.ndarray, members: torch.Tensor | None) -> Any:
        features, following = self.features(batch["states"]), self.features(batch["next_states"])
        if self.name == "td3":
            action, _ = self.policy(following, noise, head="target_policy_head")
            action, logprobs = np.clip(action + np.clip(0.4 * noise, -0.5, 0.5), -1, 1), 0.0
        else:
            action, logprobs = self.policy(following, noise)
        heads = range(5 if self.name == "rlpd" else 2)
        if self.name == "crossq":
            both = [
                self.critic(head, np.concatenate([features, following]), np.concatenate([batch["actions"], action]))
                for head in heads
            ]
            q, next_q = np.split(np.stack(both), 2, axis=1)
        else:
            q = np.stack([self.critic(head, features, batch["actions"]) for head in heads])
            chosen = heads if members is None else members
            next_q = np.stack([self.critic(head, following, action, "target_critic") for head in chosen])
        value = next_q.min(0) - (0.0 if self.name == "rlpd" else self.alpha * logprobs)
        target = batch["rewards"] + GAMMA ** batch["lengths"] * (1 - batch["terminated"]) * value
        return ((q - target) ** 2).mean()

    def actor_loss(self, batch: dict[str, np.ndarray], noise: np.ndarray) -> Any:
        features = self.features(batch["states"])
        action, logprobs = self.policy(features, noise)
        heads = [0] if self.name == "td3" else range(5 if self.name == "rlpd" else 2)
        q = np.stack([self.critic(head, features, action, running=True) for head in heads]).min(0)
        return (-q if logprobs is None else self.alpha * logprobs - q).mean()


def draw(learner: Learner[Any], seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the update batch that this seed leads to, and its noise, as float64 arrays."""
    parts, _ = learner._draw(torch.Generator().manual_seed(seed))

    def joined(pick: Callable[[Any], Any]) -> np.ndarray:
        return torch.cat([pick(rows) for rows, _ in parts]).double().numpy()

    batch = {
        "states": joined(lambda rows: rows.inputs["states"]),
        "next_states": joined(lambda rows: rows.next_inputs["states"]),
        "actions": joined(lambda rows: rows.actions),
        "rewards": joined(lambda rows: rows.rewards),
        "terminated": joined(lambda rows: rows.terminated),
        "lengths": joined(lambda rows: rows.lengths),
    }
    return batch, torch.cat([noise for _, noise in parts]).double().numpy()


def mean(metric: Any) -> float:
    return float(metric[0] / metric[1])


@pytest.mark.parametrize("name", LEARNERS)
def test_an_update_has_the_losses_of_the_equations(name: str) -> None:
    learner = make_learner(**LEARNERS[name])
    train(learner, 1, 3)  # targets differ from what they follow, and running moments from their start
    learner.compute_advantages(make_trajectory(40))
    learner._take_pending()
    members = torch.tensor([3, 1]) if name == "rlpd" else None
    batch, noise = draw(learner, 5)
    assert batch["terminated"].any()
    assert len(set(batch["lengths"])) > 1
    expected = Reference(name, learner).critic_loss(batch, noise, members)
    metrics = learner._update_critics(torch.Generator().manual_seed(5), members)
    assert mean(metrics["critic_loss"]) == pytest.approx(expected, rel=1e-4)
    batch, noise = draw(learner, 6)
    expected = Reference(name, learner).actor_loss(batch, noise)
    metrics = learner._update_policy(torch.Generator().manual_seed(6))
    assert mean(metrics["actor_loss"]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
