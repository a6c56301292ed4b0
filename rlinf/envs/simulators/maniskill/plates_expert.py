"""A program that solves ``PutOnPlate25-v1`` by plain geometry: a grasp from above, a lift, a way through the air."""

from __future__ import annotations

import torch

from rlinf.config.schema.env import EnvConfig, ManiSkillEnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs.scripted import upwards_first
from rlinf.errors import ConfigError

_CONTROL_MODE = "pd_ee_delta_pose"
_PER_METER = 8.0
"""Action for each meter that is left; an action of 1 moves the hand by 10 cm."""
_PER_RAD = 8.0
"""Action for each rad that is left; an action of 1 turns by 0.1 rad."""
_HAND = slice(18, 25)
"""Where ``states`` has the hand's pose: behind nine joints and their velocities."""
_AIM = 0.008
"""How exactly the hand comes over the object before it goes down, sidewise, in meters."""
_TURNED = 0.06
"""How exactly it is turned to it, in rad."""
_REACHED = 0.008
"""How exactly it comes down to it."""
_ABOVE = 0.1
"""Height over the object at which the hand arrives."""
_CARRY = 0.06
"""Height of the object over the plate on the way."""
_OVER_PLATE = 0.015
"""Sidewise distance from the plate's centre within which the object goes down."""
_PLATE_HALF_HEIGHT = 0.006
_LET_GO = 0.006
"""Height over the plate at which the gripper opens."""
_ON_PLATE = 0.05
"""Sidewise distance within which an object that is not held lies on the plate."""


class ManiSkillPlatesExpert:
    """Goes over the object, turns, goes down, closes the gripper, lifts, goes over the plate, goes down and opens.

    What to do follows from the present alone: the hand, the object and whether it is held, and the plate.

    Args:
        env: The environment's configuration.

    Raises:
        ConfigError: The environment does not show where things are, or is moved by other actions.
    """

    def __init__(self, env: EnvConfig) -> None:
        if not isinstance(env, ManiSkillEnvConfig) or not env.show_objects:
            raise ConfigError(
                "the scripted policy maniskill_plates reads where the object and the plate are. Use it with env_type: "
                "maniskill and the task PutOnPlate25-v1, and set show_objects: true in the environment that it acts in."
            )
        mode = env.init_params.get("control_mode")
        if mode != _CONTROL_MODE:
            raise ConfigError(
                f"env.*.init_params.control_mode: received {mode}; the scripted policy maniskill_plates moves the hand "
                f"by {_CONTROL_MODE}. Set it in the environment that it acts in."
            )

    def __call__(self, obs: Observation) -> torch.Tensor:
        """Act for ``states`` [B, 25] or longer and ``objects`` [B, 9]; returns float32 [B, 1, 7]."""
        hand, objects = obs["states"].float().cpu()[:, _HAND], obs["objects"].float().cpu()
        thing, turn, half_height, plate = objects[:, :3], objects[:, 3], objects[:, 4], objects[:, 5:8]
        is_held = objects[:, 8] > 0
        to_thing, to_plate = thing - hand[:, :3], plate - thing
        rest = half_height + _PLATE_HALF_HEIGHT
        gap = -to_plate[:, 2] - rest
        rotation = _turn_left(hand[:, 3:], turn)
        is_over = (to_thing[:, :2].norm(dim=-1) < _AIM) & (rotation[:, 2].abs() < _TURNED)
        is_at = is_over & (to_thing[:, 2].abs() < _REACHED)
        is_over_plate = to_plate[:, :2].norm(dim=-1) < _OVER_PLATE
        is_low = is_over_plate & (gap < _LET_GO)
        is_delivered = ~is_held & (to_plate[:, :2].norm(dim=-1) < _ON_PLATE) & (gap < _LET_GO)

        above = upwards_first(to_thing + torch.tensor([0.0, 0.0, _ABOVE]))
        fetch = torch.where(is_over[:, None], to_thing, above)
        fetch[is_at] = 0.0
        over_plate = upwards_first(torch.cat([to_plate[:, :2], (_CARRY - gap)[:, None]], -1))
        down = torch.cat([to_plate[:, :2], -gap[:, None]], -1)
        carry = torch.where(is_over_plate[:, None], down, over_plate)
        way = torch.where(is_held[:, None], carry, fetch)
        way[is_delivered] = torch.tensor([0.0, 0.0, _ABOVE])
        way[is_low & is_held] = 0.0
        rotation[is_held | is_delivered, 2] = 0.0

        closes = (is_at | is_held) & ~is_low & ~is_delivered
        action = torch.zeros(len(hand), 7)
        action[:, :3] = way * _PER_METER
        # ManiSkill turns against the sign of its action.
        action[:, 3:6] = -rotation * _PER_RAD
        action[:, 6] = torch.where(closes, -1.0, 1.0)
        return action.clamp(-1.0, 1.0).unsqueeze(1)


def _turn_left(quaternion: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Return the rotation that is left, axis times angle [B, 3]: fingers point down and close across the object.

    Args:
        quaternion: The hand's rotation, (w, x, y, z): [B, 4]. Its z axis points where the fingers do.
        turn: The object's turn about the vertical, [B]; half a turn more is as good.
    """
    w, x, y, z = quaternion.unbind(-1)
    pointing = torch.stack([2 * (x * z + w * y), 2 * (y * z - w * x)], -1)
    heading = torch.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))
    about_vertical = torch.remainder(turn - heading + torch.pi / 2, torch.pi) - torch.pi / 2
    # The axis is the cross product of where the fingers point and of straight down.
    return torch.stack([-pointing[:, 1], pointing[:, 0], about_vertical], -1)
