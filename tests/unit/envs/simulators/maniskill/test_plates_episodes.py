"""Sets of ``PutOnPlate25-v1`` are disjoint and of the published sizes; ids name episodes."""

from collections import Counter
from dataclasses import fields

import numpy as np
import pytest

from rlinf.envs.simulators.maniskill.plates_catalog import OBJECTS, PLATES, SENTENCES
from rlinf.envs.simulators.maniskill.plates_episodes import (
    CENTRE,
    LEAST_DISTANCE,
    SPACING,
    PlateSplits,
    place_pairs,
    places,
    turns,
)
from rlinf.errors import ConfigError

AXES = [field.name for field in fields(PlateSplits)]


def splits(name: str) -> PlateSplits:
    return PlateSplits(**dict.fromkeys(AXES, name))


@pytest.mark.parametrize(
    ("kind", "num_train", "num_test"), [("objects", 16, 9), ("plates", 1, 4), ("tables", 16, 5), ("sentences", 1, 16)]
)
def test_sets_share_nothing_and_are_everything_together(kind: str, num_train: int, num_test: int) -> None:
    train, test, everything = (set(getattr(splits(name), kind)) for name in ("train", "test", "all"))
    assert (len(train), len(test)) == (num_train, num_test)
    assert not train & test
    assert train | test == everything


def test_places_of_the_test_set_lie_around_those_of_training() -> None:
    train, test = np.array(places("train")), np.array(places("test"))
    assert (len(train), len(test), len(places("all"))) == (36, 28, 64)
    assert train.mean(0) == pytest.approx(CENTRE)
    assert np.abs(train - CENTRE).max() == pytest.approx(2.5 * SPACING)
    assert np.abs(test - CENTRE).max(1) == pytest.approx(np.full(28, 3.5 * SPACING))


@pytest.mark.parametrize("name", ["train", "test"])
def test_object_and_plate_lie_apart_in_places_of_the_set(name: str) -> None:
    pairs = place_pairs(name)
    assert {place for pair in pairs for place in pair} == set(places(name))
    assert min(np.hypot(*np.subtract(*pair)) for pair in pairs) == pytest.approx(LEAST_DISTANCE)
    assert set(place_pairs("all")) >= set(pairs)


def test_turns_of_the_test_set_are_between_those_of_training() -> None:
    assert np.degrees(turns("train")) == pytest.approx([0, 45, 90, 135])
    assert np.degrees(turns("test")) == pytest.approx([-22.5, -67.5, -112.5, -157.5])
    assert turns("all") == turns("train") + turns("test")


def test_an_id_names_an_episode_and_another_id_another() -> None:
    episodes = [splits("all").episode(number) for number in range(50)]
    assert episodes == [splits("all").episode(number) for number in range(50)]
    assert len(set(episodes)) == 50


def test_ids_in_order_go_through_the_objects() -> None:
    counts = Counter(PlateSplits(obj_set="test").episode(number).object for number in range(90))
    assert counts == dict.fromkeys(range(16, 25), 10)


@pytest.mark.parametrize("axis", AXES)
def test_each_key_changes_its_own_kind_alone(axis: str) -> None:
    """Of 400 episodes those of one kind are of the test set, and all of it occurs; the others are of the train set."""
    own = PlateSplits(**{axis: "test"})
    episodes = [own.episode(number) for number in range(400)]
    seen = {
        "obj_set": {episode.object for episode in episodes},
        "plate_set": {episode.plate for episode in episodes},
        "table_set": {episode.table for episode in episodes},
        "position_set": {place for episode in episodes for place in (episode.object_place, episode.plate_place)},
        "sentence_set": {_template(episode.sentence, episode.object, episode.plate) for episode in episodes},
    }
    for name, values in seen.items():
        expected = "test" if name == axis else "train"
        members = {
            "obj_set": set(splits(expected).objects),
            "plate_set": set(splits(expected).plates),
            "table_set": set(splits(expected).tables),
            "position_set": set(places(expected)),
            "sentence_set": {SENTENCES[number] for number in splits(expected).sentences},
        }[name]
        assert values == members
    assert {episode.turn for episode in episodes} == set(turns("test" if axis == "position_set" else "train"))


def _template(sentence: str, thing: int, plate: int) -> str:
    return sentence.replace(PLATES[plate].name, "{plate}").replace(OBJECTS[thing].name, "{object}")


def test_a_sentence_names_what_is_there() -> None:
    episode = PlateSplits().episode(3)
    assert episode.sentence == "put the yellow block on the white plate"


@pytest.mark.parametrize("axis", AXES)
def test_another_set_is_refused_by_its_key(axis: str) -> None:
    with pytest.raises(ConfigError, match=rf"init_params\.{axis}: received 'val'; allowed: train, test, all\. Choose"):
        PlateSplits(**{axis: "val"})
