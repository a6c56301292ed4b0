"""What becomes of a flow whose weights are known: itself, or what a small policy makes of it."""

from __future__ import annotations

from pathlib import Path

from rlinf.models.base_policy import BasePolicy
from rlinf.models.vla.flow_vla import FlowVLAPolicy, starting_weights
from rlinf.models.vla.published_folder import PublishedWeights
from rlinf.models.vla.refined_policy import RefinedPolicy, action_policy_config
from rlinf.models.vla.steered_policy import SteeredPolicy, noise_policy_config


def finish_flow(flow: FlowVLAPolicy, published: PublishedWeights, folder: Path) -> BasePolicy:
    """Return a flow with the weights of its folder; with ``add_q_head``, the policy that steers or refines it.

    Args:
        flow: On device ``meta``.
        published: Weights of the folder.
        folder: For messages.
    """
    flow.weight_source = starting_weights(flow, published, folder)
    cfg = flow.cfg
    if not cfg.add_q_head:
        return flow.eval()
    if cfg.refine_actions:
        return RefinedPolicy(action_policy_config(flow), flow, dropout=cfg.action_policy.proposal_dropout).eval()
    return SteeredPolicy(noise_policy_config(flow), flow).eval()
