"""Who may act in place of the policy, where, and for which losses."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.algorithm import HGDAggerLossConfig, OffPolicyLossConfig
from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.intervention import GelloIntervenerConfig, InterventionConfig, ScriptedIntervenerConfig
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig


def check_losses(check: Check[EmbodiedConfig]) -> None:
    """A loss that weights the policy's own samples cannot learn from an operator's."""
    algorithm, intervenes = check.cfg.algorithm, _intervention(check.cfg.env.train) is not None
    if isinstance(algorithm.loss, HGDAggerLossConfig) and not intervenes:
        check.problem(
            "env.train.wrappers",
            f"no operator intervenes; loss_type={algorithm.loss_type} learns from interventions alone. Add the wrapper "
            "'intervention', as its last entry.",
        )
    demos = algorithm.loss.demo_buffer if isinstance(algorithm.loss, OffPolicyLossConfig) else None
    if demos is not None and demos.interventions and not intervenes:
        check.problem(
            "algorithm.demo_buffer.interventions",
            "received True; no operator intervenes. Add the wrapper 'intervention' as the last entry of "
            "env.train.wrappers, or set it to false.",
        )
    if intervenes and not algorithm.loss.draws_batches:
        check.problem(
            "env.train.wrappers",
            f"holds 'intervention'; loss_type={algorithm.loss_type} learns from actions that the policy itself drew. "
            "Set algorithm.loss_type=embodied_sac or embodied_hgdagger, or remove the wrapper.",
        )


def check_environments(check: Check[EmbodiedConfig]) -> None:
    """Interventions replace what the policy does, action by action, and do not improve an evaluation."""
    cfg = check.cfg
    for path, env in (("env.train", cfg.env.train), ("env.eval", cfg.env.eval)):
        entry = None if env is None else _intervention(env)
        if env is None or entry is None:
            continue
        if env.wrappers[-1] is not entry:
            check.problem(
                f"{path}.wrappers",
                f"'intervention' stands before '{env.wrappers[-1].name}'; it replaces the policy's actions, which the "
                "last wrapper is the first to get. Move it to the end, and list it once.",
            )
        if env is cfg.env.eval and not env.data_collection.enabled:
            check.problem(
                "env.eval.wrappers",
                "holds 'intervention'; it would count help as the policy's success. Remove it; only data collection "
                "may have it.",
            )
        _check_scripted(entry, path, check)
        if isinstance(entry.intervener, GelloIntervenerConfig):
            _check_gello(entry.intervener, path, check)


def _check_scripted(entry: InterventionConfig, path: str, check: Check[RLinfConfig]) -> None:
    intervener = entry.intervener
    if not isinstance(intervener, ScriptedIntervenerConfig):
        return
    rules = (intervener.takeover_distance, intervener.stall_steps, intervener.takeover_probability or None)
    if all(rule is None for rule in rules):
        check.problem(
            f"{path}.wrappers",
            "the scripted intervener would never take over. Set takeover_distance, stall_steps or "
            "takeover_probability of its entry.",
        )


def _check_gello(intervener: GelloIntervenerConfig, path: str, check: Check[RLinfConfig]) -> None:
    for name in ("joint_ids", "joint_offsets", "joint_signs"):
        numbers = getattr(intervener, name)
        if len(numbers) != 7:
            check.problem(
                f"{path}.wrappers",
                f"{name} of the intervener has {len(numbers)} numbers; a Franka has 7 joints. Give one for each.",
            )
    if intervener.gripper_open_degrees == intervener.gripper_closed_degrees:
        check.problem(
            f"{path}.wrappers",
            f"gripper_open_degrees and gripper_closed_degrees are both {intervener.gripper_open_degrees:g}. Give the "
            "angles of the trigger let go and pulled.",
        )


def _intervention(env: EnvConfig) -> InterventionConfig | None:
    entries = [entry for entry in env.wrappers if isinstance(entry, InterventionConfig)]
    return entries[0] if entries else None


RULES = (check_losses, check_environments)
