"""Faults of the task ``PutOnPlate25-v1``: its sets, its rules, its scenes, and the program that solves it.

There are none of ``plates.py``, whose tests need ManiSkill.
"""

from __future__ import annotations

from tests.mutation.fault import Fault

_TESTS = "tests/unit/envs/simulators/maniskill"
_FOLDER = "rlinf/envs/simulators/maniskill"


def _fault(part: str, before: str, after: str, what: str) -> Fault:
    name = f"plates{part}"
    return Fault(f"{_FOLDER}/{name}.py", before, after, (f"{_TESTS}/test_{name}.py",), what)


FAULTS: list[Fault] = [
    _fault(
        "_catalog",
        "max(abs(part.at[axis]) + part.size[axis] for part in self.parts)",
        "max(part.at[axis] + part.size[axis] for part in self.parts)",
        "the box around a thing forgets parts on its other side",
    ),
    _fault(
        "_catalog",
        "_box(0.014, 0.014, 0.014, at=(0.0, 0.0, 0.012))",
        "_box(0.014, 0.014, 0.014, at=(0.0, 0.0, 0.022))",
        "the tower begins below the table",
    ),
    _fault(
        "_episodes",
        '"test": [cell for cell in outer if cell not in inner]',
        '"test": outer',
        "places of training are among those of the test set",
    ),
    _fault(
        "_episodes",
        '"test": range(num_train, num_all)',
        '"test": range(num_train - 1, num_all)',
        "the last thing of training is in the test set",
    ),
    _fault(
        "_episodes",
        "self.objects[reset_state_id % len(self.objects)]",
        "self.objects[generator.integers(len(self.objects))]",
        "ids in order do not go through the objects",
    ),
    _fault(
        "_episodes",
        "generator = np.random.default_rng(reset_state_id)",
        "generator = np.random.default_rng()",
        "an id names another episode each time",
    ),
    _fault(
        "_episodes",
        "place_pairs(self.position_set), turns(self.position_set)",
        'place_pairs(self.position_set), turns("train")',
        "objects of the test set are turned as in training",
    ),
    _fault("_episodes", ">= LEAST_DISTANCE]", ">= 0.1]", "plates touch what has to be put on them"),
    _fault(
        "_episodes",
        "_members(self.sentence_set, NUM_TRAIN_SENTENCES",
        "_members(self.obj_set, NUM_TRAIN_SENTENCES",
        "new objects come with new sentences",
    ),
    _fault(
        "_rules",
        "plate_sizes.amax(-1) + _BEYOND_EDGE",
        "2 * plate_sizes.amax(-1) + _BEYOND_EDGE",
        "success has the plate's whole width for its half",
    ),
    _fault(
        "_rules",
        "gaps = offsets[:, 2] - plate_sizes[:, 2] - half_heights",
        "gaps = offsets[:, 2] - plate_sizes[:, 2]",
        "the object's own height counts as a distance from the plate",
    ),
    _fault("_rules", " & (forces >= _LEAST_FORCE)", "", "the object need not touch the plate"),
    _fault("_rules", " & (offsets[:, 2] > 0)", "", "the object may be below the plate"),
    _fault(
        "_rules",
        "torch.where(is_held, self._counts + 1, 0)",
        "self._counts + is_held.long()",
        "steps in a row may have others between them",
    ),
    _fault("_rules", "is_new = steps > self._steps", "is_new = steps > 0", "looking twice counts a step twice"),
    _fault(
        "_rules",
        "for tensor in (self._steps, self._counts, self.was_held, self.was_held_long):",
        "for tensor in (self._steps, self.was_held, self.was_held_long):",
        "a hold goes on from the episode before",
    ),
    _fault("_rules", "(success & self.was_held).float()", "success.float()", "success counts without a hold"),
    _fault(
        "_expert",
        "action[:, 3:6] = -rotation * _PER_RAD",
        "action[:, 3:6] = rotation * _PER_RAD",
        "the hand turns the wrong way",
    ),
    _fault(
        "_expert",
        "torch.remainder(turn - heading + torch.pi / 2, torch.pi) - torch.pi / 2",
        "turn - heading",
        "the hand turns by more than a quarter",
    ),
    _fault(
        "_expert",
        " & (rotation[:, 2].abs() < _TURNED)",
        "",
        "the hand goes down while it still turns",
    ),
    _fault(
        "_expert",
        "closes = (is_at | is_held) & ~is_low & ~is_delivered",
        "closes = (is_at | is_held) & ~is_delivered",
        "the gripper does not open over the plate",
    ),
    _fault(
        "_expert",
        "torch.stack([-pointing[:, 1], pointing[:, 0], about_vertical], -1)",
        "torch.stack([pointing[:, 1], -pointing[:, 0], about_vertical], -1)",
        "a hand that leans is tipped over",
    ),
    Fault(
        f"{_FOLDER}/plates_scene.py",
        "torch.stack([halves.cos(), zeros, zeros, halves.sin()], -1)",
        "torch.stack([halves.cos(), zeros, halves.sin(), zeros], -1)",
        (f"{_TESTS}/test_plates_scene.py",),
        "objects are tipped over rather than turned",
    ),
    Fault(
        f"{_FOLDER}/plates_scene.py",
        'if part.shape == "cylinder" else',
        'if part.shape == "capsule" else',
        (f"{_TESTS}/test_plates_scene.py",),
        "cans and plates lie on their sides",
    ),
]
