"""What becomes of a flow whose weights are known: itself, or what a small policy makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rlinf.models.base_policy import BasePolicy
from rlinf.models.vla.flow_vla import FlowVLAPolicy, starting_weights
from rlinf.models.vla.published_folder import PublishedWeights
from rlinf.models.vla.refined_policy import RefinedPolicy, action_policy_config
from rlinf.models.vla.rl_token import token_components
from rlinf.models.vla.steered_policy import SteeredPolicy, noise_policy_config


def finish_flow(
    flow: FlowVLAPolicy,
    folder: Path,
    *,
    tied: Mapping[str, str] | None = None,
    unused: Sequence[str] = (),
    prefix: str = "",
) -> BasePolicy:
    """Return a flow with the weights of its folder; with ``add_q_head``, the policy that steers or refines it.

    A flow whose token alone is trained keeps its weights.

    Args:
        flow: On device ``meta``.
        folder: Of its weights.
        tied: Other names of tensors; see ``PublishedWeights``.
        unused: Tensors that policies do not need.
        prefix: What files have in front of the model's names.

    Raises:
        ConfigError: The folder has not the weights of this model.
    """
    cfg = flow.cfg
    components, unused_parts = token_components(cfg, folder)
    published = PublishedWeights(folder, components, tied=tied, unused=unused, prefix=prefix, unused_parts=unused_parts)
    flow.weight_source = starting_weights(flow, published, folder)
    if not cfg.add_q_head:
        if flow.rlt_module is not None and not cfg.rlt.vla_loss_weight:
            flow.requires_grad_(False)
            flow.rlt_module.requires_grad_(True)
        return flow.eval()
    if cfg.refine_actions:
        return RefinedPolicy(action_policy_config(flow), flow, dropout=cfg.action_policy.proposal_dropout).eval()
    return SteeredPolicy(noise_policy_config(flow), flow).eval()
