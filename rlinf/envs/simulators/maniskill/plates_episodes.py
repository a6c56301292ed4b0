"""Which object, plate, table, sentence and places an episode of ``PutOnPlate25-v1`` has; no torch, no ManiSkill."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import product

import numpy as np

from rlinf.envs.simulators.maniskill.plates_catalog import (
    NUM_TRAIN_OBJECTS,
    NUM_TRAIN_PLATES,
    NUM_TRAIN_SENTENCES,
    NUM_TRAIN_TABLES,
    OBJECTS,
    PLATES,
    SENTENCES,
    TABLES,
)
from rlinf.errors import ConfigError

Place = tuple[float, float]
SETS = ("train", "test", "all")

CENTRE = (-0.06, 0.0)
"""Of the area where things lie, in meters; the arm's base is at x = -0.615."""
SPACING = 0.05
"""Between neighbouring places of the grid."""
LEAST_DISTANCE = 0.15
"""Between the centres of object and plate: open fingers fit between them."""
_EDGE = 6
_TURN = np.pi / 8


def places(name: str) -> list[Place]:
    """Return the places of a set: of ``train`` a grid of 6 by 6, and of ``test`` the 28 places around it."""
    numbers = range(-1, _EDGE + 1)
    outer = [(row, column) for row in numbers for column in numbers]
    inner = [(row, column) for row, column in outer if 0 <= row < _EDGE and 0 <= column < _EDGE]
    cells = {"train": inner, "test": [cell for cell in outer if cell not in inner], "all": outer}[name]
    middle = (_EDGE - 1) / 2
    return [(CENTRE[0] + SPACING * (row - middle), CENTRE[1] + SPACING * (column - middle)) for row, column in cells]


def place_pairs(name: str) -> list[tuple[Place, Place]]:
    """Return where object and plate may lie: two places of one set that are far enough apart."""
    if name == "all":
        return place_pairs("train") + place_pairs("test")
    pairs = product(places(name), repeat=2)
    return [(first, second) for first, second in pairs if np.hypot(*np.subtract(first, second)) >= LEAST_DISTANCE]


def turns(name: str) -> list[float]:
    """Return how objects may be turned, in rad: by multiples of 45 degrees, or by those and 22.5 degrees less."""
    train = [2 * _TURN * number for number in range(4)]
    test = [-_TURN * (2 * number + 1) for number in range(4)]
    return {"train": train, "test": test, "all": train + test}[name]


@dataclass(frozen=True, slots=True)
class PlateEpisode:
    """What an episode begins with.

    Attributes:
        object: Number in ``OBJECTS``.
        plate: Number in ``PLATES``.
        table: Number in ``TABLES``.
        sentence: The task in words.
        object_place: x and y of the object in meters.
        plate_place: x and y of the plate in meters.
        turn: The object's rotation about the vertical, in rad.
    """

    object: int
    plate: int
    table: int
    sentence: str
    object_place: Place
    plate_place: Place
    turn: float


@dataclass(frozen=True, kw_only=True)
class PlateSplits:
    """The sets that episodes are made of: ``train``, ``test`` or ``all`` of each kind.

    Attributes:
        obj_set: Objects: 16 and 9.
        plate_set: Plates: 1 and 4.
        table_set: Colours of the table: 16 and 5.
        position_set: Places and turns: a grid, and what lies around it.
        sentence_set: Sentences: 1 and 16.
    """

    obj_set: str = "train"
    plate_set: str = "train"
    table_set: str = "train"
    position_set: str = "train"
    sentence_set: str = "train"

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) not in SETS:
                raise ConfigError(
                    f"env.*.init_params.{field.name}: received '{getattr(self, field.name)}'; allowed: "
                    f"{', '.join(SETS)}. Choose what episodes are made of."
                )

    @property
    def objects(self) -> range:
        """Numbers of the objects."""
        return _members(self.obj_set, NUM_TRAIN_OBJECTS, len(OBJECTS))

    @property
    def plates(self) -> range:
        """Numbers of the plates."""
        return _members(self.plate_set, NUM_TRAIN_PLATES, len(PLATES))

    @property
    def tables(self) -> range:
        """Numbers of the tables."""
        return _members(self.table_set, NUM_TRAIN_TABLES, len(TABLES))

    @property
    def sentences(self) -> range:
        """Numbers of the sentences."""
        return _members(self.sentence_set, NUM_TRAIN_SENTENCES, len(SENTENCES))

    def episode(self, reset_state_id: int) -> PlateEpisode:
        """Return the episode that an id names: ids go through the objects, and sample everything else.

        Args:
            reset_state_id: Not negative.
        """
        generator = np.random.default_rng(reset_state_id)
        thing = self.objects[reset_state_id % len(self.objects)]
        plate = self.plates[generator.integers(len(self.plates))]
        pairs, angles = place_pairs(self.position_set), turns(self.position_set)
        object_place, plate_place = pairs[generator.integers(len(pairs))]
        template = SENTENCES[self.sentences[generator.integers(len(self.sentences))]]
        return PlateEpisode(
            object=thing,
            plate=plate,
            table=self.tables[generator.integers(len(self.tables))],
            sentence=template.format(object=OBJECTS[thing].name, plate=PLATES[plate].name),
            object_place=object_place,
            plate_place=plate_place,
            turn=angles[generator.integers(len(angles))],
        )


def _members(name: str, num_train: int, num_all: int) -> range:
    return {"train": range(num_train), "test": range(num_train, num_all), "all": range(num_all)}[name]
