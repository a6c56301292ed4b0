"""A simulator as a guest's adapter, without RLinf: numpy alone. Its numbers are those of ``toy_envs.CountingEnv``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("numpy", "no-such-simulator")


class CountingRow:
    def __init__(
        self,
        *,
        render: bool,
        fail_at: int = -1,
        crash_at: int = -1,
        step_seconds: float = 0.0,
        build_seconds: float = 0.0,
        closed_file: str | None = None,
        counts_resets: bool = False,
        shows_process: bool = False,
        image_size: int = 0,
    ) -> None:
        time.sleep(build_seconds)
        self.action_low, self.action_high = np.full(1, -10.0, np.float32), np.full(1, 10.0, np.float32)
        self.renders, self.fail_at, self.crash_at = render, fail_at, crash_at
        self.step_seconds, self.closed_file = step_seconds, closed_file
        self.seed, self.time, self.image_size = 0, 0, image_size
        self.counts_resets, self.offset = counts_resets, os.getpid() if shows_process else 0

    def reset(self, seed: int) -> dict[str, Any]:
        self.seed, self.time = seed, 0
        self.offset += self.counts_resets
        return self.row()

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, bool]:
        self.time += 1
        time.sleep(self.step_seconds)
        if self.time == self.fail_at:
            raise ValueError("the joint exploded")
        if self.time == self.crash_at:
            os._exit(3)
        return self.row(), float(action[0]) + self.time, self.time >= 3 + self.seed % 5, False, self.time == 2

    def row(self) -> dict[str, Any]:
        size = self.image_size
        image = {"main_images": np.full((size, size, 3), self.seed + self.time, np.uint8)} if size else {}
        return {
            **image,
            "states": np.array([self.seed % 1000, self.time + self.offset], np.float32),
            "task_descriptions": f"count from {self.seed % 1000}",
        }

    def render(self) -> Any:
        return np.full((32, 48, 3), self.time, np.uint8) if self.renders else None

    def close(self) -> None:
        if self.closed_file is not None:
            Path(self.closed_file).touch()


def make(**params: Any) -> CountingRow:
    return CountingRow(**params)
