"""The reward worker, and the weighted sum of a recipe's rewards that it computes."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.base import MeasuredReward, Reward, RewardContext
from rlinf.config.schema.reward import EmbodiedRewardConfig, RewardConfig, RewardTermConfig, TextRewardsConfig
from rlinf.config.schema.root import EmbodiedConfig, LanguageConfig
from rlinf.data.messages.responses import Response, ResponseBatch, ResponseGroup, RewardedGroup, RewardQuery
from rlinf.data.messages.rewards import RewardRequest
from rlinf.data.messages.routing import by_rank, sources
from rlinf.errors import RewardError, RLinfError
from rlinf.scheduler import Worker, WorkerGroup
from rlinf.telemetry.metrics import Metric, MetricAccumulator
from rlinf.telemetry.responses import sample_rows
from rlinf.utils.closing import close_all
from rlinf.utils.files import write_atomic
from rlinf.workers.reward.response_store import ResponseStore, Scoring
from rlinf.workers.streams import collecting_group, reward_tag

_MOMENT_SECONDS = 0.05
"""Time that a reward may take for its result to travel with the call that brought the responses. An engine's next
requests do not wait for it: an engine has more of them than it can generate at once."""


class RewardWorker(Worker):
    """One rank of the reward group: scores chunks of actions, or responses of a language model.

    Args:
        cfg: The recipe; it has a section ``reward``.
        num_collecting_workers: World size of the group that collects trajectories; 0 in recipes of language models.
    """

    def __init__(self, cfg: EmbodiedConfig | LanguageConfig, num_collecting_workers: int = 0) -> None:
        super().__init__()
        self.cfg = cfg
        self.num_collecting_workers = num_collecting_workers
        self.rewards: WeightedRewards
        self.store = ResponseStore()

    def init_worker(self) -> None:
        """Build the rewards."""
        assert self.cfg.reward is not None
        self.rewards = WeightedRewards(self.cfg.reward, RewardContext(device=torch.device(self.device)))
        self.at_shutdown(self.rewards.close)

    @Worker.timer("compute_rewards")
    def compute_rewards(self) -> dict[str, Metric]:
        """Score every chunk of one step's rollout, in the order in which collecting ranks send them.

        Returns:
            Each reward's mean over executed actions, under ``env/reward/``.
        """
        cfg = self.cfg
        assert isinstance(cfg, EmbodiedConfig)
        route = sources(self._rank, self.num_collecting_workers, self._world_size)
        chunk_steps = cfg.env.train.max_steps_per_rollout_epoch // cfg.actor.model.num_action_chunks
        group, metrics = collecting_group(cfg), MetricAccumulator()
        for _ in range(cfg.env.train.rollout_epoch * chunk_steps):
            for stage in range(cfg.rollout.pipeline_stage_num):
                for peer in route.peers:
                    request: RewardRequest = self.recv(group, peer, tag=reward_tag(stage))
                    self.send(self.rewards.score_chunk(request, metrics), group, peer, tag=reward_tag(stage))
        return metrics.triples()

    async def put_responses(self, split: str, *groups: ResponseGroup) -> list[RewardedGroup | None]:
        """Keep groups that an engine has generated, and reward each; see ``ResponseStore``.

        Args:
            split: ``train`` or ``eval``.
            *groups: Generated, not rewarded yet.

        Returns:
            Each group, if it is rewarded within a moment: most rewards are computed faster than a further call is made.
            None if it takes longer or fails, or if an engine was stopped while it generated: ``score`` returns the
            result, or raises the failure.
        """
        begun = [self._begin_scoring(split, group) for group in groups]
        pending = [scoring for scoring in begun if scoring is not None]
        if pending:
            await asyncio.wait(pending, timeout=_MOMENT_SECONDS)
        ended = [scoring if scoring is not None and scoring.done() else None for scoring in begun]
        return [scoring.result() if scoring and scoring.exception() is None else None for scoring in ended]

    def _begin_scoring(self, split: str, group: ResponseGroup) -> Scoring | None:
        if any(response.finish_reason == "abort" for response in group.batch.responses):
            self.store.put(split, group)  # most are about to be discarded
            return None
        scoring = asyncio.ensure_future(self._score(split, group))
        # Of a group that is discarded no result is awaited.
        scoring.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        self.store.put(split, group, scoring)
        return scoring

    async def score(self, split: str, group_id: int) -> RewardedGroup:
        """Reward the responses of a group that has been put here.

        Args:
            split: ``train`` or ``eval``.
            group_id: The group's number.

        Returns:
            What the driver holds of the responses; their tokens stay here until ``discard``.

        Raises:
            RewardError: A reward failed, or the group is not here.
        """
        group = self.store.get(split, group_id)
        return await (self.store.pop_scoring(split, group_id) or self._score(split, group))

    async def _score(self, split: str, group: ResponseGroup) -> RewardedGroup:
        scores = await self.rewards.score(group.queries())
        pairs = zip(group.batch.responses, scores, strict=True)
        responses = tuple(self.rewards.rewarded(response, terms) for response, terms in pairs)
        self.store.replace(split, group, responses=responses)
        return RewardedGroup.of(responses)

    async def get_responses(self, group_ids: Sequence[int]) -> list[ResponseBatch]:
        """Return groups that are trained on, with their tokens."""
        return [self.store.get("train", group_id).batch for group_id in group_ids]

    async def put_trainer_logprobs(self, group_id: int, logprobs: torch.Tensor) -> None:
        """Add log-probabilities by the trainer's code, float32 [T], to a group that is trained on."""
        self.store.replace("train", self.store.get("train", group_id), trainer_logprobs=logprobs)

    async def discard(self, split: str, group_ids: Sequence[int]) -> None:
        """Forget groups."""
        self.store.discard(split, group_ids)

    async def clear(self, split: str) -> None:
        """Forget all groups of a split."""
        self.store.clear(split)

    async def sample_rows(self, split: str, group_ids: Sequence[int]) -> list[str]:
        """Return the rows of a sample table for groups that are kept here, one text for each group."""
        return [sample_rows(self.store.get(split, group_id)) for group_id in group_ids]

    async def write_samples(self, path: str, split: str, group_ids: Sequence[int]) -> None:
        """Write a table of groups, whichever ranks keep them; called on one rank.

        Args:
            path: The file: one JSON line per response, in the given order.
            split: ``train`` or ``eval``.
            group_ids: The groups' numbers.

        Raises:
            RewardError: A group has been discarded.
        """
        numbers = by_rank(group_ids, self._world_size)
        rows = dict(zip(group_ids, [""] * len(group_ids), strict=True))
        for rank, part in numbers.items():
            if rank == self._rank:
                found = await self.sample_rows(split, part)
            else:
                peers = await asyncio.to_thread(WorkerGroup.from_group_name, type(self), self._group_name)
                (found,) = await peers.execute_on(rank).sample_rows(split, part).async_wait()
            rows.update(zip(part, found, strict=True))
        await asyncio.to_thread(_write, Path(path), "".join(rows.values()))


