"""Faults of robots of any kind."""

from tests.mutation.fault import Fault

_ROBOT = ("tests/unit/envs/realworld/test_robot.py",)
_MIGRATE = ("tests/unit/cli/test_migrate_recipe.py",)
_FOLDER = "rlinf/envs/realworld"


def _fault(file: str, before: str, after: str, what: str, tests: tuple[str, ...] = _ROBOT) -> Fault:
    return Fault(file, before, after, tests, what)


FAULTS: list[Fault] = [
    _fault(
        f"{_FOLDER}/robot.py",
        "gymnasium.spaces.Box(-1.0, 1.0, (cfg.action",
        "gymnasium.spaces.Box(-9.0, 9.0, (cfg.action",
        "free",
    ),
    _fault(f"{_FOLDER}/robot.py", "        self._pace.wait()\n", "", "actions do not get their time"),
    _fault(
        f"{_FOLDER}/robot.py",
        "        if state.shape != (self.cfg.state_dim,):\n",
        "        if False:\n",
        "states of another length are not noticed here",
    ),
    _fault(
        f"{_FOLDER}/robot.py",
        "        if hardware and (len(hardware) > 1 or num_envs > 1):\n",
        "        if False:\n",
        "several robots are taken for one",
    ),
    _fault(
        f"{_FOLDER}/robot.py",
        'if robot else f"stand-in {id(self)}"',
        'if False else f"stand-in {id(self)}"',
        "training and evaluation connect twice",
    ),
    _fault(f"{_FOLDER}/robot.py", "        connections.release(self.address)\n", "        pass\n", "robots are kept"),
    _fault(
        f"{_FOLDER}/robot.py",
        "        self.client.reset(seed)\n",
        "        self.client.reset(0)\n",
        "one start",
    ),
    _fault(
        f"{_FOLDER}/cameras.py",
        "    if shapes != [(size, size, 3)] * num_cameras or",
        "    if",
        "images of another size are not noticed",
    ),
    _fault(
        f"{_FOLDER}/cameras.py",
        "    if num_cameras > 1:\n        spaces",
        "    if num_cameras > 9:\n        spaces",
        "further cameras have no space",
    ),
    _fault(
        f"{_FOLDER}/pace.py",
        "self._next_tick, remaining = self.clock.now() + period, period",
        "remaining = 0.0",
        "a late action gets no time",
    ),
    _fault(f"{_FOLDER}/pace.py", "        self._next_tick = self.clock.now()\n", "        pass\n", "an old beat"),
    _fault(f"{_FOLDER}/dummy_robot.py", "distance < _SOLVED, -distance", "False, -distance", "nothing is ever solved"),
    _fault(
        "rlinf/envs/realworld/robot_device.py",
        "        return None if action is None else torch.as_tensor(action, dtype=situation.action.dtype)\n",
        "        return None\n",
        "the operator's device is not read",
    ),
    _fault(
        "rlinf/cli/migrate_values.py",
        '            group = {**group, "hardware": {**hardware, "type": "Robot"}}\n',
        "            pass\n",
        "robots of other kinds are not declared as such",
        _MIGRATE,
    ),
    _fault(
        "rlinf/cli/migrate_values.py",
        '        if operated and (name == "train" or _only_collects(recipe)):\n',
        "        if False:\n",
        "nobody operates the robot",
        _MIGRATE,
    ),
]
