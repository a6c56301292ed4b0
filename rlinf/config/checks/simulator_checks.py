"""What simulators of ``env`` cannot do, reported before a worker starts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.env import ManiSkillEnvConfig
from rlinf.config.schema.root import EmbodiedConfig

MANISKILL_DEFAULTS = {"obs_mode": "state", "sim_backend": "physx_cpu"}
_CPU_BACKENDS = frozenset({"cpu", "physx_cpu"})


def explain_maniskill_params(init_params: Mapping[str, Any]) -> str | None:
    """Return what is wrong with ``init_params`` of ``env_type: maniskill`` on any machine, or None."""
    params = {**MANISKILL_DEFAULTS, **init_params}
    if params["sim_backend"] in _CPU_BACKENDS and "num_envs" not in params:
        return None
    return (
        f"received sim_backend={params['sim_backend']}, num_envs={params.get('num_envs', 1)}; every environment is a "
        "simulation of its own on the CPU. Remove both keys; env.*.total_num_envs and env.*.num_env_processes say how "
        "many there are and who steps them."
    )


def check_maniskill(check: Check[EmbodiedConfig]) -> None:
    """ManiSkill simulates on the CPU, one environment each, on any node of ``env``."""
    for path, env in (("env.train", check.cfg.env.train), ("env.eval", check.cfg.env.eval)):
        if isinstance(env, ManiSkillEnvConfig) and (problem := explain_maniskill_params(env.init_params)):
            check.problem(f"{path}.init_params", problem)


def check_offload(check: Check[EmbodiedConfig]) -> None:
    """Device memory is freed by environments that hold some: none of those that come with the package does."""
    for path, env in (("env.train", check.cfg.env.train), ("env.eval", check.cfg.env.eval)):
        if env is not None and env.enable_offload and not env.supports_offload:
            check.problem(
                f"{path}.enable_offload",
                f"received True; env_type={env.env_type} holds no device memory that could be freed. Remove it.",
            )


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
