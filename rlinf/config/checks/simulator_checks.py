"""What simulators of ``env`` cannot do, reported before a worker starts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.env import ManiSkillEnvConfig, RenderQuality
from rlinf.config.schema.root import EmbodiedConfig

_BACKENDS = {"cpu": ("cpu", "physx_cpu"), "gpu": ("gpu", "cuda", "physx_cuda")}
"""ManiSkill's names of what ``sim_backend`` says."""


_OBS_MODES = ("state", "state_dict", "rgb")
"""What is shown of ManiSkill's modes."""


def explain_maniskill_params(
    init_params: Mapping[str, Any], sim_backend: Literal["cpu", "gpu"], render_quality: RenderQuality | None
) -> str | None:
    """Return what is wrong with ``init_params`` of ``env_type: maniskill`` on any machine, or None.

    Args:
        init_params: The section.
        sim_backend: The key next to it.
        render_quality: Another one.
    """
    if (mode := init_params.get("obs_mode", "state")) not in _OBS_MODES:
        return (
            f"received obs_mode={mode}; allowed are {', '.join(_OBS_MODES)}. Set it to rgb for images with what the "
            "arm knows of itself, and env.*.show_objects to true for the whole state beside them; other textures, such "
            "as depth, are not shown."
        )
    if render_quality and (mode != "rgb" or "shader_pack" in init_params.get("sensor_configs", {})):
        return (
            f"received obs_mode={mode} and sensor_configs={init_params.get('sensor_configs')}, with "
            f"env.*.render_quality={render_quality}, which chooses the shaders of the cameras' images. Remove it, "
            "or set obs_mode to rgb and remove sensor_configs.shader_pack."
        )
    if "num_envs" in init_params:
        return f"received num_envs={init_params['num_envs']}; env.*.total_num_envs says how many there are. Remove it."
    backend = init_params.get("sim_backend", sim_backend)
    if backend not in _BACKENDS[sim_backend]:
        return (
            f"received sim_backend={backend}, and {sim_backend} next to init_params. Remove it here; env.*.sim_backend "
            "is cpu (a simulation for each environment, in env.*.num_env_processes processes) or gpu (all in one, on "
            "the env worker's own device)."
        )
    if sim_backend == "gpu" and (every := init_params.get("reconfiguration_freq")):
        return (
            f"received reconfiguration_freq={every}; the scenes of a batch on a GPU stay, as its environments begin "
            "episodes one by one. Remove it, or set env.*.sim_backend to cpu."
        )
    return None


def check_maniskill(check: Check[EmbodiedConfig]) -> None:
    """What ManiSkill is built with agrees with where it simulates."""
    for path, env in (("env.train", check.cfg.env.train), ("env.eval", check.cfg.env.eval)):
        if not isinstance(env, ManiSkillEnvConfig):
            continue
        if problem := explain_maniskill_params(env.init_params, env.sim_backend, env.render_quality):
            check.problem(f"{path}.init_params", problem.replace("env.*", path))
        if env.sim_backend == "gpu" and env.num_env_processes:
            check.problem(
                f"{path}.num_env_processes",
                f"received {env.num_env_processes}; with sim_backend=gpu the environments of a stage are one "
                "simulation in the env worker itself. Remove it, or place env on more GPUs.",
            )


def check_offload(check: Check[EmbodiedConfig]) -> None:
    """Device memory is freed by environments that hold some and can have it back: simulations cannot."""
    for path, env in (("env.train", check.cfg.env.train), ("env.eval", check.cfg.env.eval)):
        if env is None or not env.enable_offload or env.supports_offload:
            continue
        reason, remedy = "holds no device memory that could be freed", "Remove it."
        if isinstance(env, ManiSkillEnvConfig) and env.sim_backend == "gpu":
            reason = (
                "with sim_backend=gpu keeps its scenes on the GPU: PhysX frees them only when a simulation is closed, "
                "and cannot go on with its episodes in another one"
            )
            remedy = "Remove it; where memory is short, lower total_num_envs, or place env on a GPU of its own."
        check.problem(f"{path}.enable_offload", f"received True; env_type={env.env_type} {reason}. {remedy}")


def check_reference_returns(check: Check[EmbodiedConfig]) -> None:
    """Scores are measured between the returns of a random and of a better policy."""
    for path, env in (("env.train", check.cfg.env.train), ("env.eval", check.cfg.env.eval)):
        reference = None if env is None else env.reference_returns
        if reference is not None and (len(reference) != 2 or reference[0] >= reference[1]):
            check.problem(
                f"{path}.reference_returns",
                f"received {reference}; allowed: two numbers, the return of a random policy and the higher one of an "
                "expert.",
            )


RULES = (check_maniskill, check_offload, check_reference_returns)
