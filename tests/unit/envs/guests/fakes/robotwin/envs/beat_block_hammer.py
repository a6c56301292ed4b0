"""A task of RoboTwin."""

from __future__ import annotations

from typing import Any

from envs._base_task import Base_Task

TASKS: list[beat_block_hammer] = []


class beat_block_hammer(Base_Task):  # noqa: N801 - as in RoboTwin
    """Beaten after some actions."""

    def __init__(self) -> None:
        super().__init__()
        TASKS.append(self)

    def setup_demo(self, **settings: Any) -> None:
        super()._init_task_env_(**settings)

    def check_success(self) -> bool:
        return self.take_action_cnt >= 2 + self.seed % 4
