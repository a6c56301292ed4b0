"""How things of ``PutOnPlate25-v1`` are put together and where they lie, with a recorder in SAPIEN's place."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from rlinf.envs.simulators.maniskill.plates_catalog import OBJECTS, PLATES, Part, Thing
from rlinf.envs.simulators.maniskill.plates_episodes import PlateSplits
from rlinf.envs.simulators.maniskill.plates_scene import build_overlay, build_thing, object_poses, plate_poses


class Recorder:
    """A scene, its builder and an actor: keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.damping = 0.0

    def create_actor_builder(self) -> "Recorder":
        return self

    def build(self, name: str) -> "Recorder":
        self.calls.append(("build", {"name": name}))
        return self

    def build_kinematic(self, name: str) -> "Recorder":
        self.calls.append(("build_kinematic", {"name": name}))
        return self

    def set_angular_damping(self, damping: float) -> None:
        self.damping = damping

    def __getattr__(self, name: str) -> Any:
        return lambda **kwargs: self.calls.append((name, kwargs))


@pytest.fixture(autouse=True)
def _sapien(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sapien", "sapien.physx", "sapien.render"):
        module = ModuleType(name)
        module.Pose = lambda p, q: SimpleNamespace(p=p, q=q)
        module.PhysxMaterial = lambda *values: values
        module.RenderMaterial = lambda **kwargs: kwargs
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(
    ("part", "size", "turned"),
    [
        (Part("box", (0.01, 0.02, 0.03)), {"half_size": (0.01, 0.02, 0.03)}, False),
        (Part("cylinder", (0.02, 0.02, 0.03)), {"radius": 0.02, "half_length": 0.03}, True),
        (Part("sphere", (0.02, 0.02, 0.02)), {"radius": 0.02}, False),
        (Part("capsule", (0.05, 0.02, 0.02)), {"radius": 0.02, "half_length": 0.03}, False),
    ],
)
def test_a_part_is_seen_as_it_is_felt(part: Part, size: dict[str, Any], turned: bool) -> None:
    scene = Recorder()
    assert build_thing(scene, Thing("red thing", (part,)), name="object_0", pose=None).damping > 0
    (felt, shape), (seen, looks), last = scene.calls
    assert (felt, seen) == (f"add_{part.shape}_collision", f"add_{part.shape}_visual")
    assert last == ("build", {"name": "object_0"})
    for call in (shape, looks):
        assert {key: pytest.approx(call[key]) for key in size} == size
        # SAPIEN's cylinders lie along x: turned about y they stand.
        assert call["pose"].q == pytest.approx([0.5**0.5, 0, 0.5**0.5, 0] if turned else [1, 0, 0, 0])
    assert looks["material"]["base_color"][:3] == [0.8, 0.07, 0.06]


def test_parts_are_where_the_catalog_says() -> None:
    scene = Recorder()
    thing = next(thing for thing in OBJECTS if thing.name == "purple tower")
    build_thing(scene, thing, name="object_14", pose="somewhere")
    places = [call["pose"].p for name, call in scene.calls if name.endswith("collision")]
    assert places == [part.at for part in thing.parts]
    assert scene.initial_pose == "somewhere"


def test_nothing_touches_the_sheet_that_colours_the_table() -> None:
    scene = Recorder()
    build_overlay(scene, (0.1, 0.2, 0.3), name="table_0", pose=None)
    assert [name for name, _ in scene.calls] == ["add_box_visual", "build_kinematic"]
    assert scene.calls[0][1]["material"]["base_color"] == [0.1, 0.2, 0.3, 1.0]


def test_things_begin_on_the_table_turned_about_the_vertical() -> None:
    splits = PlateSplits(obj_set="all", plate_set="all", position_set="all")
    episodes = [splits.episode(number) for number in range(6)]
    objects, plates = object_poses(episodes), plate_poses(episodes)
    for episode, thing, plate in zip(episodes, objects, plates, strict=True):
        height = OBJECTS[episode.object].half_sizes[2]
        half = torch.tensor(episode.turn / 2)
        expected = [*episode.object_place, height, float(half.cos()), 0.0, 0.0, float(half.sin())]
        assert thing.tolist() == pytest.approx(expected)
        assert plate.tolist() == pytest.approx([*episode.plate_place, PLATES[episode.plate].half_sizes[2], 1, 0, 0, 0])
