"""A program that solves tasks of ``libero_object``: pick up an object and put it into the basket."""

from __future__ import annotations

import torch

from rlinf.config.schema.env import EnvConfig, LiberoEnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs.scripted import upwards_first
from rlinf.errors import ConfigError

_PER_METER = 12.0
"""Action for each meter that is left; an action of 1 moves the controller's goal by 5 cm."""
_AIM = 0.015
"""How exactly the hand comes over an object before it goes down, sidewise, in meters."""
_REACHED = 0.015
"""How exactly it comes down to it."""
_ABOVE = 0.12
"""Height over the object at which the hand arrives."""
_CARRY = 0.25
"""Height over the basket at which the hand carries."""
_OVER_BASKET = 0.04
"""Sidewise distance from the basket's centre within which the gripper opens."""


class LiberoObjectExpert:
    """Goes over the object, down, closes the gripper, lifts, goes over the basket and opens.

    What to do follows from the present alone: the hand, the object and whether it is held, and the basket.

    Args:
        env: The environment's configuration.

    Raises:
        ConfigError: The environment does not show where the objects are.
    """

    def __init__(self, env: EnvConfig) -> None:
        if not isinstance(env, LiberoEnvConfig) or not env.show_objects:
            raise ConfigError(
                "the scripted policy libero_object reads where the object and the basket are. Use it with env_type: "
                "libero and task_suite_name: libero_object, and set show_objects: true in the environment that it acts "
                "in."
            )

    def __call__(self, obs: Observation) -> torch.Tensor:
        """Act for ``states`` [B, 8] and ``objects`` [B, 7]; returns float32 [B, 1, 7]."""
        hand, objects = obs["states"].float().cpu()[:, :3], obs["objects"].float().cpu()
        grasp = objects[:, :3] - hand
        basket = objects[:, 3:6] - hand + torch.tensor([0.0, 0.0, _CARRY])
        is_held = objects[:, 6] > 0
        is_delivered = basket[:, :2].norm(dim=-1) < _OVER_BASKET
        is_over = grasp[:, :2].norm(dim=-1) < _AIM
        is_at = is_over & (grasp[:, 2].abs() < _REACHED)
        above = grasp + torch.tensor([0.0, 0.0, _ABOVE])
        fetch = torch.where(is_over.unsqueeze(-1), grasp, upwards_first(above))
        way = torch.where(is_held.unsqueeze(-1), upwards_first(basket), fetch)
        way[is_at & ~is_held] = 0.0
        closes = (is_at | is_held) & ~is_delivered
        action = torch.zeros(len(hand), 7)
        action[:, :3] = (way * _PER_METER).clamp(-1.0, 1.0)
        action[:, 6] = torch.where(closes, 1.0, -1.0)
        return action.unsqueeze(1)
