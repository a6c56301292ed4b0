"""One optimizer step's gradient does not depend on micro-batches, on ranks, or on who owns which sample."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from rlinf.algorithms.advantages_and_returns import compute_advantages_and_returns
from rlinf.algorithms.aggregation import LOSS_AGG_FUNCS, compute_loss_denominators
from rlinf.algorithms.levels import expand_to_level, mask_at_level, reduce_to_level
from rlinf.algorithms.losses.inputs import LossInputs
from rlinf.algorithms.minibatch import SampleOwnership, plan_micro_batches, plan_minibatches
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.steps import rows_to_samples, steps_to_samples, trajectory_to_steps
from rlinf.algorithms.types import LARGEST, AllReduce, Metrics, add_metrics, finalize_metrics
from rlinf.config.schema.algorithm import ActorCriticLossConfig, AdvantageConfig, GAEConfig, GRPOConfig
from rlinf.data.messages.embodied import Trajectory

T, B, C, A, V = 5, 4, 3, 2, 1
GLOBAL_BATCH = 13  # Of 20 samples: ranks own unequal shares of a minibatch.


class TinyPolicy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.mean = nn.Linear(8, C * A)
        self.scale = nn.Parameter(torch.full((C, A), 0.1))
        self.value = nn.Linear(8, V)

    def forward(self, obs: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.hidden(obs))
        normal = torch.distributions.Normal(self.mean(hidden).view(-1, C, A), self.scale.exp())
        return normal.log_prob(actions), normal.entropy(), self.value(hidden)


class Ranks:
    """Sums tensors over threads that stand for ranks."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.slots: list[torch.Tensor | None] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)

    def all_reduce(self, rank: int) -> AllReduce:
        def reduce(tensor: torch.Tensor) -> torch.Tensor:
            self.slots[rank] = tensor
            self.barrier.wait()
            total = torch.stack([slot for slot in self.slots if slot is not None]).sum(dim=0)
            self.barrier.wait()
            return total

        return reduce


def make_trajectory(dtype: torch.dtype) -> Trajectory:
    generator = torch.Generator().manual_seed(0)
    normal = partial(torch.randn, generator=generator, dtype=dtype)
    executed = torch.ones(T, B, C, dtype=torch.bool)
    truncations = torch.zeros_like(executed)
    terminations = torch.zeros_like(executed)
    truncations[1, 0, 1] = True
    executed[1, 0, 2] = False
    terminations[2, 3, 0] = True
    executed[2, 3, 1:] = False
    executed[3:, 3] = False
    return Trajectory(
        forward_inputs={"obs": normal(T, B, 4), "actions": normal(T, B, C, A)},
        logprobs=normal(T, B, C, A) * 0.2 - 1.2,
        values=normal(T + 1, B, V),
        rewards=normal(T, B, C),
        terminations=terminations,
        truncations=truncations,
        executed=executed,
        final_values=normal(T, B, V),
        group_ids=torch.tensor([0, 0, 1, 1]),
        env_ids=torch.arange(B),
        versions=torch.zeros(T, B, dtype=torch.int64),
    )


@dataclass(frozen=True)
class Samples:
    """What a loss takes of a rollout, sample by sample."""

    advantages: torch.Tensor
    returns: torch.Tensor
    value_mask: torch.Tensor
    prev_values: torch.Tensor
    action_mask: torch.Tensor


def samples(trajectory: Trajectory, adv: tuple[str, AdvantageConfig], all_reduce: AllReduce | None = None) -> Samples:
    steps = trajectory_to_steps(trajectory, reward_type="chunk_level", bootstrap_type="standard", all_reduce=all_reduce)
    assert steps.values is not None
    computed, _ = compute_advantages_and_returns(adv[0], steps, adv[1])
    columns = (computed.advantages, computed.returns, computed.loss_mask, steps.values[:-1])
    kept = trajectory.executed & computed.loss_mask.any(dim=0).unsqueeze(-1)
    return Samples(*(steps_to_samples(column, T) for column in columns), action_mask=rows_to_samples(kept))


