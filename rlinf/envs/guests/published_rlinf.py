"""Adapter for the simulators of the published RLinf, which the guest has installed with it; unproven.

It builds the published environment class, has it execute chunks and leaves rewards, auto-reset and the counting of
episodes to the host. It was tested against transcripts of the calls that those classes take, never with a simulator.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from .adapter_tools import as_array

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where this cannot be evaluated.
    Array = np.ndarray[Any, Any]

_HOST_DECIDES = {
    "auto_reset": False,
    "ignore_terminations": False,
    "is_eval": False,
    "reward_coef": 1.0,
    "use_fixed_reset_state_ids": True,
    "use_rel_reward": False,
    "video_cfg": {"save_video": False, "info_on_video": False, "video_base_dir": None},
}
"""Settings whose work the host does; with fixed ids, a published reset starts from ``reset_state_ids``."""
_IMAGES = ("main_images", "wrist_images", "extra_view_images")


def make_batch(*, num_envs: int, first_env: int, render: bool, **params: Any) -> PublishedBatch:
    """Build a published environment.

    Args:
        num_envs: ``B``.
        first_env: Index of its first environment among all of the recipe.
        render: Whether a video is wanted; there is none.
        params: ``env_type``, ``group_size``, ``max_episode_steps``, ``action_dim``, and the keys of the published
            section; ``model_type`` and ``policy_setup``, which say how actions are converted.
    """
    del render
    return PublishedBatch(num_envs=num_envs, first_env=first_env, params=params)


class PublishedBatch:
    """The environments of one published environment object, as ``rlinf.envs.guests.rows`` drives them.

    Args:
        num_envs: ``B``.
        first_env: See ``make_batch``.
        params: See ``make_batch``.
    """

    def __init__(self, *, num_envs: int, first_env: int, params: dict[str, Any]) -> None:
        # By name: in the guest, rlinf is the published package.
        package = importlib.import_module("rlinf.envs")
        create = importlib.import_module("omegaconf").OmegaConf.create

        self._num_envs = num_envs
        self._model_type = params.pop("model_type", "mlp_policy")
        self._policy_setup = params.pop("policy_setup", None)
        self._action_dim = params.pop("action_dim")
        self._prepare = importlib.import_module("rlinf.envs.action_utils").prepare_actions
        section = {"seed": 0, "total_num_envs": num_envs, **params, **_HOST_DECIDES}
        self._section = section
        self._cfg: Any = create(section)
        make = package.get_env_cls(self._cfg.env_type, self._cfg)
        self._env: Any = make(
            cfg=self._cfg, num_envs=num_envs, seed_offset=first_env, total_num_processes=1, worker_info=None
        )
        self.action_low = np.full(self._action_dim, -np.inf, np.float32)
        self.action_high = np.full(self._action_dim, np.inf, np.float32)

    def reset(self, rows: list[int], seeds: list[int]) -> list[dict[str, Any]]:
        """Start episodes: of all environments from states that the first seed chooses, else of some.

        Raises:
            ValueError: This published environment resets all of its environments only.
        """
        if len(rows) == self._num_envs:
            self._choose_states(seeds[0])
            obs, _ = self._env.reset()
        else:
            accepted = inspect.signature(self._env.reset).parameters
            if "env_idx" in accepted:
                obs, _ = self._env.reset(env_idx=np.array(rows))
            elif "options" in accepted:
                obs, _ = self._env.reset(seed=seeds, options={"env_idx": _tensor(rows)})
            else:
                raise ValueError(
                    f"{type(self._env).__name__} cannot reset some of its environments; set env.*.auto_reset: false"
                )
        seen = self._split(obs)
        return [seen[row] for row in rows] if len(seen) == self._num_envs else seen

    def run_chunk(self, actions: Array, active: Array) -> list[tuple[Any, ...]]:
        """Execute a chunk in all environments.

        Returns:
            For each action what ``step`` of a batch returns; where an environment shows its last observation only,
            that one is given for all.
        """
        del active
        prepared = self._prepare(
            actions,
            env_type=self._cfg.env_type,
            model_type=self._model_type,
            num_action_chunks=actions.shape[1],
            action_dim=self._action_dim,
            policy=self._policy_setup,
            wm_env_type=self._section.get("wm_env_type"),
            env_cfg=self._cfg,
        )
        seen, rewards, terminations, truncations, infos = self._env.chunk_step(prepared)
        observations = list(seen) if isinstance(seen, (list, tuple)) else [seen]
        reports = list(infos) if isinstance(infos, (list, tuple)) else [infos]
        rewards, terminations, truncations = (as_array(value) for value in (rewards, terminations, truncations))
        num_steps, split = actions.shape[1], {}
        results = []
        for column in range(num_steps):
            # A list that is shorter than the chunk holds its end.
            place = max(column + len(observations) - num_steps, 0)
            if place not in split:
                split[place] = self._split(observations[place])
            report = reports[max(column + len(reports) - num_steps, 0)]
            results.append(
                (
                    split[place],
                    rewards[:, column].astype(np.float32),
                    terminations[:, column].astype(np.bool_),
                    truncations[:, column].astype(np.bool_),
                    _successes(report) if len(reports) >= num_steps or column == num_steps - 1 else None,
                )
            )
        return results

    def render(self, row: int) -> None:
        """Published environments record videos by themselves, if at all."""
        del row

    def close(self) -> None:
        """Close the simulator, where it can be."""
        if hasattr(self._env, "close"):
            self._env.close()

    def _choose_states(self, seed: int) -> None:
        """Have the environment choose its next start states by a seed."""
        env = self._env
        generator: Any = getattr(env, "_generator", None)
        if hasattr(generator, "manual_seed"):
            generator.manual_seed(seed)
        elif generator is not None:
            env._generator = np.random.default_rng(seed)
        if hasattr(env, "update_reset_state_ids"):
            env.use_fixed_reset_state_ids = False
            env.update_reset_state_ids()
            env.use_fixed_reset_state_ids = True
        env.is_start = True

    def _split(self, obs: dict[str, Any]) -> list[dict[str, Any]]:
        """Return an observation's rows: images, states and sentences."""
        columns: dict[str, Any] = {}
        for key in (*_IMAGES, "states"):
            if obs.get(key) is not None:
                columns[key] = as_array(obs[key]).astype(np.float32 if key == "states" else np.uint8)
        if obs.get("task_descriptions") is not None:
            columns["task_descriptions"] = [str(text) for text in obs["task_descriptions"]]
        num_rows = len(next(iter(columns.values())))
        return [{key: column[row] for key, column in columns.items()} for row in range(num_rows)]


def _successes(info: Any) -> Array | None:
    """Return which environments report success, or None where the info does not say."""
    if "success" in info:
        return as_array(info["success"]).astype(np.bool_).reshape(-1)
    episode = info.get("episode", {})
    found = episode.get("success_once")
    return None if found is None else as_array(found).astype(np.bool_).reshape(-1)


def _tensor(values: list[int]) -> Any:
    import torch

    return torch.tensor(values)
