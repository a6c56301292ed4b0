"""How many of everything a recipe makes: environments, samples and optimizer steps, from the worker groups' sizes."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.config.schema.root import EmbodiedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSizes:
    """Processes of each worker group; None where a recipe leaves it to the cluster that it will run on."""

    actor: int | None = None
    rollout: int | None = None
    env: int | None = None
    reward: int | None = None
    inference: int | None = None
    agent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSizes:
    """What one step of a run amounts to.

    Attributes:
        chunk_steps: Chunk steps of each environment in one rollout epoch (``T``).
        samples_per_step: Chunk steps of all environments and rollout epochs in one step.
        optimizer_steps_per_step: Optimizer steps that one step makes, over all update epochs; off-policy, those of the
            critics.
        trajectories_per_step: Rows of all rollout epochs.
        env_steps_per_step: Single actions of all environments in one step.
        envs_per_worker: Environments of one env worker; None where the number of workers is not known.
        eval_envs_per_worker: The same in evaluation; None without evaluation.
    """

    chunk_steps: int
    samples_per_step: int
    optimizer_steps_per_step: int
    trajectories_per_step: int
    env_steps_per_step: int
    envs_per_worker: int | None
    eval_envs_per_worker: int | None


def run_sizes(cfg: EmbodiedConfig, world: WorldSizes) -> RunSizes:
    """Return the sizes of a recipe; meaningful where ``validate_cfg`` accepts it.

    Args:
        cfg: The typed tree.
        world: Sizes of the worker groups.
    """
    train, evaluation = cfg.env.train, cfg.env.eval
    chunk_steps = train.max_steps_per_rollout_epoch // cfg.actor.model.num_action_chunks
    trajectories = train.total_num_envs * train.rollout_epoch
    samples = chunk_steps * trajectories
    minibatches = 1 if cfg.algorithm.loss.draws_batches else samples // cfg.actor.global_batch_size
    return RunSizes(
        chunk_steps=chunk_steps,
        samples_per_step=samples,
        optimizer_steps_per_step=cfg.algorithm.update_epoch * minibatches,
        trajectories_per_step=trajectories,
        env_steps_per_step=train.max_steps_per_rollout_epoch * trajectories,
        envs_per_worker=train.total_num_envs // world.env if world.env else None,
        eval_envs_per_worker=evaluation.total_num_envs // world.env if world.env and evaluation else None,
    )
