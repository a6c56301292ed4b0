"""Builds a ManiSkill task and shows its observations, for one environment and for batches alike.

Imports neither torch nor ManiSkill until one is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.config.checks.simulator_checks import explain_maniskill_params
from rlinf.config.schema.env import RenderQuality
from rlinf.envs.raw_chunk import RawObservation
from rlinf.envs.simulators.maniskill.maniskill_looks import look_late, whole_state
from rlinf.envs.simulators.maniskill.maniskill_tasks import TASK_DESCRIPTIONS
from rlinf.errors import ConfigError, EnvironmentFailure
from rlinf.registry import did_you_mean
from rlinf.utils.optional import require

INSTALL = "bash requirements/install.sh embodied --env maniskill"
_STATE_MODES = frozenset({"state", "state_dict"})
_SHADERS: dict[RenderQuality, str] = {"light": "minimal", "full": "default"}
_SPACE_OF_TEXT = gymnasium.spaces.Text(max_length=256)


@dataclass(frozen=True, slots=True)
class ManiSkillTask:
    """A simulation of ``B`` environments and how it is shown.

    Attributes:
        env: The task without the wrappers of ``gymnasium.make``: time limits are ``VectorEnv``'s.
        description: The task in words; None for the instruction that the task has for each episode.
        cameras: Name of a sensor by the key of its images; empty for state observations.
        shows_objects: Whether observations have ``objects``: what the task's ``get_objects`` returns, else all that
            ``obs_mode: state`` shows.
    """

    env: Any
    description: str | None = None
    cameras: dict[str, str] = field(default_factory=dict)
    shows_objects: bool = False

    def observe(self, raw: Any) -> RawObservation:
        """Return ``states`` float32 [B, S], ``task_descriptions`` and, with cameras, their images, uint8 [B, H, W, 3].

        With cameras ``states`` is what a robot knows of itself and its task; poses of objects are in the images only,
        and with ``shows_objects`` in ``objects``, float32 [B, O]. Images are rendered here, of the present state.

        Args:
            raw: What the task's last ``reset`` or ``step`` returned; with cameras, after ``look_late``.
        """
        states = flatten([raw["agent"], raw["extra"]] if self.cameras else raw)
        is_fixed = self.description is not None
        sentences = [self.description] * len(states) if is_fixed else list(self.env.get_language_instruction())
        obs: RawObservation = {"task_descriptions": sentences}
        if self.shows_objects:
            has_own = hasattr(self.env, "get_objects")
            obs["objects"] = flatten(self.env.get_objects() if has_own else whole_state(self.env, raw["info"]))
        sensors = self.env._get_obs_sensor_data() if self.cameras else {}
        images = {key: sensors[name]["rgb"].cpu().numpy() for key, name in self.cameras.items()}
        return obs | {"states": states} | images


def space_of(obs: RawObservation) -> gymnasium.spaces.Dict:
    """Return the space of one row of what ``ManiSkillTask.observe`` returned."""
    return gymnasium.spaces.Dict(
        {
            key: _SPACE_OF_TEXT
            if isinstance(value, list)
            else gymnasium.spaces.Box(0, 255, value.shape[1:], np.uint8)
            if value.dtype == np.uint8
            else gymnasium.spaces.Box(-np.inf, np.inf, value.shape[1:], np.float32)
            for key, value in obs.items()
        }
    )


def build_task(
    *,
    num_envs: int,
    sim_backend: Literal["cpu", "gpu"],
    render: bool,
    init_params: dict[str, Any],
    task_description: str | None,
    show_objects: bool,
    render_quality: RenderQuality | None,
) -> ManiSkillTask:
    """Build one simulation.

    Args:
        num_envs: ``B``; on the CPU 1.
        sim_backend: Where physics is computed, and images with it.
        render: Whether it has to render images for videos.
        init_params: Arguments of ``gymnasium.make``, among them ``id``.
        task_description: The task in words; None for those of the simulator, or of ``TASK_DESCRIPTIONS``.
        show_objects: Whether observations have ``objects``.
        render_quality: Of the cameras' images; None is the task's.

    Raises:
        ConfigError: No task of this id is registered, or ``init_params`` has none or contradicts other keys, or
            ``states`` have all that ``objects`` would show.
        EnvironmentFailure: The machine has no Vulkan driver that SAPIEN can use.
        MissingPackageError: ManiSkill is not installed.
    """
    if problem := explain_maniskill_params(init_params, sim_backend, render_quality):
        raise ConfigError(f"env.*.init_params: {problem}")
    require("mani_skill.envs", install=INSTALL, needed_by="env_type=maniskill")
    from mani_skill.utils.registration import REGISTERED_ENVS

    import rlinf.envs.simulators.maniskill.plates  # noqa: F401 - registers the task

    env_id = str(init_params.get("id"))
    if env_id not in REGISTERED_ENVS:
        names = sorted(REGISTERED_ENVS)
        raise ConfigError(
            f"env.*.init_params.id: ManiSkill has no task '{env_id}'.{did_you_mean(env_id, names)} "
            f"Its tasks: {', '.join(names)}."
        )
    has_cameras = init_params.get("obs_mode", "state") not in _STATE_MODES
    params = make_params(init_params, sim_backend=sim_backend, renders=render or has_cameras)
    if render_quality is not None:
        params["sensor_configs"] = {**params.get("sensor_configs", {}), "shader_pack": _SHADERS[render_quality]}
    env = _make(env_id, num_envs=num_envs, render_mode="rgb_array" if render else None, **params)
    names = list(env.scene.sensors) if has_cameras else []
    if show_objects and not has_cameras and not hasattr(env, "get_objects"):
        raise ConfigError(
            f"env.*.show_objects: received true; the states of '{env_id}' already say where objects are. Remove the "
            "key, or set init_params.obs_mode to rgb for a policy that sees images."
        )
    if has_cameras:
        look_late(env)
    return ManiSkillTask(
        env,
        description=task_description or _description(env, env_id),
        cameras={"main_images" if number == 0 else f"{name}_images": name for number, name in enumerate(names)},
        shows_objects=show_objects,
    )


def make_params(init_params: dict[str, Any], *, sim_backend: Literal["cpu", "gpu"], renders: bool) -> dict[str, Any]:
    """Return the arguments of ``gymnasium.make`` apart from the id, with our defaults.

    Args:
        init_params: Those of the recipe.
        sim_backend: Where physics is computed.
        renders: Whether images are needed.
    """
    params: dict[str, Any] = {"obs_mode": "state", "render_backend": sim_backend if renders else "none"}
    if sim_backend == "gpu":
        # A single environment would otherwise be built anew at each reset by tasks that do so on the CPU.
        params["reconfiguration_freq"] = 0
    params |= {key: value for key, value in init_params.items() if key != "id"}
    return params | {"sim_backend": "physx_cuda" if sim_backend == "gpu" else "physx_cpu"}


def flatten(value: Any) -> npt.NDArray[np.float32]:
    """Return the numbers in nested mappings of tensors [B, ...] in the order of their keys, float32 [B, S]."""
    import torch

    parts = [part.float().reshape(len(part), -1) for part in _leaves(value)]
    numbers: npt.NDArray[np.float32] = torch.cat(parts, 1).cpu().numpy()
    return numbers


def _leaves(value: Any) -> Iterator[Any]:
    if not isinstance(value, dict | list):
        yield value
        return
    for part in value.values() if isinstance(value, dict) else value:
        yield from _leaves(part)


def _make(env_id: str, **params: Any) -> Any:
    try:
        return gymnasium.make(env_id, **params).unwrapped
    except RuntimeError as error:
        if "render" not in str(error) and "vk" not in str(error):
            raise
        raise EnvironmentFailure(
            f"env_type=maniskill: SAPIEN cannot use this machine's Vulkan driver ({error}). It needs one even for "
            f"state observations; without a GPU Mesa 24.3 or newer serves. Install it with: {INSTALL}"
        ) from error


def _description(env: Any, env_id: str) -> str | None:
    """Return a task's words, or None if the task says them itself: it may name what is in the episode."""
    return None if hasattr(env, "get_language_instruction") else TASK_DESCRIPTIONS.get(env_id, "")