def rank_gradient(
    trajectory: Trajectory,
    model: TinyPolicy,
    *,
    rank: int,
    all_reduce: AllReduce,
    ownership: SampleOwnership,
    adv: tuple[str, AdvantageConfig],
    loss_config: ActorCriticLossConfig,
    level: str,
    micro_batch_size: int,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, Metrics]:
    """One rank's accumulated gradient and metrics for the first minibatch."""
    targets = samples(trajectory, adv, all_reduce)
    model = copy.deepcopy(model).to(dtype)
    minibatch = plan_minibatches(ownership.num_samples, GLOBAL_BATCH, seed=0, step=1, epoch=0)[0]
    plan = plan_micro_batches(minibatch, ownership, rank=rank, micro_batch_size=micro_batch_size)

    def masks(mask: torch.Tensor) -> torch.Tensor:
        return torch.cat([batch.masked(mask) for batch in plan])

    share = masks(targets.action_mask)
    denominators = compute_loss_denominators(
        policy_mask=mask_at_level(share, level, action_dim=A),
        entropy_mask=mask_at_level(share, "chunk_level", action_dim=A),
        value_mask=masks(targets.value_mask),
        data_parallel_size=ownership.num_ranks,
        all_reduce=all_reduce,
    )
    sums: Metrics = {}
    for batch in plan:
        loss, metrics = _micro_loss(
            model, trajectory, targets, batch.indices, batch.masked, level, denominators, loss_config
        )
        assert loss.requires_grad
        loss.backward()
        add_metrics(sums, metrics)
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]), sums


def _micro_loss(
    model: TinyPolicy,
    trajectory: Trajectory,
    targets: Samples,
    rows: torch.Tensor,
    masked: Callable[[torch.Tensor], torch.Tensor],
    level: str,
    denominators: Any,
    loss_config: ActorCriticLossConfig,
) -> tuple[torch.Tensor, Metrics]:
    forward_inputs = {name: rows_to_samples(tensor)[rows] for name, tensor in trajectory.forward_inputs.items()}
    old = rows_to_samples(trajectory.logprobs)[rows]
    logprobs, entropy, values = model(**forward_inputs)
    executed = masked(targets.action_mask)
    inputs = LossInputs(
        logprobs=reduce_to_level(logprobs, executed, level),
        old_logprobs=reduce_to_level(old, executed, level),
        ref_logprobs=reduce_to_level(old - 0.05, executed, level),
        advantages=expand_to_level(targets.advantages[rows], level, num_actions=C, action_dim=A),
        loss_mask=mask_at_level(executed, level, action_dim=A),
        entropy=reduce_to_level(entropy, executed, "chunk_level"),
        entropy_mask=mask_at_level(executed, "chunk_level", action_dim=A),
        values=values,
        prev_values=targets.prev_values[rows],
        returns=targets.returns[rows],
        value_mask=masked(targets.value_mask),
        denominators=denominators,
    )
    return policy_loss("actor_critic", inputs, loss_config)


def gradient(split: list[list[int]], **settings: Any) -> tuple[torch.Tensor, dict[str, float]]:
    """The gradient after averaging over ranks; ``split`` names the environments of each rank."""
    trajectory = make_trajectory(settings["dtype"])
    ranks = Ranks(len(split))
    ids = [(torch.tensor(envs).unsqueeze(1) * T + torch.arange(T)).flatten() for envs in split]
    ownership = SampleOwnership.from_ids(ids)
    # The global generator belongs to all threads: the weights are drawn before they start.
    torch.manual_seed(3)
    model = TinyPolicy()

    def run(rank: int) -> tuple[torch.Tensor, Metrics]:
        mine = _environments(trajectory, split[rank])
        return rank_gradient(mine, model, rank=rank, all_reduce=ranks.all_reduce(rank), ownership=ownership, **settings)

    with ThreadPoolExecutor(len(split)) as pool:
        results = list(pool.map(run, range(len(split))))
    assert len({tuple(metrics) for _, metrics in results}) == 1
    by_rank = {name: torch.stack([m[name] for _, m in results]) for name in results[0][1]}
    metrics = {name: pairs.amax(dim=0) if name in LARGEST else pairs.sum(dim=0) for name, pairs in by_rank.items()}
    return torch.stack([grad for grad, _ in results]).mean(dim=0), finalize_metrics(metrics)


