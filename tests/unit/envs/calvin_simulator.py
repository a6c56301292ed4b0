"""CALVIN's simulator and oracle as the adapter calls them, without PyBullet: a counter of steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


class FakeCamera:
    def __init__(self, name: str, simulator: FakeSimulator) -> None:
        self.name, self.simulator = name, simulator

    def render(self) -> tuple[np.ndarray, None]:
        self.simulator.rendered.append(self.name)
        return np.full((8, 8, 3), self.simulator.time, np.uint8), None


class FakeSimulator:
    """Counts its steps; each is an info."""

    def __init__(self) -> None:
        self.cid, self.time, self.ownsPhysicsClient = 3, 0, True
        self.calls: list[Any] = []
        self.rendered: list[str] = []
        self.actions: list[np.ndarray] = []
        self.cameras = [FakeCamera("static", self), FakeCamera("gripper", self)]
        self.robot = SimpleNamespace(gripper_action=-1)
        self.scene = SimpleNamespace(buttons=[SimpleNamespace(prev_is_pressed=True)])
        self.p = SimpleNamespace(
            saveState=lambda **client: 7,
            restoreState=lambda state, **client: self.calls.append(("restore", state, *client.values())),
            stepSimulation=lambda **client: self.calls.append(("step", *client.values())),
        )

    def reset(self, robot_obs: np.ndarray, scene_obs: np.ndarray) -> None:
        self.time = 0
        self.calls.append(("reset", robot_obs, scene_obs))

    def step(self, action: np.ndarray) -> tuple[None, int, bool, int]:
        self.time += 1
        self.actions.append(action)
        return None, 0, False, self.time

    def get_info(self) -> int:
        return self.time

    def get_state_obs(self) -> dict[str, np.ndarray]:
        return {"robot_obs": np.full(15, self.time, np.float64)}

    def close(self) -> None:
        self.calls.append("close")


class FakeOracle:
    """A task is solved some steps after it began.

    Args:
        steps: By task.
    """

    def __init__(self, steps: dict[str, int]) -> None:
        self.steps = steps

    def get_task_info_for_set(self, start: int, end: int, tasks: set[str]) -> set[str]:
        return {task for task in tasks if end - start >= self.steps.get(task, 10**6)}
