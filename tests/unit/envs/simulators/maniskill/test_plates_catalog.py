"""The things of ``PutOnPlate25-v1`` can be named, seen, told apart and grasped."""

import pytest

from rlinf.envs.simulators.maniskill.plates_catalog import COLOURS, OBJECTS, PLATES, SENTENCES, TABLES, Part, Thing

THINGS = [pytest.param(thing, id=thing.name) for thing in (*OBJECTS, *PLATES)]


def test_there_are_as_many_as_the_published_task_has_and_all_differ() -> None:
    assert (len(OBJECTS), len(PLATES), len(TABLES), len(SENTENCES)) == (25, 5, 21, 17)
    assert len({thing.name for thing in (*OBJECTS, *PLATES)}) == 30
    assert len({(thing.parts, thing.colour) for thing in OBJECTS}) == 25
    assert len(set(TABLES)) == 21
    assert len(set(SENTENCES)) == 17


@pytest.mark.parametrize("thing", THINGS)
def test_a_name_has_one_colour(thing: Thing) -> None:
    assert [word for word in thing.name.split() if word in COLOURS] != []
    assert thing.colour in COLOURS.values()


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentences_name_object_and_plate(sentence: str) -> None:
    assert sentence.format(object="A", plate="B").count("A") == 1
    assert sentence.format(object="A", plate="B").count("B") == 1


def test_sizes_are_those_of_the_box_around_all_parts() -> None:
    leaning = Thing(
        "red ell", (Part("box", (0.01, 0.02, 0.03)), Part("sphere", (0.01, 0.01, 0.01), (0.05, -0.04, 0.0)))
    )
    assert leaning.half_sizes == pytest.approx((0.06, 0.05, 0.03))
    assert leaning.colour == COLOURS["red"]


@pytest.mark.parametrize("thing", [pytest.param(thing, id=thing.name) for thing in OBJECTS])
def test_objects_stand_on_their_lowest_point_and_fit_between_fingers(thing: Thing) -> None:
    lowest = min(part.at[2] - part.size[2] for part in thing.parts)
    assert lowest == pytest.approx(-thing.half_sizes[2], abs=1e-6)
    grasped = [part for part in thing.parts if abs(part.at[0]) < part.size[0] and abs(part.at[2]) < part.size[2]]
    assert grasped
    assert max(part.size[1] for part in grasped) <= 0.035  # the gripper opens 0.08 m wide


def test_capsules_are_longer_than_they_are_thick() -> None:
    parts = [part for thing in OBJECTS for part in thing.parts if part.shape == "capsule"]
    assert parts
    assert all(part.size[0] > part.size[1] == part.size[2] for part in parts)
