"""What ``PutOnPlate25-v1`` is made of: objects, plates, tables and sentences; imports neither torch nor ManiSkill.

Lists begin with what training uses. The published task of 25 objects has meshes and photographs in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Vector = tuple[float, float, float]
Shape = Literal["box", "cylinder", "sphere", "capsule"]

COLOURS: dict[str, Vector] = {
    "black": (0.05, 0.05, 0.06),
    "blue": (0.08, 0.2, 0.85),
    "brown": (0.4, 0.2, 0.08),
    "cyan": (0.1, 0.75, 0.8),
    "green": (0.1, 0.6, 0.15),
    "orange": (0.95, 0.45, 0.05),
    "pink": (0.95, 0.45, 0.65),
    "purple": (0.45, 0.12, 0.65),
    "red": (0.8, 0.07, 0.06),
    "white": (0.95, 0.95, 0.95),
    "yellow": (0.95, 0.85, 0.1),
}


@dataclass(frozen=True, slots=True)
class Part:
    """A primitive of which things are made.

    Attributes:
        shape: A box along the axes, a cylinder that stands, a sphere, or a capsule that lies along x.
        size: Half sizes along x, y and z in meters: of a cylinder (r, r, h), of a sphere (r, r, r), and of a capsule
            (h + r, r, r).
        at: Its centre in the thing's frame.
    """

    shape: Shape
    size: Vector
    at: Vector = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Thing:
    """An object or a plate. The origin is in the middle of its height; fingers that close along y grasp it there.

    Attributes:
        name: As sentences call it; a colour is one of its words.
        parts: What it is made of.
    """

    name: str
    parts: tuple[Part, ...]

    @property
    def colour(self) -> Vector:
        """Red, green and blue in [0, 1]."""
        return next(COLOURS[word] for word in self.name.split() if word in COLOURS)

    @property
    def half_sizes(self) -> Vector:
        """Half sizes of the box around it that has its centre in the origin, in meters."""
        x, y, z = (max(abs(part.at[axis]) + part.size[axis] for part in self.parts) for axis in range(3))
        return x, y, z


def _box(x: float, y: float, z: float, at: Vector = (0.0, 0.0, 0.0)) -> Part:
    return Part("box", (x, y, z), at)


def _ball(radius: float, at: Vector = (0.0, 0.0, 0.0)) -> Part:
    return Part("sphere", (radius, radius, radius), at)


def _can(radius: float, half_height: float) -> Part:
    return Part("cylinder", (radius, radius, half_height))


def _sausage(radius: float, half_length: float) -> Part:
    return Part("capsule", (half_length, radius, radius))


_CROSS = (_box(0.034, 0.012, 0.016), _box(0.012, 0.034, 0.016))
_HAMMER = (_box(0.034, 0.012, 0.014), _box(0.01, 0.026, 0.014, at=(0.026, 0.0, 0.0)))
_DUMBBELL = (_ball(0.018, at=(-0.022, 0.0, 0.0)), _ball(0.018, at=(0.022, 0.0, 0.0)), _sausage(0.014, 0.03))
_TOWER = (_box(0.022, 0.022, 0.012, at=(0.0, 0.0, -0.014)), _box(0.014, 0.014, 0.014, at=(0.0, 0.0, 0.012)))
_ARCH = (
    _box(0.008, 0.016, 0.008, at=(-0.022, 0.0, -0.012)),
    _box(0.008, 0.016, 0.008, at=(0.022, 0.0, -0.012)),
    _box(0.03, 0.016, 0.012, at=(0.0, 0.0, 0.008)),
)

OBJECTS: tuple[Thing, ...] = (
    Thing("red cube", (_box(0.02, 0.02, 0.02),)),
    Thing("small blue cube", (_box(0.016, 0.016, 0.016),)),
    Thing("large green cube", (_box(0.026, 0.026, 0.026),)),
    Thing("yellow block", (_box(0.03, 0.016, 0.016),)),
    Thing("tall purple block", (_box(0.016, 0.016, 0.03),)),
    Thing("flat orange block", (_box(0.026, 0.02, 0.013),)),
    Thing("white ball", (_ball(0.02),)),
    Thing("large red ball", (_ball(0.026),)),
    Thing("green can", (_can(0.02, 0.025),)),
    Thing("small yellow can", (_can(0.016, 0.02),)),
    Thing("blue sausage", (_sausage(0.016, 0.04),)),
    Thing("short pink sausage", (_sausage(0.02, 0.032),)),
    Thing("orange cross", _CROSS),
    Thing("black dumbbell", _DUMBBELL),
    Thing("purple tower", _TOWER),
    Thing("cyan hammer", _HAMMER),
    Thing("orange cube", (_box(0.018, 0.018, 0.018),)),
    Thing("large white cube", (_box(0.026, 0.026, 0.026),)),
    Thing("small green ball", (_ball(0.016),)),
    Thing("black can", (_can(0.02, 0.025),)),
    Thing("large blue can", (_can(0.026, 0.03),)),
    Thing("yellow sausage", (_sausage(0.016, 0.04),)),
    Thing("pink cross", _CROSS),
    Thing("red hammer", _HAMMER),
    Thing("brown arch", _ARCH),
)
NUM_TRAIN_OBJECTS = 16

PLATES: tuple[Thing, ...] = (
    Thing("white plate", (_can(0.075, 0.006),)),
    Thing("blue plate", (_can(0.075, 0.006),)),
    Thing("small red plate", (_can(0.06, 0.006),)),
    Thing("large yellow plate", (_can(0.09, 0.006),)),
    Thing("black plate", (_can(0.068, 0.006),)),
)
NUM_TRAIN_PLATES = 1

TABLES: tuple[Vector, ...] = (
    (0.55, 0.4, 0.26),
    (0.4, 0.27, 0.16),
    (0.7, 0.58, 0.42),
    (0.3, 0.3, 0.32),
    (0.5, 0.5, 0.5),
    (0.68, 0.68, 0.66),
    (0.25, 0.35, 0.3),
    (0.4, 0.5, 0.38),
    (0.55, 0.62, 0.5),
    (0.24, 0.3, 0.42),
    (0.4, 0.48, 0.6),
    (0.58, 0.66, 0.74),
    (0.45, 0.28, 0.3),
    (0.6, 0.44, 0.42),
    (0.74, 0.6, 0.58),
    (0.6, 0.56, 0.36),
    (0.12, 0.1, 0.14),
    (0.85, 0.8, 0.6),
    (0.1, 0.32, 0.36),
    (0.5, 0.3, 0.55),
    (0.35, 0.12, 0.14),
)
"""Colours of the table."""
NUM_TRAIN_TABLES = 16

SENTENCES: tuple[str, ...] = (
    "put the {object} on the {plate}",
    "place the {object} on the {plate}",
    "lay the {object} down on the {plate}",
    "the {object} goes on the {plate}",
    "move the {object} onto the {plate}",
    "bring the {object} to the {plate}",
    "let the {object} rest on the {plate}",
    "the {plate} is where the {object} should be",
    "serve the {object} on the {plate}",
    "grab the {object} and leave it on the {plate}",
    "onto the {plate} with the {object}",
    "would you put the {object} on the {plate}?",
    "I want the {object} on the {plate}.",
    "use the {plate} to hold the {object}",
    "lift the {object} off the table, then set it on the {plate}",
    "carry the {object} over and put it onto the {plate}",
    "the {object} belongs on the {plate}",
)
NUM_TRAIN_SENTENCES = 1
