"""The reward worker: judges what collecting ranks report, while environments and policy go on."""

from __future__ import annotations

import torch

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.base import EmbodiedReward
from rlinf.config.schema.reward import EmbodiedRewardConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.data.rewards import RewardRequest
from rlinf.data.routing import sources
from rlinf.errors import RewardError
from rlinf.scheduler import Worker
from rlinf.telemetry.metrics import Metric, MetricAccumulator
from rlinf.utils.closing import close_all
from rlinf.workers.streams import collecting_group, reward_tag


class RewardWorker(Worker):
    """One rank of the reward group; ``RewardExchange`` is the other end.

    Args:
        cfg: The recipe.
        num_collecting_workers: World size of the group that collects trajectories.
    """

    def __init__(self, cfg: EmbodiedConfig, num_collecting_workers: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.route = sources(self._rank, num_collecting_workers, self._world_size)
        self.rewards: WeightedRewards

    def init_worker(self) -> None:
        """Build the rewards."""
        assert self.cfg.reward is not None
        self.rewards = WeightedRewards(self.cfg.reward.rewards, torch.device(self.device))
        self.at_shutdown(self.rewards.close)

    @Worker.timer("compute_rewards")
    def compute_rewards(self) -> dict[str, Metric]:
        """Judge every chunk of one step's rollout, in the order in which collecting ranks send them.

        Returns:
            Each reward's mean over executed actions, under ``env/reward/``.
        """
        train, group = self.cfg.env.train, collecting_group(self.cfg)
        chunk_steps = train.max_steps_per_rollout_epoch // self.cfg.actor.model.num_action_chunks
        metrics = MetricAccumulator()
        for _ in range(train.rollout_epoch * chunk_steps):
            for stage in range(self.cfg.rollout.pipeline_stage_num):
                for peer in self.route.peers:
                    request: RewardRequest = self.recv(group, peer, tag=reward_tag(stage))
                    self.send(self.rewards(request, metrics), group, peer, tag=reward_tag(stage))
        return metrics.triples()


class WeightedRewards:
    """The weighted sum of several rewards.

    Args:
        terms: Their configuration by name.
        device: Where they compute.
    """

    def __init__(self, terms: dict[str, EmbodiedRewardConfig], device: torch.device) -> None:
        self.terms = terms
        self.rewards: dict[str, EmbodiedReward] = {
            name: get_reward_class(term.reward_type)(term, device=device) for name, term in terms.items()
        }

    def __call__(self, request: RewardRequest, metrics: MetricAccumulator) -> torch.Tensor:
        """Return the rewards of a chunk, float32 [B, C], 0 where an action was not executed.

        Args:
            request: What happened.
            metrics: Takes each reward without its weight.

        Raises:
            RewardError: A reward has another shape, or is not finite.
        """
        total = torch.zeros(request.executed.shape)
        done = request.terminations | request.truncations
        executed = int(request.executed.sum())
        for name, reward in self.rewards.items():
            values = reward(request).float().cpu()
            self._check(name, values, request.executed)
            counted = request.executed & done if self.terms[name].reward_mode == "terminal" else request.executed
            values = torch.where(counted, values, 0.0)
            total += self.terms[name].weight * values
            if executed:
                metrics.add(f"env/reward/{name}", float(values.sum()), executed)
        return total

    def close(self) -> None:
        """Free what the rewards hold."""
        close_all(reward.close for reward in self.rewards.values())

    def _check(self, name: str, values: torch.Tensor, executed: torch.Tensor) -> None:
        where = f"reward.rewards.{name} (reward_type={self.terms[name].reward_type})"
        if values.shape != executed.shape:
            raise RewardError(
                f"{where} returned {list(values.shape)}; expected one number for each action, {list(executed.shape)}. "
                "Correct the reward; at_last_action() spreads one number per environment."
            )
        if not torch.isfinite(values[executed]).all():
            raise RewardError(f"{where} returned NaN or infinity. Correct the reward, or look at what it is shown.")
