"""A ``VectorEnv`` made of single environments, stepped in this process or in a pool of processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlinf.config.schema.env import EnvConfig
from rlinf.envs.base import StepResult, VectorEnv
from rlinf.envs.process_pool import PoolProcess, ProcessPool
from rlinf.envs.raw_chunk import BoolArray, ChunkRequest, EpisodeRule, IntArray, RawChunk, RawObservation, RawReset
from rlinf.envs.single_env import SingleEnv, SingleEnvRows, SingleEnvSpec

# For single steps outside a chunk: no rule of ours ends an episode.
_NO_RULE = EpisodeRule(max_episode_steps=2**62, ignore_terminations=False)


class SingleEnvVectorEnv(VectorEnv):
    """Turns a factory of single environments into a ``VectorEnv``.

    With ``cfg.num_env_processes`` above 0 the environments live in as many processes, each of which receives its part
    of a chunk in one message and answers when it has executed all of it.

    Args:
        cfg: The environment's configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.
        factory: Called as ``factory(render=<bool>, **kwargs)`` for each environment. Where processes are used it lives
            in a module that imports without torch (or each process takes seconds to start).
        kwargs: Its other arguments.
        row_kwargs: Further arguments, those of each environment (``B`` entries), where they differ.
        process: What the processes are; with one, there is at least one process. None is this interpreter's.
        build_timeout_seconds: How long a process may take to build its environments; None is the limit of any answer.

    Raises:
        ConfigError: As ``VectorEnv``, or raised by the factory.
        EnvironmentFailure: An environment could not be built.
    """

    def __init__(
        self,
        cfg: EnvConfig,
        *,
        num_envs: int,
        first_env: int = 0,
        factory: Callable[..., SingleEnv],
        kwargs: dict[str, Any] | None = None,
        row_kwargs: list[dict[str, Any]] | None = None,
        process: Callable[[SingleEnvSpec, int], PoolProcess] | None = None,
        build_timeout_seconds: float | None = None,
    ) -> None:
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        spec = SingleEnvSpec(
            env_type=cfg.env_type,
            factory=factory,
            kwargs=kwargs or {},
            row_kwargs=row_kwargs,
            first_env=first_env,
            num_envs=num_envs,
            num_recorded=len(self._recorder.rows),
        )
        self._pool: ProcessPool | None = None
        self._local: SingleEnvRows | None = None
        if process is not None or cfg.num_env_processes > 0:
            self._pool = ProcessPool(
                spec,
                max(cfg.num_env_processes, 1),
                build_timeout_seconds=build_timeout_seconds,
                process=process or PoolProcess,
            )
            spaces = self._pool.spaces
        else:
            self._local = SingleEnvRows(spec)
            spaces = self._local.spaces
        self.action_space = spaces.action
        self.observation_space = spaces.observation

    @property
    def pool(self) -> ProcessPool | None:
        """The processes that step the environments; None where they live in this one."""
        return self._pool

    def reset_idx(self, env_ids: IntArray, seeds: IntArray) -> RawObservation:
        """Start new episodes in some environments."""
        return self._reset_rows(env_ids, seeds).obs

    def step(self, actions: Any, active: BoolArray) -> StepResult:
        """Execute one action in each active environment."""
        request = ChunkRequest(
            actions=actions[:, None],
            active=active,
            steps=np.zeros(self.num_envs, np.int64),
            next_seeds=None,
            rule=_NO_RULE,
        )
        self._send_chunk(request)
        chunk = self._recv_chunk(request)
        return StepResult(
            obs=chunk.obs,
            rewards=chunk.rewards[:, 0],
            terminations=chunk.terminations[:, 0],
            truncations=chunk.truncations[:, 0],
            infos={"success": chunk.successes[:, 0]} if chunk.reports_success else {},
        )

    def _reset_rows(self, rows: IntArray, seeds: IntArray) -> RawReset:
        if self._pool is not None:
            return self._pool.reset(rows, seeds)
        assert self._local is not None
        return self._local.reset(rows, seeds)

    def _send_chunk(self, request: ChunkRequest) -> None:
        if self._pool is not None:
            self._pool.send_chunk(request)

    def _recv_chunk(self, request: ChunkRequest) -> RawChunk:
        if self._pool is not None:
            return self._pool.recv_chunk()
        assert self._local is not None
        return self._local.run_chunk(request)

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.close()
        if self._local is not None:
            self._local.close()
