"""``env_type: robot``: any robot that a driver of the user's speaks to; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, cast

import gymnasium
import numpy as np

from rlinf.config.schema.realworld import RobotEnvConfig
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.realworld.cameras import image_row, image_spaces
from rlinf.envs.realworld.client import Clock, Connection, WallClock, connections, make_client
from rlinf.envs.realworld.operator_marks import OperatorMarks
from rlinf.envs.realworld.pace import Pace
from rlinf.envs.realworld.poses import Vector
from rlinf.envs.single_env import SingleStep
from rlinf.envs.single_env_vector import SingleEnvVectorEnv
from rlinf.errors import ConfigError, EnvironmentFailure


class RobotClient(Protocol):
    """Speaks to one robot: its arms, hands and cameras. Limits of speed, force and workspace are its own.

    A client that also has ``now`` and ``sleep`` is a stand-in with a time of its own (``Clock``).
    """

    def reset(self, seed: int) -> None:
        """Bring the robot and what it works on to a start that ``seed`` selects, and return when it rests."""

    def state(self) -> Vector:
        """Return what the robot reports of itself now, float64 [S]."""

    def act(self, action: Vector) -> None:
        """Begin an action, float64 [A] in [-1, 1], and return at once; it replaces the one before."""

    def judge(self) -> tuple[bool, float]:
        """Return whether the task is solved now, and the reward of the last action."""

    def frames(self) -> list[Frame]:
        """Return the newest image of each camera, uint8 [H, W, 3], the main one first."""

    def operator_action(self) -> Vector | None:
        """Return the action, float64 [A], of the operator's device (leader arms, glove, headset); None for none."""

    def close(self) -> None:
        """Stop the robot and free the connection."""


class RobotSingleEnv:
    """A robot whose actions, states and success are what its driver says they are.

    Args:
        cfg: The environment's configuration.
        robot: Its entry of ``hardware.configs``; empty for a stand-in that none declares.
        render: Whether it has to render images.
    """

    def __init__(self, *, cfg: RobotEnvConfig, robot: Mapping[str, Any], render: bool) -> None:
        self.cfg, self.robot = cfg, robot
        self.num_cameras = 0 if cfg.image_size is None else cfg.num_cameras
        self.is_rendered = render and self.num_cameras > 0
        # A declared robot is the same one in training and in evaluation; stand-ins are many.
        self.address = json.dumps(dict(robot), sort_keys=True) if robot else f"stand-in {id(self)}"
        self._connection = connections.take(self.address, self._connect)
        self.client = cast("RobotClient", self._connection.client)
        self._marks = OperatorMarks(cfg)
        self._pace = Pace(self._connection.clock, frequency_hz=cfg.control_frequency_hz, robot=self.address)
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1.0, 1.0, (cfg.action_dim,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(
            {
                "states": gymnasium.spaces.Box(-np.inf, np.inf, (cfg.state_dim,), np.float32),
                "task_descriptions": gymnasium.spaces.Text(max(len(cfg.task_description), 1)),
                **image_spaces(self.num_cameras, cfg.image_size),
            }
        )

    def reset(self, seed: int) -> Vector:
        """See ``SingleEnv``."""
        self.client.reset(seed)
        self._pace.begin()
        self._marks.begin()
        return self._state()

    def step(self, action: Any) -> SingleStep:
        """Act, and wait until the next action is due."""
        self.client.act(np.asarray(action, np.float64))
        self._pace.wait()
        state = self._state()
        solved, reward = self.client.judge()
        success, reward, is_over = self._marks.judge(bool(solved), float(reward))
        return state, reward, is_over, False, success

    def observe(self, raw: Vector) -> dict[str, Any]:
        """Return ``states``, the task and the cameras' images."""
        row = {"states": raw.astype(np.float32), "task_descriptions": self.cfg.task_description}
        if not self.num_cameras or self.cfg.image_size is None:
            return row
        frames = self.client.frames()
        images = image_row(frames, num_cameras=self.num_cameras, size=self.cfg.image_size, robot=self.address)
        return {**row, **images}

    def render(self) -> Frame | None:
        """Return the main camera's image; None without cameras."""
        return self.client.frames()[0] if self.is_rendered else None

    def close(self) -> None:
        """Let the robot go."""
        self._marks.close()
        connections.release(self.address)

    def _connect(self) -> Connection:
        client = make_client(
            self.cfg.client,
            self.cfg.client_params,
            robot=dict(self.robot),
            state_dim=self.cfg.state_dim,
            action_dim=self.cfg.action_dim,
            num_cameras=self.num_cameras,
            image_size=self.cfg.image_size,
        )
        clock = cast("Clock", client) if hasattr(client, "now") and hasattr(client, "sleep") else WallClock()
        return Connection(client, clock)

    def _state(self) -> Vector:
        state = np.asarray(self.client.state(), np.float64)
        if state.shape != (self.cfg.state_dim,):
            raise EnvironmentFailure(
                f"env.*.client of the robot {self.address} returned a state of shape {list(state.shape)}; expected "
                f"[{self.cfg.state_dim}], which env.*.state_dim says. Correct one of them."
            )
        return state


class RobotEnv(SingleEnvVectorEnv):
    """Robots of any kind; ``states`` float32 [B, S] and the cameras' images.

    An env worker drives the one robot that it was placed on. Stand-ins that no node group declares can be many.

    Args:
        cfg: Its configuration.
        num_envs: ``B``; 1 for a declared robot.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.
        hardware: The robots of this worker, as the cluster's node group describes them.

    Raises:
        ConfigError: There are several robots, or the client cannot be imported.
    """

    hardware_type: ClassVar[str | None] = "Robot"
    restored_by = "nothing"  # actions are never executed again on a robot

    def __init__(
        self, cfg: RobotEnvConfig, *, num_envs: int, first_env: int = 0, hardware: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        if hardware and (len(hardware) > 1 or num_envs > 1):
            raise ConfigError(
                f"env_type={cfg.env_type}: an env worker drives one robot; it has {len(hardware)} robots and "
                f"{num_envs} environments. Give each robot a process in cluster.component_placement, and set "
                "total_num_envs to their number."
            )
        robot = {key: value for info in hardware for key, value in info.items() if key != "type"}
        super().__init__(
            cfg, num_envs=num_envs, first_env=first_env, factory=RobotSingleEnv, kwargs={"cfg": cfg, "robot": robot}
        )
