"""A frozen flow whose first noise a small policy chooses, learned by soft actor-critic in the space of noise.

After DSRL (Wagenmaker et al., 2025, arXiv 2506.15799): without noise in its steps, a flow is a function of its first
noise, and the environment behind it has noise as its actions. Neither gradients nor targets pass through the flow.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from rlinf.config.schema.model import CNNPolicyConfig
from rlinf.data.messages.embodied import Observation, PolicyOutput
from rlinf.errors import AlgorithmError
from rlinf.models.base_policy import Mode
from rlinf.models.control.cnn_policy import ImageEncoder
from rlinf.models.control.squashed_mlp_policy import SquashedMLPPolicy
from rlinf.models.files.tensor_files import RowSource
from rlinf.models.vla.flow_inputs import FlowInputs
from rlinf.models.vla.flow_vla import FlowVLAPolicy
from rlinf.models.vla.image_resizing import resize
from rlinf.models.vla.observed import image_of, states_of

_FLOW = "flow."
"""What stands before the flow's names."""


class SteeredPolicy(SquashedMLPPolicy):
    """Chooses ``D`` numbers, with which each of the ``H`` actions of a frozen flow starts.

    ``forward_inputs["action"]`` and log-probabilities, both [N, 1, D], are those of the noise in (-1, 1), which critics
    value; the flow starts from ``noise_scale`` times it.

    Args:
        cfg: Keys of the policy over noise, whose actions are the noise.
        flow: The flow, which keeps its weights.
    """

    flow: FlowVLAPolicy

    def __init__(self, cfg: CNNPolicyConfig, flow: FlowVLAPolicy) -> None:
        super().__init__(cfg, SteeringEncoder(cfg, flow.inputs))
        own = {name: tensor.detach().clone() for name, tensor in self.state_dict().items()}
        self.flow = flow.requires_grad_(False)
        if flow.weight_source is not None:
            self.weight_source = SteeredWeights(flow.weight_source, own)

    @torch.no_grad()
    def predict_action_batch(
        self, obs: Observation, *, mode: Mode, generator: torch.Generator | None = None
    ) -> tuple[torch.Tensor, PolicyOutput]:
        """See ``BasePolicy``; all that is random is the noise."""
        noise, output = super().predict_action_batch(obs, mode=mode, generator=generator)
        return self.flow.actions_from(obs, noise.expand(-1, self.flow.horizon, -1)), output

    def forward_inputs_of(self, obs: Observation, actions: torch.Tensor) -> dict[str, torch.Tensor]:
        """See ``BasePolicy``.

        Raises:
            AlgorithmError: Always: the noise that leads to given actions is not known.
        """
        raise AlgorithmError(
            "actor.model.add_q_head: a policy that steers a flow's noise cannot learn from actions of others, whose "
            "noise is not known. Remove the wrapper 'intervention', or train the flow itself."
        )

    def shard_units(self) -> list[nn.Module]:
        """See ``BasePolicy``: those of the flow, too."""
        return [*super().shard_units(), *self.flow.shard_units()]

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``: the flow has no backward pass."""
        return super().shard_units()


class SteeringEncoder(ImageEncoder):
    """Features of small images and of states that are normalised as the flow's are.

    Args:
        cfg: Keys of the policy over noise.
        inputs: Of the flow.
    """

    def __init__(self, cfg: CNNPolicyConfig, inputs: FlowInputs) -> None:
        super().__init__(cfg)
        self._inputs = inputs

    def observe(self, obs: Observation, device: torch.device) -> dict[str, torch.Tensor]:
        """See ``Encoder``."""
        seen: Observation = {key: resize(image_of(obs, key), self.cfg.camera_size, "bilinear") for key in self.cameras}
        states = self._inputs.states
        seen["states"] = states.normalize(states_of(obs, len(states)).float().cpu())
        return super().observe(seen, device)


class SteeredWeights:
    """A frozen flow's weights as they are stored, and the first ones of the small policy around it.

    Args:
        flow: Weights of the flow, by its own names.
        own: All other weights and buffers, by name.
    """

    def __init__(self, flow: RowSource, own: Mapping[str, torch.Tensor]) -> None:
        self._flow, self._own = flow, own

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        stored = {f"{_FLOW}{name}": shape for name, shape in self._flow.shapes().items()}
        return stored | {name: tuple(tensor.shape) for name, tensor in self._own.items()}

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Return rows of a tensor, the same on every rank."""
        if name.startswith(_FLOW):
            return self._flow.rows(name.removeprefix(_FLOW), begin, end)
        start = self._own[name]
        return start[begin:end] if start.ndim else start


def noise_policy_config(flow: FlowVLAPolicy) -> CNNPolicyConfig:
    """Return the keys of the policy over noise.

    Args:
        flow: The flow, whose noise (``D`` numbers) it chooses.
    """
    cfg, keys = flow.cfg, flow.cfg.noise_policy
    return CNNPolicyConfig(
        model_type=cfg.model_type,
        add_q_head=True,
        num_q_heads=cfg.num_q_heads,
        q_head_type=cfg.q_head_type,
        obs_dim=len(flow.inputs.states),
        action_dim=flow.padded_dim,
        action_scale=keys.noise_scale,
        hidden_dims=keys.hidden_dims,
        activation=keys.activation,
        initial_log_std=keys.initial_log_std,
        image_keys=keys.image_keys,
        image_size=[keys.image_size, keys.image_size],
        encoder=keys.encoder,
        latent_dim=keys.latent_dim,
        random_shift=keys.random_shift,
    )
