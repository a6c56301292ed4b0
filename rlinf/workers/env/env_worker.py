"""The env worker: steps its share of the environments, one pipeline stage after the other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rlinf.config.schema.env import EnvConfig, NoEnvConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.messages.embodied import PREVIOUS_ACTIONS, ChunkStep, Observation
from rlinf.envs import make_vector_env
from rlinf.envs.base import VectorEnv
from rlinf.envs.wrappers.expert_labels import ExpertLabels
from rlinf.errors import EpisodeRestoreError
from rlinf.models.base_policy import Mode
from rlinf.scheduler import Worker
from rlinf.telemetry.evaluation import EvalEpisode, mean_metrics
from rlinf.telemetry.metrics import Metric, MetricAccumulator
from rlinf.workers.env.episode_states import EpisodeStates
from rlinf.workers.env.policy_client import PinnedPolicyClient, PolicyClient, PooledPolicyClient
from rlinf.workers.env.spaces import PolicySizes, check_sizes, sizes_of
from rlinf.workers.load_balancer import LoadBalancer

_SAY_SECONDS = 30.0
"""A long evaluation says how far it is this often."""


class EnvWorker(Worker):
    """Holds ``total_num_envs / (world_size * stages)`` environments per pipeline stage.

    Args:
        cfg: The recipe.
        num_rollout_workers: World size of the rollout group.
        num_actor_workers: World size of the actor group.
        num_reward_workers: World size of the reward group; 0 where the environments' own rewards are learned from.
    """

    def __init__(
        self, cfg: EmbodiedConfig, num_rollout_workers: int, num_actor_workers: int, num_reward_workers: int = 0
    ) -> None:
        super().__init__()
        self.cfg = cfg
        self.num_rollout_workers = num_rollout_workers
        self.num_actor_workers, self.num_reward_workers = num_actor_workers, num_reward_workers
        self.policy: PolicyClient
        self.stages: dict[Mode, list[VectorEnv]] = {}
        self.last_obs: list[Observation] = []
        self.states: EpisodeStates = EpisodeStates(cfg, rank=self._rank, world_size=self._world_size)

    def init_worker(self, balancer: LoadBalancer | None = None) -> None:
        """Build the training environments; those for evaluation are built when first needed.

        Args:
            balancer: Finds idle rollout ranks in the decoupled mode.
        """
        if balancer is None:
            self.policy = PinnedPolicyClient(self, self.cfg, num_rollout_workers=self.num_rollout_workers)
        else:
            self.policy = PooledPolicyClient(
                self,
                self.cfg,
                balancer=balancer,
                num_actor_workers=self.num_actor_workers,
                num_reward_workers=self.num_reward_workers,
            )
        if not self.cfg.runner.only_eval and not isinstance(self.cfg.env.train, NoEnvConfig):
            self._envs("train")

    def policy_sizes(self) -> PolicySizes:
        """Return the sizes of observations and actions of the environments that the run begins with."""
        trains = not self.cfg.runner.only_eval and not isinstance(self.cfg.env.train, NoEnvConfig)
        return sizes_of(self._envs("train" if trains else "eval")[0])

    @Worker.timer("interact")
    def interact(self, *, step: int, restart: bool = False) -> dict[str, Metric]:
        """Step the training environments through one rollout, driven by actions from the rollout group.

        Args:
            step: Step of the run, which decides about reset states.
            restart: Begin new episodes in any case, rather than go on with those of the step before.

        Returns:
            Metrics of the episodes that ended, under ``env/``.
        """
        cfg, stages = self.cfg.env.train, self._envs("train")
        metrics = MetricAccumulator()
        for env in stages:
            env.begin_step(step)
        for epoch in range(cfg.rollout_epoch):
            if restart or not cfg.carries_episodes or not self.last_obs:
                index = (step - 1) * cfg.rollout_epoch + epoch
                self.last_obs = [env.reset(index) for env in stages]
                restart = False
            self.policy.begin_epoch("train", step=step, epoch=epoch)
            self._rollout_epoch("train", self.last_obs, lambda chunk: _add_means(metrics, chunk))
        self.policy.end_rollout(step)
        for env in stages:
            env.publish_collection()
        self.states.remember(step, stages)
        if cfg.enable_offload:
            for env in stages:
                env.offload()
        return metrics.triples()

    def save_episodes(self, folder: str, *, step: int) -> None:
        """Write down the training episodes that had not ended after a step's rollout, if there are any to continue.

        Args:
            folder: That of the env group in the checkpoint.
            step: Step of the run.
        """
        self.states.save(Path(folder), step)

    def load_episodes(self, folder: str, *, step: int) -> str | None:
        """Continue the training episodes that a checkpoint was saved in.

        Args:
            folder: What ``save_episodes`` was given.
            step: Step of the checkpoint.

        Returns:
            Why they cannot be continued; None if they are, or if every rollout epoch begins with new ones anyway.
        """
        if self.cfg.runner.only_eval or isinstance(self.cfg.env.train, NoEnvConfig):
            return None
        for env in self._envs("train"):
            env.rewind_collection(step)
        if not self.cfg.env.train.carries_episodes:
            return None
        try:
            self.last_obs = self.states.load(Path(folder), step, self._envs("train"))
        except EpisodeRestoreError as error:
            self.last_obs = []
            return str(error)
        return None

    @Worker.timer("evaluate")
    def evaluate(self) -> list[EvalEpisode]:
        """Step the evaluation environments through their rollout epochs, from the same states every time.

        Returns:
            The first episodes of each environment in each rollout epoch, as many as end there however long they last:
            each start state counts once.
        """
        cfg, stages = self._env_cfg("eval"), self._envs("eval")
        num_counted = cfg.num_counted_episodes(self.cfg.actions_per_chunk("eval"))
        log = _EpisodeLog(stages[0], num_counted=num_counted)
        said = time.monotonic()
        for epoch in range(cfg.rollout_epoch):
            log.epoch = epoch
            obs = [env.reset(epoch) for env in stages]
            self.policy.begin_epoch("eval", step=0, epoch=epoch)
            if self.cfg.actor.model.inference_delay is None or cfg.data_collection.is_scripted:
                self._rollout_epoch("eval", obs, log.add)
            else:
                self._real_time_epoch(obs[0], log.add, delay=self.cfg.actor.model.inference_delay)
            if self._rank == 0 and epoch + 1 < cfg.rollout_epoch and time.monotonic() - said >= _SAY_SECONDS:
                said = time.monotonic()
                self.log_info(f"Evaluation: {epoch + 1} of {cfg.rollout_epoch} rollout epochs, {log.summary()}.")
        self.policy.end_rollout(0)
        for env in stages:
            env.finish_collection()
        if stages[0].hardware_type is not None:
            self.last_obs = []  # the robot is not any more where training left it
        return log.episodes

    def simulator_versions(self) -> dict[str, str]:
        """Return what the results of an evaluation depend on besides the recipe; see ``VectorEnv.versions``."""
        return self._envs("eval")[0].versions()

    def _rollout_epoch(self, mode: Mode, obs: list[Observation], report: Callable[[ChunkStep], None]) -> None:
        stages = self._envs(mode)
        chunks = self._env_cfg(mode).max_steps_per_rollout_epoch // self.cfg.actions_per_chunk(mode)
        for stage, first in enumerate(obs):
            self.policy.send(stage, _first_step(first, stages[stage].num_envs), is_last=False)
        for number in range(chunks):
            for stage, env in enumerate(stages):
                with self.worker_timer("wait_for_actions"):
                    actions = self.policy.receive(stage)
                # Environments in processes of their own step on while another stage's actions are waited for.
                env.start_chunk_step(actions)
            for stage, env in enumerate(stages):
                with self.worker_timer("env_step"):
                    chunk = env.finish_chunk_step()
                report(chunk)
                obs[stage] = chunk.obs
                self.policy.send(stage, replace(chunk, episodes=()), is_last=number == chunks - 1)
        with self.worker_timer("wait_for_actions"):
            self.policy.end_epoch()

    def _real_time_epoch(self, obs: Observation, report: Callable[[ChunkStep], None], *, delay: int) -> None:
        """Evaluate while the policy computes: ``delay`` actions of what it has planned before are executed meanwhile.

        A chunk so begins with actions that are executed already when it arrives.
        """
        env, size = self._envs("eval")[0], self.cfg.actor.model.num_action_chunks
        chunks = self._env_cfg("eval").max_steps_per_rollout_epoch // size
        self.policy.send(0, _first_step(obs, env.num_envs), is_last=False)
        executed = 0
        for number in range(chunks):
            with self.worker_timer("wait_for_actions"):
                plan = self.policy.receive(0)
            chunk = self._execute(env, plan[:, executed:size], report)
            is_last = number == chunks - 1
            seen = {**chunk.obs, PREVIOUS_ACTIONS: plan[:, size:]}
            self.policy.send(0, replace(chunk, obs=seen, episodes=()), is_last=is_last)
            if delay and not is_last:
                self._execute(env, plan[:, size : size + delay], report)
            executed = delay
        with self.worker_timer("wait_for_actions"):
            self.policy.end_epoch()

    def _execute(self, env: VectorEnv, actions: torch.Tensor, report: Callable[[ChunkStep], None]) -> ChunkStep:
        with self.worker_timer("env_step"):
            chunk = env.chunk_step(actions)
        report(chunk)
        return chunk

    def _env_cfg(self, mode: Mode) -> EnvConfig:
        cfg = self.cfg.env.train if mode == "train" else self.cfg.env.eval
        assert cfg is not None
        return cfg

    def _envs(self, mode: Mode) -> list[VectorEnv]:
        if mode not in self.stages:
            cfg = self._env_cfg(mode)
            num_stages = self.cfg.rollout.pipeline_stage_num if mode == "train" else 1
            num_envs = cfg.total_num_envs // (self._world_size * num_stages)
            first = [(self._rank * num_stages + stage) * num_envs for stage in range(num_stages)]
            hardware = self.hardware_infos
            stages = []
            for start in first:
                stages.append(make_vector_env(cfg, num_envs=num_envs, first_env=start, hardware=hardware))
                self.at_shutdown(stages[-1].close)
                if mode == "train" and (loss := self.cfg.labelled_in_env) is not None:
                    stages[-1].add_wrapper(ExpertLabels(loss, env=cfg, num_envs=num_envs))
            self.stages[mode] = stages
            check_sizes(self.cfg.actor.model, sizes_of(stages[0]), f"env.{mode}")
        elif mode == "train" and self.cfg.env.train.enable_offload:
            for env in self.stages[mode]:
                env.onload()
        return self.stages[mode]


class _EpisodeLog:
    """Collects the episodes of an evaluation.

    Args:
        env: Plays them.
        num_counted: Episodes of each environment in each rollout epoch that count.
    """

    def __init__(self, env: VectorEnv, *, num_counted: int) -> None:
        self.env = env
        self.num_counted = num_counted
        self.epoch = 0
        self.episodes: list[EvalEpisode] = []
        self._ended: Counter[tuple[int, int]] = Counter()

    def add(self, chunk: ChunkStep) -> None:
        """Take the episodes that ended in a chunk, as far as they count."""
        if chunk.final_ids is None or chunk.final_obs is None:
            return
        tasks = chunk.final_obs.get("task_descriptions", [""] * len(chunk.episodes))
        for row, task, metrics in zip(chunk.final_ids.tolist(), tasks, chunk.episodes, strict=True):
            place = (self.epoch, self.env.first_env + row)
            number = self._ended[place]
            self._ended[place] += 1
            start, limit = self.env.start_of(row, number), self.env.cfg.num_start_states
            if number < self.num_counted and (limit is None or start < limit):
                self.episodes.append(EvalEpisode(*place, number=number, task=task, metrics=metrics, start=start))

    def summary(self) -> str:
        """Return how many episodes have ended so far, and the share of them that succeeded."""
        success = mean_metrics(self.episodes).get("eval/success_once")
        return f"{len(self.episodes)} episodes of this worker" + ("" if success is None else f", success {success:.2f}")


def _add_means(metrics: MetricAccumulator, chunk: ChunkStep) -> None:
    for episode in chunk.episodes:
        for name, value in episode.items():
            metrics.add(f"env/{name}", value)


def _first_step(obs: Observation, num_envs: int) -> ChunkStep:
    """Wrap first observations in a message without any executed action."""
    nothing = torch.zeros(num_envs, 0)
    none: Any = nothing.bool()
    return ChunkStep(obs=obs, rewards=nothing, terminations=none, truncations=none, executed=none)
