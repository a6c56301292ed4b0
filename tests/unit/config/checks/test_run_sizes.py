"""Sizes of a step on numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from changed_recipes import SAC

from rlinf.config import validate_cfg
from rlinf.config.checks.run_sizes import RunSizes, WorldSizes, run_sizes


def test_sizes_of_chunks_minibatches_and_workers(recipe: Callable[..., dict[str, Any]]) -> None:
    changes = {
        "actor.model.num_action_chunks": 5,
        "algorithm.update_epoch": 3,
        "env.train.rollout_epoch": 2,
        "actor.global_batch_size": 40,
        "actor.micro_batch_size": 10,
    }
    assert run_sizes(validate_cfg(recipe(changes)), WorldSizes(env=2)) == RunSizes(
        chunk_steps=20,
        samples_per_step=20 * 16,
        optimizer_steps_per_step=3 * 8,
        trajectories_per_step=16,
        env_steps_per_step=100 * 16,
        envs_per_worker=4,
        eval_envs_per_worker=2,
    )


def test_what_depends_on_an_unknown_cluster_is_none(recipe: Callable[..., dict[str, Any]]) -> None:
    sizes = run_sizes(validate_cfg(recipe()), WorldSizes())
    assert (sizes.envs_per_worker, sizes.eval_envs_per_worker) == (None, None)


def test_off_policy_updates_do_not_depend_on_the_samples_of_a_step(recipe: Callable[..., dict[str, Any]]) -> None:
    changes = SAC | {"algorithm": {**SAC["algorithm"], "update_epoch": 7}}
    assert run_sizes(validate_cfg(recipe(changes)), WorldSizes(env=1)).optimizer_steps_per_step == 7
