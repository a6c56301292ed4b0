"""The training episodes of an env rank that had not ended when a step's rollout did: in memory, and in checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlinf.checkpoint.tree_file import load_tree, save_tree
from rlinf.config import to_dict
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs.base import VectorEnv
from rlinf.errors import EpisodeRestoreError

# Keys that may change between the runs: they do not decide what happens within an episode.
_FREE_KEYS = frozenset(
    {
        "data_collection",
        "enable_offload",
        "max_steps_per_rollout_epoch",
        "num_env_processes",
        "reward_coef",
        "rollout_epoch",
        "seed",
        "video_cfg",
    }
)


class EpisodeStates:
    """Keeps the states after the last rollouts, since a step may be saved when the next rollout is under way.

    Args:
        cfg: The recipe.
        rank: Rank of the env worker.
        world_size: Env workers.
    """

    def __init__(self, cfg: EmbodiedConfig, *, rank: int, world_size: int) -> None:
        self._carries_episodes = cfg.env.train.carries_episodes
        # An asynchronous run is this many rollouts ahead of the step that it saves.
        self._num_kept = 2 + (cfg.algorithm.staleness_threshold or 0)
        self._rank = rank
        self._setup = {f"env.train.{key}": v for key, v in to_dict(cfg.env.train).items() if key not in _FREE_KEYS}
        self._setup |= {"rollout.pipeline_stage_num": cfg.rollout.pipeline_stage_num, "env ranks": world_size}
        self._states: dict[int, list[dict[str, Any]]] = {}

    def remember(self, step: int, stages: Sequence[VectorEnv]) -> None:
        """Keep the state of all pipeline stages after a step's rollout."""
        if not self._carries_episodes:
            return
        states = [stage.state_dict() for stage in stages]
        self._states[step] = [state for state in states if state is not None]
        for old in sorted(self._states)[: -self._num_kept]:
            del self._states[old]

    def save(self, folder: Path, step: int) -> None:
        """Write the state after a step's rollout, if there is any."""
        states = self._states.get(step)
        if states:
            save_tree(self._path(folder), {"setup": self._setup, "stages": states})

    def load(self, folder: Path, step: int, stages: Sequence[VectorEnv]) -> list[Observation]:
        """Bring the environments to the saved state.

        Args:
            folder: What ``save`` was given.
            step: Step that was saved.
            stages: The environments, not stepped yet.

        Returns:
            What each stage showed last.

        Raises:
            EpisodeRestoreError: There is no state that fits; environments have to be reset.
        """
        if not stages[0].is_restorable:
            raise EpisodeRestoreError(f"env_type={stages[0].cfg.env_type} does not continue those of a checkpoint.")
        if not self._path(folder).exists():
            raise EpisodeRestoreError(f"the checkpoint holds none of env rank {self._rank}.")
        saved = load_tree(self._path(folder))
        changed = sorted(name for name, value in self._setup.items() if saved["setup"].get(name) != value)
        if changed:
            was, now = saved["setup"].get(changed[0]), self._setup[changed[0]]
            raise EpisodeRestoreError(f"those of the checkpoint were made with {changed[0]}={was}; it is {now} now.")
        shown = [stage.load_state_dict(state) for stage, state in zip(stages, saved["stages"], strict=True)]
        self._states = {step: saved["stages"]}
        return shown

    def _path(self, folder: Path) -> Path:
        return folder / f"rank_{self._rank:04d}.safetensors"
