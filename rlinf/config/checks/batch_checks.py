"""What must divide what: environments over workers, steps into chunks, samples into batches."""

from __future__ import annotations

import math

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.env import EnvConfig, NoEnvConfig
from rlinf.config.schema.root import EmbodiedConfig


def check_env_distribution(check: Check[EmbodiedConfig]) -> None:
    """Every worker gets the same number of environments in each pipeline stage, and none gets part of a group."""
    cfg, world = check.cfg, check.world
    stages = cfg.rollout.pipeline_stage_num
    for path, env in _env_sections(cfg):
        group = f"{path}.group_size {env.group_size}"
        shares = [(world.env, "env", env.group_size, group)]
        if not cfg.runner.enable_decoupled_mode:
            shares.append((world.rollout, "rollout", 1, ""))
        if env is cfg.env.train:
            shares += [(world.actor, "actor", env.group_size, group), (world.reward, "reward", 1, "")]
        divisors = [((size or 1) * stages * whole, size, name, text) for size, name, whole, text in shares]
        common = math.lcm(*(divisor for divisor, *_ in divisors))
        failing = [entry for entry in divisors if env.total_num_envs % entry[0]]
        if failing:
            divisor, size, name, text = failing[0]
            factors = [_ranks_in_words(size, name), f"rollout.pipeline_stage_num {stages}", *([text] if text else [])]
            lower, upper = _neighbours(env.total_num_envs, common)
            check.problem(
                f"{path}.total_num_envs",
                f"received {env.total_num_envs}; must be a multiple of {' x '.join(factors)} = {divisor}. "
                f"Set it to {lower}{upper}.",
            )
        elif world.env and env.num_env_processes > (per_stage := env.total_num_envs // (world.env * stages)):
            check.problem(
                f"{path}.num_env_processes",
                f"received {env.num_env_processes}; a stage of an env worker has {env.total_num_envs} / ({world.env} "
                f"env ranks x {stages} stages) = {per_stage} environments, at most one process each. Set it to "
                f"{per_stage}.",
            )


def check_chunks(check: Check[EmbodiedConfig]) -> None:
    """A rollout epoch is a whole number of chunks."""
    chunk = check.cfg.actor.model.num_action_chunks
    for path, env in _env_sections(check.cfg):
        steps = env.max_steps_per_rollout_epoch
        if steps % chunk:
            lower, upper = _neighbours(steps, chunk)
            check.problem(
                f"{path}.max_steps_per_rollout_epoch",
                f"received {steps}; must be a multiple of actor.model.num_action_chunks {chunk} "
                f"({steps} / {chunk} = {steps / chunk:.2f}). Set it to {lower}{upper}.",
            )


def check_batches(check: Check[EmbodiedConfig]) -> None:
    """Samples fill global batches, and a global batch fills the micro-batches of all actor ranks."""
    cfg, world = check.cfg, check.world
    train, actor = cfg.env.train, cfg.actor
    chunk = actor.model.num_action_chunks
    ranks = world.actor or 1
    per_pass = actor.micro_batch_size * ranks
    samples = train.max_steps_per_rollout_epoch // chunk * train.total_num_envs * train.rollout_epoch
    whole_chunks = train.max_steps_per_rollout_epoch % chunk == 0
    if not cfg.algorithm.loss.draws_batches and whole_chunks and samples % actor.global_batch_size:
        better = _closest_divisor(samples, actor.global_batch_size, multiple_of=per_pass)
        check.problem(
            "actor.global_batch_size",
            f"received {actor.global_batch_size}; must divide the samples per step: "
            f"({train.max_steps_per_rollout_epoch} steps / {chunk} actions per chunk) x {train.total_num_envs} "
            f"environments x {train.rollout_epoch} rollout epochs = {samples}. Set it to {better}, or change "
            "env.train.total_num_envs.",
        )
    if actor.global_batch_size % per_pass:
        share = actor.global_batch_size // ranks
        even = actor.global_batch_size % ranks == 0
        remedy = (
            f"Set actor.micro_batch_size to {_closest_divisor(share, actor.micro_batch_size)}"
            if even
            else f"Make actor.global_batch_size a multiple of {ranks}"
        )
        check.problem(
            "actor.micro_batch_size",
            f"received {actor.micro_batch_size}; actor.global_batch_size {actor.global_batch_size} must be a multiple "
            f"of micro_batch_size {actor.micro_batch_size} x {_ranks_in_words(world.actor, 'actor')} = {per_pass}. "
            f"{remedy}.",
        )


def _env_sections(cfg: EmbodiedConfig) -> list[tuple[str, EnvConfig]]:
    sections = [("env.train", cfg.env.train), ("env.eval", cfg.env.eval)]
    return [(path, env) for path, env in sections if env is not None and not isinstance(env, NoEnvConfig)]


def _ranks_in_words(ranks: int | None, name: str) -> str:
    if ranks is None:
        return f"1 {name} rank (their number is not known offline)"
    return f"1 {name} rank" if ranks == 1 else f"{ranks} {name} ranks"


def _neighbours(value: int, step: int) -> tuple[str, str]:
    """Return the multiples of ``step`` around ``value`` in words: ``"8 or "``, ``"12"``."""
    lower = value // step * step
    return (f"{lower} or " if lower else ""), str(lower + step)


def _closest_divisor(number: int, wish: int, multiple_of: int = 1) -> int:
    """Return the divisor of ``number`` next to ``wish``, a multiple of ``multiple_of`` if there is one."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    divisors = [*small, *(number // d for d in small)]
    fitting = [d for d in divisors if d % multiple_of == 0] or divisors
    return min(fitting, key=lambda d: abs(d - wish))


RULES = (check_env_distribution, check_chunks, check_batches)
