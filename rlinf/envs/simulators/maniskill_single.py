"""One ManiSkill task on the CPU as a ``SingleEnv``; imports neither torch nor ManiSkill until one is built."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.config.checks.simulator_checks import MANISKILL_DEFAULTS, explain_maniskill_params
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.maniskill_tasks import TASK_DESCRIPTIONS
from rlinf.envs.single_env import SingleStep
from rlinf.errors import ConfigError, EnvironmentFailure
from rlinf.registry import did_you_mean
from rlinf.utils.optional import require

INSTALL = "bash requirements/install.sh embodied --env maniskill"
_STATE_MODES = frozenset({"state", "state_dict"})
_SPACE_OF_TEXT = gymnasium.spaces.Text(max_length=256)


class ManiSkillSingleEnv:
    """One simulation on CPU PhysX.

    Args:
        env: The task without the wrappers of ``gymnasium.make``: time limits are ``VectorEnv``'s.
        description: The task in words; None for the instruction that the task has for each episode.
        cameras: Name of a sensor by the key of its images; empty for state observations.
        shows_objects: Whether observations have ``objects``, as the task's ``get_objects`` returns them.
    """

    def __init__(
        self, env: Any, *, description: str | None, cameras: dict[str, str], shows_objects: bool = False
    ) -> None:
        self._env = env
        self._description = description
        self._cameras = cameras
        self._shows_objects = shows_objects
        self.action_space: gymnasium.Space[Any] = env.single_action_space
        row = self.observe(self.reset(0))
        self.observation_space = gymnasium.spaces.Dict(
            {
                key: _SPACE_OF_TEXT
                if isinstance(value, str)
                else gymnasium.spaces.Box(0, 255, value.shape, np.uint8)
                if value.dtype == np.uint8
                else gymnasium.spaces.Box(-np.inf, np.inf, value.shape, np.float32)
                for key, value in row.items()
            }
        )

    def reset(self, seed: int) -> Any:
        """Start the episode that ``seed`` selects; return the observation."""
        return self._env.reset(seed=seed)[0]

    def step(self, action: Any) -> SingleStep:
        """Execute one action."""
        obs, reward, terminated, truncated, info = self._env.step(action)
        success = info.get("success")
        return obs, float(reward), bool(terminated), bool(truncated), None if success is None else bool(success)

    def observe(self, raw: Any) -> dict[str, Any]:
        """Return ``states`` float32 [S], ``task_descriptions`` and, with cameras, their images, uint8 [H, W, 3].

        With cameras ``states`` is what a robot knows of itself and its task; poses of objects are in the images only,
        and with ``shows_objects`` in ``objects``, float32 [O].
        """
        row: dict[str, Any] = {"task_descriptions": self._description or self._env.get_language_instruction()[0]}
        if self._shows_objects:
            row["objects"] = flatten(self._env.get_objects())
        if not self._cameras:
            return row | {"states": flatten(raw)}
        images = {key: raw["sensor_data"][name]["rgb"][0].cpu().numpy() for key, name in self._cameras.items()}
        return row | {"states": flatten([raw["agent"], raw["extra"]])} | images

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        frame: Frame = self._env.render()[0].cpu().numpy()
        return frame

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()


def make_maniskill_env(
    *, render: bool, init_params: dict[str, Any], task_description: str | None, show_objects: bool = False
) -> ManiSkillSingleEnv:
    """Build one task.

    Args:
        render: Whether it has to render images.
        init_params: Arguments of ``gymnasium.make``, among them ``id``.
        task_description: The task in words; None for those of the simulator, or of ``TASK_DESCRIPTIONS``.
        show_objects: Whether observations have ``objects``.

    Raises:
        ConfigError: No task of this id is registered, or ``init_params`` has none or asks for a batch simulation, or
            the task has no ``objects``.
        EnvironmentFailure: The machine has no Vulkan driver that SAPIEN can use.
        MissingPackageError: ManiSkill is not installed.
    """
    if problem := explain_maniskill_params(init_params):
        raise ConfigError(f"env.*.init_params: {problem}")
    params: dict[str, Any] = {**MANISKILL_DEFAULTS, **init_params}
    require("mani_skill.envs", install=INSTALL, needed_by="env_type=maniskill")
    from mani_skill.utils.registration import REGISTERED_ENVS

    import rlinf.envs.simulators.maniskill_plates  # noqa: F401 - registers the task

    env_id = params.pop("id", None)
    if env_id not in REGISTERED_ENVS:
        names = sorted(REGISTERED_ENVS)
        raise ConfigError(
            f"env.*.init_params.id: ManiSkill has no task '{env_id}'.{did_you_mean(str(env_id), names)} "
            f"Its tasks: {', '.join(names)}."
        )
    has_cameras = params["obs_mode"] not in _STATE_MODES
    params.setdefault("render_backend", "cpu" if render or has_cameras else "none")
    try:
        env = gymnasium.make(env_id, num_envs=1, render_mode="rgb_array" if render else None, **params).unwrapped
    except RuntimeError as error:
        if "render" not in str(error) and "vk" not in str(error):
            raise
        raise EnvironmentFailure(
            f"env_type=maniskill: SAPIEN cannot use this machine's Vulkan driver ({error}). It needs one even for "
            f"state observations; without a GPU Mesa 24.3 or newer serves. Install it with: {INSTALL}"
        ) from error
    names = list(env.scene.sensors) if has_cameras else []
    cameras = {"main_images" if number == 0 else f"{name}_images": name for number, name in enumerate(names)}
    if show_objects and not hasattr(env, "get_objects"):
        raise ConfigError(
            f"env.*.show_objects: received true; the task '{env_id}' has no objects to show, PutOnPlate25-v1 has. "
            "Remove the key."
        )
    return ManiSkillSingleEnv(
        env, description=task_description or _description(env, env_id), cameras=cameras, shows_objects=show_objects
    )


def flatten(value: Any) -> npt.NDArray[np.float32]:
    """Return the numbers in nested mappings of tensors [1, ...] in the order of their keys, float32 [S]."""
    if isinstance(value, dict | list):
        parts = [flatten(part) for part in (value.values() if isinstance(value, dict) else value)]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)
    numbers: npt.NDArray[np.float32] = value.cpu().numpy().astype(np.float32).reshape(-1)
    return numbers


def _description(env: Any, env_id: str) -> str | None:
    """Return a task's words, or None if the task says them itself: it may name what is in the episode."""
    return None if hasattr(env, "get_language_instruction") else TASK_DESCRIPTIONS.get(env_id, "")
