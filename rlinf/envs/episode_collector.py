"""Collects whole episodes, frame by frame, into a data set in the LeRobot format."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.config.schema.env import EnvConfig
from rlinf.data.datasets.lerobot.format import Columns, LeRobotEpisode, pyarrow
from rlinf.data.datasets.lerobot.writer import LeRobotWriter, WriterOptions
from rlinf.envs.raw_chunk import BoolArray, RawChunk, RawObservation, take_rows
from rlinf.errors import ConfigError

PART_PREFIX, STEP_INFIX = "part_", "_step_"
_INTERVENTION_KEY = "complementary_info.is_intervention"
_TASK_KEY = "task_descriptions"


class EpisodeCollector:
    """Writes the episodes of some environments as one part of a data set, ``<save_dir>/part_<first_env>``.

    In training there is a part for each step, ``part_<first_env>_step_<step>``: what a resumed run makes again takes
    the place of what was there.

    A frame is the observation, the action that was executed, and its result: ``observation.state``,
    ``observation.images.<camera>``, ``action``, ``next.reward`` (the simulator's), ``next.done``, ``next.terminated``,
    ``next.success``, and, where an operator may act, ``complementary_info.is_intervention``. Actions are in the
    convention of policies (``env.*.action_convention``): what learns from them says the same to the same environment.
    An episode that has not ended when its rollout epoch does is left out.

    Args:
        env: The environments' section; nothing happens unless ``data_collection.enabled``.
        num_envs: Environments of this instance.
        first_env: Global index of the first.

    Raises:
        ConfigError: ``save_dir`` is not set.
        MissingPackageError: pyarrow is not installed.
    """

    def __init__(self, env: EnvConfig, *, num_envs: int, first_env: int) -> None:
        cfg = env.data_collection
        self.enabled = cfg.enabled
        self._env, self._cfg = env, cfg
        self._frames: list[list[dict[str, Any]]] = [[] for _ in range(num_envs)]
        self._tasks = [""] * num_envs
        self._seen: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self._is_closed = not self.enabled
        self._writer: LeRobotWriter | None = None
        if not self.enabled:
            return
        if cfg.save_dir is None:
            raise ConfigError("env.*.data_collection.save_dir is null; name the folder that the data set goes to.")
        pyarrow()
        self._root = self._part = Path(cfg.save_dir) / f"{PART_PREFIX}{first_env:06d}"
        # What a worker that died has left; the whole evaluation, or the step, is made again.
        for left in [self._root, *self._root.parent.glob(f".{self._root.name}*.tmp")]:
            shutil.rmtree(left, ignore_errors=True)

    def begin_step(self, step: int) -> None:
        """Write the episodes that end from now on into the part of a step, in place of what it held."""
        if not self._is_closed:
            self._part = self._root.with_name(f"{self._root.name}{STEP_INFIX}{step:06d}")
            shutil.rmtree(self._part, ignore_errors=True)

    def end_step(self) -> None:
        """Publish the present part; episodes that have not ended go on in the next one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def go_back(self, step: int) -> None:
        """Remove the parts of the steps after a step."""
        for part in () if self._is_closed else self._root.parent.glob(f"{self._root.name}{STEP_INFIX}*"):
            if part_step(part) > step:
                shutil.rmtree(part)

    def start_epoch(self, obs: RawObservation) -> None:
        """Begin an episode in every environment; those that had not ended are dropped."""
        if not self._is_closed:
            for row in range(len(self._frames)):
                self._begin(row, _row(obs, row))

    def add_chunk(self, actions: Any, chunk: RawChunk, intervened: BoolArray | None = None) -> None:
        """Append what was executed, and write the episodes that ended.

        Args:
            actions: [B, C, ...], as policies say them.
            chunk: What happened, of a request with ``observes``.
            intervened: bool [B]; whether an operator acted; None where none may.
        """
        if self._is_closed:
            return
        for row, observations in chunk.observations.items():
            for column, after in enumerate(observations):
                frame = self._frame(row, column, actions, chunk)
                if intervened is not None:
                    frame[_INTERVENTION_KEY] = np.array([intervened[row]])
                self._frames[row].append(frame)
                self._seen[row] = after
            if row in chunk.final_ids:
                self._finish(row)
                self._begin(row, _row(chunk.obs, row))

    def close(self) -> None:
        """Publish the part; nothing is published where no episode was kept."""
        self.end_step()
        self._is_closed = True

    def abort(self) -> None:
        """Throw away what has not been published."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None

    def _begin(self, row: int, obs: dict[str, Any]) -> None:
        self._frames[row] = []
        self._seen[row] = obs
        self._tasks[row] = str(obs.get(_TASK_KEY, ""))

    def _frame(self, row: int, column: int, actions: Any, chunk: RawChunk) -> dict[str, Any]:
        terminated, truncated = chunk.terminations[row, column], chunk.truncations[row, column]
        action = np.atleast_1d(np.asarray(actions[row, column]))
        kind = np.int64 if np.issubdtype(action.dtype, np.integer) else np.float32
        return _features(self._seen[row]) | {
            "action": action.astype(kind).reshape(-1),
            "next.reward": np.array([chunk.rewards[row, column]], np.float32),
            "next.done": np.array([terminated or truncated]),
            "next.terminated": np.array([terminated]),
            "next.success": np.array([chunk.successes[row, column]]),
        }

    def _finish(self, row: int) -> None:
        frames = self._frames[row]
        if self._cfg.only_success and not any(frame["next.success"][0] for frame in frames):
            return
        columns: Columns = {name: np.stack([frame[name] for frame in frames]) for name in frames[0]}
        if self._writer is None:
            self._writer = LeRobotWriter(self._part, writer_options(self._env))
        self._writer.add(LeRobotEpisode(columns, self._tasks[row]))


def part_step(part: Path) -> int:
    """Return the training step of a part; 0 of one that belongs to none."""
    _, _, step = part.name.partition(STEP_INFIX)
    return int(step or 0)


def writer_options(env: EnvConfig) -> WriterOptions:
    """Return how the data set is written whose episodes are played in an environment, given its section."""
    cfg, rendering = env.data_collection, env.rendering
    return WriterOptions(
        fps=cfg.fps,
        robot_type=cfg.robot_type,
        use_videos=cfg.use_videos,
        rendering={"env_type": env.env_type, **rendering} if rendering else None,
    )


def _row(obs: RawObservation, row: int) -> dict[str, Any]:
    return {key: value[0] for key, value in take_rows(obs, np.array([row])).items()}


def _features(obs: dict[str, Any]) -> dict[str, Any]:
    """Return an observation under the names of the format: ``main_images`` is ``observation.images.main``."""
    features: dict[str, Any] = {}
    for key, value in obs.items():
        if isinstance(value, str):
            continue
        values = value.cpu().numpy() if hasattr(value, "cpu") else np.asarray(value)
        camera = f"observation.images.{key.removesuffix('_images')}"
        if key == "states":
            features["observation.state"] = values.reshape(-1)
        elif values.dtype == np.uint8 and values.ndim == 3:
            features[camera] = values
        elif values.dtype == np.uint8 and values.ndim == 4:
            features |= {f"{camera}_{number}": image for number, image in enumerate(values)}
        else:
            features[f"observation.{key}"] = values.reshape(-1)
    return features
