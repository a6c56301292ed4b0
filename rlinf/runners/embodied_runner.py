"""The phases of embodied training: environments and policy generate rollouts, or recorded data takes their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.errors import CommTimeoutError, WorkerDiedError, WorkerError
from rlinf.runners.evaluation_record import evaluation_record
from rlinf.runners.output_paths import video_folders
from rlinf.runners.step_runner import Metrics, StepRunner
from rlinf.scheduler import Channel, WorkerGroup, wait_all
from rlinf.telemetry.metrics import finalize, merge_metrics
from rlinf.workers.actor.actor_worker import ActorWorker
from rlinf.workers.env.env_worker import EnvWorker
from rlinf.workers.env.spaces import fill_sizes, leaves_sizes
from rlinf.workers.load_balancer import LoadBalancer
from rlinf.workers.reward.reward_worker import RewardWorker
from rlinf.workers.rollout.rollout_worker import MultiStepRolloutWorker

if TYPE_CHECKING:
    from rlinf.runners.launch import GroupLauncher
    from rlinf.scheduler import WorkerGroupFuncResult

# How long an interrupted run waits for env workers to finish the chunk that they are in.
_ENV_SECONDS = 10.0


class EmbodiedRunner(StepRunner):
    """Drives actor, rollout and env groups through a recipe.

    Args:
        cfg: The recipe.
        actor: Trains the policy.
        rollout: Runs the policy.
        env: Steps the environments.
        reward: Rewards what they report; None where the policy trains on the environments' own rewards.
    """

    def __init__(
        self,
        cfg: EmbodiedConfig,
        actor: WorkerGroup[ActorWorker],
        rollout: WorkerGroup[MultiStepRolloutWorker],
        env: WorkerGroup[EnvWorker],
        reward: WorkerGroup[RewardWorker] | None = None,
    ) -> None:
        groups: dict[str, WorkerGroup[Any]] = {"actor": actor, "rollout": rollout, "env": env}
        super().__init__(cfg, groups if reward is None else {**groups, "reward": reward})
        self.cfg = cfg
        self.actor, self.rollout, self.env, self.reward = actor, rollout, env, reward
        self.logger.output_paths["video"] = video_folders(cfg)
        self.balancer: LoadBalancer | None = None
        self.restart_episodes = True
        self.saves_episodes = True

    def init_calls(self, groups: Iterable[WorkerGroup[Any]]) -> list[WorkerGroupFuncResult]:
        """Let groups build what they hold; env and rollout workers share a new load balancer."""
        if not self.cfg.runner.enable_decoupled_mode:
            return [group.init_worker() for group in groups]
        if self.balancer is not None:
            self.balancer.channel.close()
        self.balancer = LoadBalancer.open(
            Channel.create(f"{self.rollout.name}/load_balancer/{self.restarts}"),
            num_env_workers=len(self.env.worker_info_list),
            num_rollout_workers=len(self.rollout.worker_info_list),
        )
        players = (self.env, self.rollout)
        return [group.init_worker(self.balancer) if group in players else group.init_worker() for group in groups]

    def generate_rollouts(self) -> Metrics:
        """Let env and rollout exchange observations and actions while the actor collects the trajectories."""
        self.logger.phase("rollout")
        return self.finish_rollout(self.begin_rollout(self.step + 1))

    def begin_rollout(self, step: int) -> dict[str, WorkerGroupFuncResult]:
        """Call the groups that make a step's rollout.

        Args:
            step: The step that will train on it.

        Returns:
            The calls by group.
        """
        calls = {
            "env": self.env.interact(step=step, restart=self.restart_episodes),
            "rollout": self.rollout.generate(step=step),
        }
        if self.reward is not None:
            calls["reward"] = self.reward.compute_rewards()
        self.restart_episodes = False
        return calls

    def finish_rollout(self, calls: Mapping[str, WorkerGroupFuncResult]) -> Metrics:
        """Let the actor collect a rollout while it is made.

        Args:
            calls: What ``begin_rollout`` returned.
        """
        *ranks, _ = wait_all(*calls.values(), self.actor.recv_rollout_trajectories())
        made = dict(zip(calls, ranks, strict=True))
        return finalize(merge_metrics([*made["env"], *made.get("reward", [])]))

    def compute_advantages(self) -> Metrics:
        """Have the actor compute advantages and returns of the rollout."""
        self.logger.phase("advantages")
        return dict(self.actor.compute_advantages(dump=self.dump_folder()).wait()[0])

    def evaluate(self) -> Metrics:
        """Run the evaluation environments greedily, from the same states every time."""
        self.logger.phase("evaluation")
        ranks, _ = wait_all(self.env.evaluate(), self.rollout.evaluate())
        record = None
        if self.cfg.runner.only_eval:
            versions = self.env.simulator_versions().wait()[0]
            record = evaluation_record(self.cfg, versions, self.logger.begins_at)
        return self.logger.log_evaluation(self.step, [episode for rank in ranks for episode in rank], record)

    def throughput(self, step_seconds: float) -> Metrics:
        """See ``StepRunner``: environment steps."""
        train = self.cfg.env.train
        env_steps = train.total_num_envs * train.max_steps_per_rollout_epoch * train.rollout_epoch
        return {"time/env_steps_per_second": env_steps / step_seconds}

    def write_checkpoint(self, folder: str) -> None:
        """See ``StepRunner``; the episodes under way are part of it, and go on."""
        calls = [self.actor.save_checkpoint(f"{folder}/actor")]
        if self.saves_episodes:
            calls.append(self.env.save_episodes(f"{folder}/env", step=self.step))
        wait_all(*calls)

    def load_checkpoint(self, folder: str) -> None:
        """See ``StepRunner``; where episodes cannot be continued it says why, and new ones begin."""
        step = self.logger.resume_step
        calls = (self.actor.load_checkpoint(f"{folder}/actor"), self.env.load_episodes(f"{folder}/env", step=step))
        reasons = [reason for reason in wait_all(*calls)[1] if reason]
        self.restart_episodes = bool(reasons)
        if reasons:
            self.logger.message(f"Training goes on with new episodes: {reasons[0]}")

    def recover(self, death: WorkerDiedError) -> bool:
        """See ``StepRunner``; where the run does not go back to a checkpoint, environments begin new episodes."""
        self.restart_episodes = True
        went_back = super().recover(death)
        if not went_back and self.cfg.env.train.carries_episodes:
            self.logger.message("Training goes on with new episodes: env workers were launched again.")
        return went_back

    def abandon_step(self) -> None:
        """See ``StepRunner``; env workers, which no longer get actions, hold the episodes of the last whole step."""
        for name, group in self.groups.items():
            if name not in {"actor", "env"}:
                group.close()
        if self.balancer is not None:
            self.balancer.channel.close()
        try:
            self.env.pop_execution_times().wait(timeout=_ENV_SECONDS)
        except (WorkerError, CommTimeoutError) as error:
            self.saves_episodes = False
            self.logger.message(f"The episodes under way are not saved: {error}")
            self.env.close()


class OfflineRunner(EmbodiedRunner):
    """Drives the actor through a recipe of ``task_type: offline``: it samples batches of recorded data by itself.

    Env and rollout groups take part in evaluations only.
    """

    def generate_rollouts(self) -> Metrics:
        """Generate nothing: the actor reads recorded data."""
        return {}

    def compute_advantages(self) -> Metrics:
        """Compute nothing: the losses of recorded data need no advantages in advance."""
        return {}

    def throughput(self, step_seconds: float) -> Metrics:
        """See ``StepRunner``: samples that were trained on."""
        samples = self.cfg.algorithm.update_epoch * self.cfg.actor.global_batch_size
        return {"time/samples_per_second": samples / step_seconds}


def start_workers(cfg: EmbodiedConfig, launcher: GroupLauncher) -> EmbodiedConfig:
    """Start the worker groups of an embodied recipe; see ``TaskType.workers``.

    Args:
        cfg: The recipe.
        launcher: Starts them.

    Returns:
        The recipe, with the sizes that it leaves to the environments filled in.
    """
    sizes = launcher.sizes
    num_env, num_rollout, num_actor, num_reward = (sizes.get(c, 0) for c in ("env", "rollout", "actor", "reward"))
    num_collecting = num_env if cfg.runner.enable_decoupled_mode else num_rollout
    env = launcher.start("env", EnvWorker.create_group(cfg, num_rollout, num_actor, num_reward))
    if leaves_sizes(cfg):
        cfg = fill_sizes(cfg, env.wait_ready().policy_sizes().wait()[0])
    launcher.start("actor", ActorWorker.create_group(cfg, {cfg.rollout.group_name: num_rollout}, num_collecting))
    launcher.start("rollout", MultiStepRolloutWorker.create_group(cfg, num_env, num_actor, num_reward))
    if cfg.reward is not None:
        launcher.start("reward", RewardWorker.create_group(cfg, num_collecting))
    return cfg
