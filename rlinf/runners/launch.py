"""From a recipe to a running system: cluster, placement, worker groups, runner."""

from __future__ import annotations

from contextlib import ExitStack

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.runners.async_embodied_runner import AsyncEmbodiedRunner
from rlinf.runners.collection import collected_episodes
from rlinf.runners.embodied_runner import EmbodiedRunner, OfflineRunner
from rlinf.runners.output_paths import reserve_run, with_dataset_folder, with_run_paths
from rlinf.runners.records import open_cluster, record_run
from rlinf.utils.placement import HybridComponentPlacement
from rlinf.workers.actor.actor_worker import ActorWorker
from rlinf.workers.env.env_worker import EnvWorker
from rlinf.workers.env.spaces import fill_sizes, leaves_sizes
from rlinf.workers.reward.reward_worker import RewardWorker
from rlinf.workers.rollout.rollout_worker import MultiStepRolloutWorker


def launch_embodied(cfg: EmbodiedConfig) -> dict[str, float]:
    """Run a recipe of ``task_type: embodied``; see ``launch``."""
    return launch(cfg, EmbodiedRunner if cfg.algorithm.staleness_threshold is None else AsyncEmbodiedRunner)


def launch_offline(cfg: EmbodiedConfig) -> dict[str, float]:
    """Run a recipe of ``task_type: offline``; see ``launch``."""
    return launch(cfg, OfflineRunner)


def launch(cfg: EmbodiedConfig, make_runner: type[EmbodiedRunner]) -> dict[str, float]:
    """Run a recipe to its end; whatever happens, nothing that it started is left running.

    Args:
        cfg: The validated recipe.
        make_runner: The loop.

    Returns:
        The last step's metrics.
    """
    with ExitStack() as stack:
        # The data set is the experiment's, also where the evaluation that collects it has a folder of its own.
        reserved = reserve_run(with_dataset_folder(cfg), stack)
        return _launch(stack.enter_context(collected_episodes(with_run_paths(reserved))), make_runner)


def _launch(cfg: EmbodiedConfig, make_runner: type[EmbodiedRunner]) -> dict[str, float]:
    with (
        ExitStack() as afterwards,
        open_cluster(cfg) as cluster,
    ):
        placement = HybridComponentPlacement(cfg, cluster)
        num_env, num_rollout, num_actor = (placement.get_world_size(c) for c in ("env", "rollout", "actor"))
        num_reward = 0 if cfg.reward is None else placement.get_world_size("reward")
        num_collecting = num_env if cfg.runner.enable_decoupled_mode else num_rollout
        env = EnvWorker.create_group(cfg, num_rollout, num_actor, num_reward).launch(
            cluster, name=cfg.env.group_name, placement_strategy=placement.get_strategy("env"), wait=False
        )
        if leaves_sizes(cfg):
            cfg = fill_sizes(cfg, env.wait_ready().policy_sizes().wait()[0])
        # All groups start at once: most of the time is spent importing torch.
        actor = ActorWorker.create_group(cfg, {cfg.rollout.group_name: num_rollout}, num_collecting).launch(
            cluster, name=cfg.actor.group_name, placement_strategy=placement.get_strategy("actor"), wait=False
        )
        rollout = MultiStepRolloutWorker.create_group(cfg, num_env, num_actor, num_reward).launch(
            cluster, name=cfg.rollout.group_name, placement_strategy=placement.get_strategy("rollout"), wait=False
        )
        reward = None
        if cfg.reward is not None:
            reward = RewardWorker.create_group(cfg, num_collecting).launch(
                cluster, name=cfg.reward.group_name, placement_strategy=placement.get_strategy("reward"), wait=False
            )
        runner = make_runner(
            cfg,
            actor=actor.wait_ready(),
            rollout=rollout.wait_ready(),
            env=env.wait_ready(),
            reward=None if reward is None else reward.wait_ready(),
        )
        record_run(runner.logger, cluster, afterwards)
        runner.init_workers()
        return runner.run()
