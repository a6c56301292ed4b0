"""Puts the things of ``PutOnPlate25-v1`` into a scene of ManiSkill, and says where; SAPIEN is imported when called."""

from __future__ import annotations

from typing import Any

import torch

from rlinf.envs.simulators.maniskill.plates_catalog import OBJECTS, PLATES, Part, Thing, Vector
from rlinf.envs.simulators.maniskill.plates_episodes import PlateEpisode
from rlinf.utils.optional import require

_OVERLAY = (0.604, 1.209, 0.0005)
_FRICTION = 1.0
_ROLLING = 8.0
"""Angular damping, which keeps balls and cans from rolling off a plate without a rim."""


def build_thing(scene: Any, thing: Thing, *, name: str, pose: Any) -> Any:
    """Return an actor that moves.

    Args:
        scene: ManiSkill's scene.
        thing: What it is.
        name: The actor's name.
        pose: Where it is at first.
    """
    builder = scene.create_actor_builder()
    for part in thing.parts:
        _add_part(builder, part, thing.colour)
    builder.initial_pose = pose
    actor = builder.build(name=name)
    actor.set_angular_damping(_ROLLING)
    return actor


def build_overlay(scene: Any, colour: Vector, *, name: str, pose: Any) -> Any:
    """Return a sheet as large as the table: it has a colour, and nothing touches it.

    Args:
        scene: ManiSkill's scene.
        colour: Red, green and blue in [0, 1].
        name: The actor's name.
        pose: Where it is at first.
    """
    builder = scene.create_actor_builder()
    builder.add_box_visual(half_size=_OVERLAY, material=_paint(colour))
    builder.initial_pose = pose
    return builder.build_kinematic(name=name)


def object_poses(episodes: list[PlateEpisode]) -> torch.Tensor:
    """Return the objects' poses at the start, position and (w, x, y, z): float32 [F, 7]."""
    halves = torch.tensor([episode.turn / 2 for episode in episodes])
    heights = [OBJECTS[episode.object].half_sizes[2] for episode in episodes]
    places = torch.tensor([[*episode.object_place, z] for episode, z in zip(episodes, heights, strict=True)])
    zeros = torch.zeros_like(halves)
    return torch.cat([places, torch.stack([halves.cos(), zeros, zeros, halves.sin()], -1)], -1)


def plate_poses(episodes: list[PlateEpisode]) -> torch.Tensor:
    """Return the plates' poses at the start: float32 [F, 7]."""
    heights = [PLATES[episode.plate].half_sizes[2] for episode in episodes]
    rows = [[*episode.plate_place, z, 1.0, 0.0, 0.0, 0.0] for episode, z in zip(episodes, heights, strict=True)]
    return torch.tensor(rows)


def _paint(colour: Vector) -> Any:
    render = require("sapien.render", needed_by="PutOnPlate25-v1")
    return render.RenderMaterial(base_color=[*colour, 1.0], roughness=0.6, specular=0.3)


def _add_part(builder: Any, part: Part, colour: Vector) -> None:
    """Add a primitive's collision shape and its looks."""
    sapien = require("sapien", needed_by="PutOnPlate25-v1")
    material = require("sapien.physx", needed_by="PutOnPlate25-v1").PhysxMaterial(_FRICTION, _FRICTION, 0.0)
    x, y, z = part.size
    # SAPIEN's cylinders lie along x.
    turn = [0.5**0.5, 0.0, 0.5**0.5, 0.0] if part.shape == "cylinder" else [1.0, 0.0, 0.0, 0.0]
    sizes: dict[str, dict[str, Any]] = {
        "box": {"half_size": part.size},
        "cylinder": {"radius": x, "half_length": z},
        "sphere": {"radius": x},
        "capsule": {"radius": y, "half_length": x - y},
    }
    pose = sapien.Pose(p=part.at, q=turn)
    getattr(builder, f"add_{part.shape}_collision")(pose=pose, material=material, **sizes[part.shape])
    getattr(builder, f"add_{part.shape}_visual")(pose=pose, material=_paint(colour), **sizes[part.shape])
