"""The synchronous embodied loop: roll out, compute advantages, train, hand the new weights to the rollout."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlinf.config.schema.root import EmbodiedConfig
from rlinf.errors import WorkerDiedError, WorkerError
from rlinf.runners.profiling import StepProfiler
from rlinf.runners.run_paths import video_folders
from rlinf.runners.session import RunSession
from rlinf.scheduler import Channel, WorkerGroup, wait_all
from rlinf.telemetry.metrics import finalize, merge_metrics
from rlinf.telemetry.rundir import PROFILE_FOLDER
from rlinf.workers.dispatch import Dispatch

if TYPE_CHECKING:
    from rlinf.scheduler import WorkerGroupFuncResult
    from rlinf.workers.actor.embodied_actor import EmbodiedFSDPActor
    from rlinf.workers.env.env_worker import EnvWorker
    from rlinf.workers.reward.reward_worker import RewardWorker
    from rlinf.workers.rollout.rollout_worker import MultiStepRolloutWorker

Metrics = dict[str, float]


class EmbodiedRunner:
    """Drives actor, rollout and env groups through a recipe.

    Args:
        cfg: The recipe.
        actor: Trains the policy.
        rollout: Runs the policy.
        env: Steps the environments.
        reward: Rewards what they report; None where the environments' own rewards are learned from.
    """

    def __init__(
        self,
        cfg: EmbodiedConfig,
        actor: WorkerGroup[EmbodiedFSDPActor],
        rollout: WorkerGroup[MultiStepRolloutWorker],
        env: WorkerGroup[EnvWorker],
        reward: WorkerGroup[RewardWorker] | None = None,
    ) -> None:
        self.cfg = cfg
        self.actor, self.rollout, self.env = actor, rollout, env
        self.session = RunSession(cfg)
        self.session.places["video"] = video_folders(cfg)
        self.reward = reward
        self.groups: dict[str, WorkerGroup[Any]] = {"actor": actor, "rollout": rollout, "env": env}
        if reward is not None:
            self.groups["reward"] = reward
        self.profiler = StepProfiler(cfg.cluster.profiling, self.groups, self.session.folder / PROFILE_FOLDER)
        self.step = 0
        self.restarts = 0
        self.actor_lost = False
        self.started = time.monotonic()
        self.training: WorkerGroupFuncResult | None = None
        self.dispatch: Dispatch | None = None
        self.restart_episodes = True

    def init_workers(self) -> None:
        """Build models, engines and environments, and load the checkpoint to continue from, if any."""
        wait_all(*self._init_calls(self.groups.values()))
        if self.session.resume_from is not None:
            self.actor.load_checkpoint(str(self.session.resume_from / "actor")).wait()
            self.step = self.session.resume_step
            self.session.confirm_resumed()

    def _init_calls(self, groups: Iterable[WorkerGroup[Any]]) -> list[WorkerGroupFuncResult]:
        """Let groups build what they hold; env and rollout workers get a meeting point that no one has used."""
        if not self.cfg.runner.enable_decoupled_mode:
            return [group.init_worker() for group in groups]
        if self.dispatch is not None:
            self.dispatch.channel.close()
        self.dispatch = Dispatch.open(
            Channel.create(f"{self.rollout.name}/dispatch/{self.restarts}"),
            num_env_workers=len(self.env.worker_info_list),
            num_rollout_workers=len(self.rollout.worker_info_list),
        )
        players = (self.env, self.rollout)
        return [group.init_worker(self.dispatch) if group in players else group.init_worker() for group in groups]

    def run(self) -> Metrics:
        """Run the recipe to its end.

        Returns:
            The last step's metrics.
        """
        with self.session:
            try:
                return self._loop()
            except KeyboardInterrupt:
                self._save_after_interrupt()
                raise

    def _loop(self) -> Metrics:
        metrics: Metrics | None = {}
        failure: WorkerError | None = None
        while True:
            try:
                if failure is not None:
                    metrics = {} if self.recover(failure) else metrics
                    failure = None
                    if metrics is None:
                        # The step is made again, by workers that have no weights yet.
                        self.update_rollout_weights()
                if metrics is None:
                    metrics = self.make_step()
                self._finish_step(metrics)
                if self._is_done(metrics):
                    return metrics
                metrics = None
            except WorkerError as error:
                if find_death(error) is None or self.restarts >= self.cfg.runner.max_restarts:
                    raise
                failure = error

    def make_step(self) -> Metrics:
        """Make one step, all but handing its weights on."""
        self.started = time.monotonic()
        with self.profiler.step(self.step + 1):
            metrics = self.generate_rollouts()
            metrics |= self.compute_advantages_and_returns()
            metrics |= self.run_training()
        return metrics

    def _finish_step(self, metrics: Metrics) -> None:
        """Hand the new weights on, evaluate, log and save; repeated as a whole if a worker dies meanwhile."""
        self.update_rollout_weights()
        if metrics:
            metrics |= self.collect_times()
        if self.session.evaluates(self.step):
            metrics |= self.evaluate()
        self.session.log(self.step, metrics)
        if self.session.saves(self.step, metrics):
            self.save_checkpoint(metrics)

    def _is_done(self, metrics: Metrics) -> bool:
        runner = self.cfg.runner
        return runner.only_eval or self.step >= runner.total_steps or self.session.goal_reached(metrics)

    def update_rollout_weights(self) -> None:
        """Bring the rollout to the actor's current weights."""
        self.session.phase("sync weights")
        rollout = self.rollout.sync_model_from_actor(version=self.step)
        actor = self.actor.sync_model_to_rollout(version=self.step)
        wait_all(actor, rollout)

    def generate_rollouts(self) -> Metrics:
        """Let env and rollout play against each other while the actor collects what they make."""
        self.session.phase("rollout")
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

    def compute_advantages_and_returns(self) -> Metrics:
        """Turn rewards into what the policy learns from."""
        self.session.phase("advantages")
        return dict(self.actor.compute_advantages_and_returns().wait()[0])

    def run_training(self) -> Metrics:
        """Update the policy; from here on the step counts as made."""
        self.session.phase("training")
        self.training = self.actor.run_training(step=self.step + 1)
        metrics = dict(self.training.wait()[0])
        self.training = None
        self.step += 1
        return metrics

    def evaluate(self) -> Metrics:
        """Play the evaluation environments greedily, from the same states every time."""
        self.session.phase("evaluation")
        ranks, _ = wait_all(self.env.evaluate(), self.rollout.evaluate())
        return self.session.evaluated(self.step, [episode for rank in ranks for episode in rank])

    def collect_times(self) -> Metrics:
        """Return how long the step and its parts took: the slowest rank of each group."""
        ranks = wait_all(*(group.pop_execution_times() for group in self.groups.values()))
        return self.time_metrics(dict(zip(self.groups, ranks, strict=True)))

    def time_metrics(self, groups: Mapping[str, list[dict[str, float]]]) -> Metrics:
        """Lay out the seconds of the step that ends now.

        Args:
            groups: For each group what ``pop_execution_times`` of each rank returned.
        """
        step_seconds = time.monotonic() - self.started
        metrics = {"time/step": step_seconds, "time/restarts": float(self.restarts)}
        for name, times in groups.items():
            for tag in {tag for rank in times for tag in rank}:
                metrics[f"time/{name}/{tag}"] = max(rank.get(tag, 0.0) for rank in times)
        return metrics | self.throughput(step_seconds)

    def throughput(self, step_seconds: float) -> Metrics:
        """Return how much a step of such a length has got through."""
        train = self.cfg.env.train
        env_steps = train.total_num_envs * train.max_steps_per_rollout_epoch * train.rollout_epoch
        return {"time/env_steps_per_second": env_steps / step_seconds}

    def save_checkpoint(self, metrics: Metrics) -> None:
        """Write a checkpoint of the current step; the next step begins with new episodes, as after a resume."""
        self.session.phase("checkpoint")
        folder = self.session.checkpoints.begin(self.step)
        self.actor.save_checkpoint(str(folder / "actor")).wait()
        self.session.commit_checkpoint(self.step, metrics)
        self.restart_episodes = True

    def recover(self, error: WorkerError) -> bool:
        """Launch again what has died, and everything that was in the middle of talking to it.

        Env and rollout workers come back at the actor's present weights, and the step is made again. An actor comes
        back at the newest checkpoint, from which the run goes on.

        Args:
            error: What ended the step.

        Returns:
            Whether the run has gone back to a checkpoint (or to its start).

        Raises:
            WorkerError: A worker died meanwhile, or could not start.
        """
        death = find_death(error)
        assert death is not None
        self.restarts += 1
        self.session.restarted(death, self.restarts)
        # Remembered until the checkpoint is loaded: another worker may die before that.
        self.actor_lost = self.actor_lost or death.group == self.actor.name
        groups = [group for group in self.groups.values() if group is not self.actor or self.actor_lost]
        for group in groups:
            group.relaunch(wait=False)
        wait_all(*self._init_calls([group.wait_ready() for group in groups]))
        self.restart_episodes = True
        if not self.actor_lost:
            return False
        self._restore_actor()
        self.actor_lost = False
        return True

    def _restore_actor(self) -> None:
        checkpoint = self.session.rewind()
        self.step = self.session.resume_step
        if checkpoint is not None:
            self.actor.load_checkpoint(str(checkpoint / "actor")).wait()

    def _save_after_interrupt(self) -> None:
        """Finish a training phase that has begun, abandon anything else, and save the last whole step."""
        self.session.message("Interrupted: saving a checkpoint ...")
        if self.training is not None:
            self.training.wait()
            self.step += 1
        for group in self.groups.values():
            if group is not self.actor:
                group.close()
        # The actor runs one method at a time: this returns when it has given up what it was doing.
        self.actor.pop_execution_times().wait()
        if not self.session.is_saved(self.step) and self.step > 0:
            self.save_checkpoint({})


def find_death(error: BaseException | None) -> WorkerDiedError | None:
    """Return the death of a worker that an error was caused by, if one was."""
    while error is not None and not isinstance(error, WorkerDiedError):
        error = error.__cause__
    return error