class WeightedRewards:
    """The weighted sum of several rewards.

    Each reward of text has threads of its own, so that a slow one delays neither the others nor generation.

    Args:
        cfg: The ``reward`` section.
        context: What they may use of the worker.

    Raises:
        RewardError: A reward's constructor takes other arguments.
    """

    def __init__(self, cfg: RewardConfig | TextRewardsConfig, context: RewardContext | None = None) -> None:
        self.terms: dict[str, RewardTermConfig] = dict(cfg.rewards)
        self.rewards: dict[str, Reward[Any, Any]] = {}
        self._threads: dict[str, ThreadPoolExecutor] = {}
        try:
            for name in self.terms:
                self.rewards[name] = self._build(name, context or RewardContext())
                self._threads[name] = ThreadPoolExecutor(cfg.max_concurrency, thread_name_prefix=f"reward-{name}")
        except BaseException:
            self.close()
            raise

    def score_chunk(self, request: RewardRequest, metrics: MetricAccumulator) -> torch.Tensor:
        """Return the weighted rewards of a chunk of actions, float32 [B, C], 0 where an action was not executed.

        Args:
            request: The chunk.
            metrics: Takes each reward without its weight.

        Raises:
            RewardError: A reward has another shape, or is not finite.
        """
        total = torch.zeros(request.executed.shape)
        done = request.terminations | request.truncations
        num_executed = int(request.executed.sum())
        for name, reward in self.rewards.items():
            term = self.terms[name]
            values = reward(request).float().cpu()
            self._check_chunk(name, values, request.executed)
            is_terminal = isinstance(term, EmbodiedRewardConfig) and term.reward_mode == "terminal"
            values = torch.where(request.executed & done if is_terminal else request.executed, values, 0.0)
            total += term.weight * values
            if num_executed:
                metrics.add(f"env/reward/{name}", float(values.sum()), num_executed)
        return total

    async def score(self, queries: Sequence[RewardQuery]) -> list[Mapping[str, float]]:
        """Score a batch of responses by all rewards concurrently.

        Args:
            queries: The responses.

        Returns:
            The unweighted score of each response by each reward, in the order of the queries.

        Raises:
            RewardError: A reward failed, gave another number of scores than there are responses, or one that is not
                finite; the message names its path in the recipe.
        """
        if not queries:
            return []
        columns = await asyncio.gather(*(self._score_by(name, queries) for name in self.rewards))
        return [dict(zip(self.rewards, row, strict=True)) for row in zip(*columns, strict=True)]

    def total(self, scores: Mapping[str, float]) -> float:
        """Return the weighted sum of one response's scores, as ``score`` gives them."""
        return sum(self.terms[name].weight * value for name, value in scores.items())

    def rewarded(self, response: Response, scores: Mapping[str, float]) -> Response:
        """Return a response with its reward, the scores that make it up and their metrics.

        Rewards that its turns have of their own are added.

        Args:
            response: The response.
            scores: One for each reward, as ``score`` gives them.
        """
        measured = {name: value for name, value in scores.items() if isinstance(value, MeasuredReward)}
        return dataclasses.replace(
            response,
            reward=math.fsum((self.total(scores), *response.turn_rewards)),
            reward_terms={name: float(value) for name, value in scores.items()},
            reward_metrics={f"{name}_{key}": x for name, value in measured.items() for key, x in value.metrics.items()},
        )

    def close(self) -> None:
        """Free what the rewards hold, without waiting for batches that are still being scored."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        close_all(reward.close for reward in self.rewards.values())

    def _build(self, name: str, context: RewardContext) -> Reward[Any, Any]:
        cls = get_reward_class(self.terms[name].reward_type)
        try:
            reward: Reward[Any, Any] = cls(self.terms[name], context)
        except TypeError as error:
            raise RewardError(
                f"{self._where(name)} cannot be built: {error}. Let its constructor take (cfg, context)."
            ) from error
        return reward

    async def _score_by(self, name: str, queries: Sequence[RewardQuery]) -> list[float]:
        loop = asyncio.get_running_loop()
        try:
            values = await loop.run_in_executor(self._threads[name], self.rewards[name], queries)
        except RLinfError as error:
            raise RewardError(f"{self._where(name)}: {error}") from error
        except Exception as error:  # a reward may be a plug-in's code
            raise RewardError(
                f"{self._where(name)} raised {type(error).__name__}: {error}. Correct the reward, or its input."
            ) from error
        return self._checked(name, values, len(queries))

    def _checked(self, name: str, values: Sequence[float], count: int) -> list[float]:
        if len(values) != count:
            raise RewardError(
                f"{self._where(name)} returned {len(values)} rewards for {count} responses; expected one for each. "
                "Correct the reward."
            )
        rewards = [value if isinstance(value, MeasuredReward) else float(value) for value in values]
        for row, value in enumerate(rewards):
            if not math.isfinite(value):
                raise RewardError(
                    f"{self._where(name)} returned {value} for response {row} of {count}; expected finite numbers. "
                    "Correct the reward, or its input."
                )
        return rewards

    def _check_chunk(self, name: str, values: torch.Tensor, executed: torch.Tensor) -> None:
        if values.shape != executed.shape:
            raise RewardError(
                f"{self._where(name)} returned {list(values.shape)}; expected one number for each action, "
                f"{list(executed.shape)}. Correct the reward; at_last_action() spreads one number per environment."
            )
        if not torch.isfinite(values[executed]).all():
            raise RewardError(f"{self._where(name)} returned NaN or infinity. Correct the reward, or its input.")

    def _where(self, name: str) -> str:
        return f"reward.rewards.{name} (reward_type={self.terms[name].reward_type})"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text)