def _environments(trajectory: Trajectory, envs: list[int]) -> Trajectory:
    def columns(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:, envs]

    assert trajectory.values is not None
    assert trajectory.final_values is not None
    return replace(
        trajectory,
        forward_inputs={name: columns(tensor) for name, tensor in trajectory.forward_inputs.items()},
        logprobs=columns(trajectory.logprobs),
        values=columns(trajectory.values),
        rewards=columns(trajectory.rewards),
        terminations=columns(trajectory.terminations),
        truncations=columns(trajectory.truncations),
        executed=columns(trajectory.executed),
        final_values=columns(trajectory.final_values),
        group_ids=trajectory.group_ids[envs],
        env_ids=trajectory.env_ids[envs],
    )


SPLITS = [[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[3, 2], [1, 0]], [[2, 3, 0], [1]]]
GAE = ("gae", GAEConfig())
LOSS = ActorCriticLossConfig(clip_ratio_c=3.0, entropy_bonus=0.01, kl_beta=0.1, value_clip=0.2, huber_delta=1.0)


def check(tolerance: float, splits: list[list[list[int]]], sizes: list[int], **settings: Any) -> None:
    expected, numbers = gradient([[0, 1, 2, 3]], micro_batch_size=100, **settings)
    assert expected.norm() > 0
    for split in splits:
        for size in sizes:
            actual, others = gradient(split, micro_batch_size=size, **settings)
            assert ((actual - expected).norm() / expected.norm()).item() < tolerance, (split, size)
            assert others == pytest.approx(numbers, rel=max(tolerance, 1e-6) * 100, abs=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
def test_any_micro_batch_size_and_any_ranks(dtype: torch.dtype, tolerance: float) -> None:
    check(tolerance, SPLITS, [1, 2, 3, 7, GLOBAL_BATCH], adv=GAE, loss_config=LOSS, level="token_level", dtype=dtype)


@pytest.mark.parametrize("level", ["token_level", "action_level", "chunk_level"])
@pytest.mark.parametrize("loss_agg_func", LOSS_AGG_FUNCS)
def test_every_aggregation_at_every_level(loss_agg_func: str, level: str) -> None:
    loss = replace(LOSS, loss_agg_func=loss_agg_func)  # type: ignore[arg-type]
    check(1e-6, SPLITS[1:2], [1, 4], adv=GAE, loss_config=loss, level=level, dtype=torch.float64)


def test_groups_and_filters_with_a_rank_that_has_nothing_left() -> None:
    # Only one of the two groups is inside the bounds, so on two ranks one of them learns nothing at all.
    trajectory = make_trajectory(torch.float64)
    scores = (trajectory.rewards * trajectory.executed).sum(dim=(0, 2)).view(2, 2).mean(dim=1)
    bounds = {"rewards_lower_bound": scores.max().item() - 1e-3, "rewards_upper_bound": scores.max().item() + 1e-3}
    config = GRPOConfig(filter_rewards=True, **bounds)
    check(1e-6, SPLITS[1:3], [1, 3], adv=("grpo", config), loss_config=LOSS, level="chunk_level", dtype=torch.float64)


def test_the_rollout_tells_local_from_global_normalisation() -> None:
    # What the invariance above rests on: statistics of single ranks would give other advantages.
    def advantages(envs: list[int]) -> torch.Tensor:
        mine = _environments(make_trajectory(torch.float64), envs)
        return samples(mine, GAE).advantages

    alone = torch.cat([advantages([0, 1]), advantages([2, 3])])
    assert not torch.allclose(alone, advantages([0, 1, 2, 3]), rtol=1e-3)
