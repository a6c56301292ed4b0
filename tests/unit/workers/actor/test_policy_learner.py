"""The gradient is the same for any micro-batch size, one or two ranks, and any sharding."""

import copy
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.algorithms.minibatch import plan_micro_batches
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.types import Metrics
from rlinf.config.registries import losses
from rlinf.config.schema.algorithm import (
    ActorCriticLossConfig,
    ActorLossConfig,
    EmbodiedAlgorithmConfig,
    GAEConfig,
    GRPOConfig,
)
from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.errors import AlgorithmError, NumericalError
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.train_engine import MetricSums
from rlinf.models import get_model
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor import policy_learner
from rlinf.workers.actor.policy_learner import PolicyLearner
from tests.ranks import run_ranks

STEPS, ENVS, CHUNK, DIM = 6, 8, 3, 2
ALGORITHMS = {
    "ppo": EmbodiedAlgorithmConfig(
        adv_type="gae",
        loss_type="actor_critic",
        advantage=GAEConfig(),
        loss=ActorCriticLossConfig(clip_ratio_c=3.0, entropy_bonus=0.01, value_clip=0.2, huber_delta=1.0, kl_beta=0.1),
    ),
    "grpo": EmbodiedAlgorithmConfig(
        adv_type="grpo",
        loss_type="actor",
        group_size=4,
        logprob_type="token_level",
        entropy_type="action_level",
        advantage=GRPOConfig(filter_rewards=True, rewards_lower_bound=-0.4, rewards_upper_bound=5.0),
        loss=ActorLossConfig(loss_agg_func="seq-mean-token-mean", entropy_bonus=0.01),
    ),
}


def make_trajectory(dtype: torch.dtype) -> Trajectory:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    truncations = torch.zeros(STEPS, ENVS, CHUNK, dtype=torch.bool)
    truncations[2, 1, 1] = truncations[4, 5, 0] = True
    executed = torch.ones(STEPS, ENVS, CHUNK, dtype=torch.bool)
    executed[2, 1, 2:] = executed[4, 5, 1:] = executed[5, 7] = False
    inputs = {"states": normal(STEPS, ENVS, 5), "action": normal(STEPS, ENVS, CHUNK, DIM)}
    logprobs = -1.5 + 0.2 * normal(STEPS, ENVS, CHUNK, DIM)
    return Trajectory(
        forward_inputs=inputs,
        logprobs=logprobs,
        values=normal(STEPS + 1, ENVS, 1),
        rewards=normal(STEPS, ENVS, CHUNK),
        terminations=torch.zeros_like(truncations),
        truncations=truncations,
        executed=executed,
        final_values=normal(STEPS, ENVS, 1),
        group_ids=torch.arange(ENVS) // 4,
        env_ids=torch.arange(ENVS),
        versions=torch.zeros(STEPS, ENVS, dtype=torch.int64),
    )


def make_ranked(
    algorithm: str,
    dtype: torch.dtype,
    micro_batch_size: int,
    sharding: str = "no_shard",
    rank: int = 0,
    world_size: int = 1,
) -> PolicyLearner:
    """Return a learner that holds its rank's part of a rollout of 48 samples; minibatches have 32."""
    torch.manual_seed(0)
    model = get_model(
        MLPPolicyConfig(
            model_type="mlp_policy",
            obs_dim=5,
            action_dim=DIM,
            num_action_chunks=CHUNK,
            hidden_dims=[16],
            add_value_head=True,
        )
    ).to(dtype)
    algorithm = ALGORITHMS[algorithm]
    actor = ActorConfig(
        model=model.cfg, global_batch_size=32, micro_batch_size=micro_batch_size, seed=3, optim=OptimConfig(lr=1e-3)
    )
    engine = FSDPEngine(
        model,
        optim=actor.optim,
        fsdp=FSDPConfig(sharding_strategy=sharding),
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=world_size,
    )
    learner = PolicyLearner(engine, cfg=RLinfConfig(algorithm=algorithm, actor=actor))
    share = ENVS // world_size
    learner.compute_advantages(make_trajectory(dtype).envs(rank * share, (rank + 1) * share))
    return learner


def gradient(
    algorithm: str,
    dtype: torch.dtype,
    micro_batch_size: int,
    sharding: str = "no_shard",
    rank: int = 0,
    world_size: int = 1,
) -> dict[Any, Any]:
    """Return the gradient of the first minibatch, by parameter."""
    learner = make_ranked(algorithm, dtype, micro_batch_size, sharding, rank, world_size)
    minibatch = learner.plan(step=1, epoch=0)[0]
    plan = plan_micro_batches(minibatch, learner.ownership, rank=rank, micro_batch_size=micro_batch_size)
    learner.forward_backward(learner.samples, plan)
    result = {}
    for name, parameter in learner.engine.model.named_parameters():
        grad = parameter.grad
        if grad is None:  # The value head, where the loss has no use for it.
            continue
        result[name] = (grad.full_tensor() if hasattr(grad, "full_tensor") else grad).clone()
    return result


def assert_same(actual: dict[Any, Any], expected: dict[Any, Any], tolerance: float) -> None:
    scale = max(float(g.abs().max()) for g in expected.values())
    assert scale > 0
    assert actual.keys() == expected.keys()
    for name, grad in expected.items():
        assert float((actual[name] - grad).abs().max()) <= tolerance * scale, name


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
def test_the_gradient_does_not_depend_on_the_micro_batch_size(
    algorithm: str, dtype: torch.dtype, tolerance: float
) -> None:
    expected = gradient(algorithm, dtype, 32)
    for micro_batch_size in (1, 5, 16, 31):
        assert_same(gradient(algorithm, dtype, micro_batch_size), expected, tolerance)


def run_rank(rank: int, port: int, path: Path, cases: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    results = [gradient(*case, rank=rank, world_size=2) for case in cases]
    weights = updated(rank=rank, world_size=2)
    if rank == 0:
        torch.save((results, weights), path)


def updated(**where: int) -> dict[str, torch.Tensor]:
    """Return the weights after an update: two minibatches, and micro-batches of 4."""
    learner = make_ranked("ppo", torch.float64, 4, **where)
    learner.update(step=1)
    return {name: parameter.detach().clone() for name, parameter in learner.engine.model.named_parameters()}


@pytest.mark.timeout(240)
def test_the_gradient_does_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    cases = [
        (algorithm, dtype, 4, sharding)
        for algorithm in ALGORITHMS
        for dtype in (torch.float64, torch.float32)
        for sharding in ("no_shard", "full_shard")
    ]
    run_ranks(run_rank, find_free_port(), str(tmp_path / "gradients.pt"), cases)
    gradients, weights = torch.load(tmp_path / "gradients.pt")
    for case, actual in zip(cases, gradients, strict=True):
        algorithm, dtype = case[:2]
        assert_same(actual, gradient(algorithm, dtype, 32), 1e-6 if dtype == torch.float64 else 1e-5)
    assert_same(weights, updated(), 1e-6)


def make_learner(
    trajectory: Trajectory, loss_type: str = "actor_critic", update_epoch: int = 2, kl_beta: float = 0.0, **keys: int
) -> tuple[PolicyLearner, dict[str, float]]:
    torch.manual_seed(0)
    model = get_model(
        MLPPolicyConfig(
            model_type="mlp_policy",
            obs_dim=5,
            action_dim=DIM,
            num_action_chunks=CHUNK,
            hidden_dims=[16],
            add_value_head=True,
            normalize_obs=True,
        )
    )
    actor = ActorConfig(model=model.cfg, **{"global_batch_size": 16, "micro_batch_size": 16, "seed": 3, **keys})
    engine = FSDPEngine(
        model,
        optim=actor.optim,
        fsdp=FSDPConfig(sharding_strategy="no_shard"),
        precision="fp32",
        device=torch.device("cpu"),
    )
    loss = losses.configs.get(loss_type)(kl_beta=kl_beta)
    algorithm = dataclasses.replace(
        ALGORITHMS["ppo"], loss_type=loss_type, update_epoch=update_epoch, loss=loss, logprob_type="action_level"
    )
    learner = PolicyLearner(engine, cfg=RLinfConfig(algorithm=algorithm, actor=actor))
    return learner, learner.compute_advantages(trajectory)


def test_samples_hold_values_of_the_rollout_and_actions_of_the_groups_that_are_kept() -> None:
    trajectory = make_trajectory(torch.float32)
    learner, _ = make_learner(trajectory)
    assert torch.equal(learner.samples.prev_values, trajectory.values[:-1].transpose(0, 1).flatten(0, 1))
    assert torch.equal(learner.samples.action_mask, trajectory.executed.transpose(0, 1).flatten(0, 1))
    means = (trajectory.rewards * trajectory.executed).sum((0, 2)).view(2, 4).mean(1)
    advantage = GRPOConfig(filter_rewards=True, rewards_upper_bound=float(means.mean()))
    learner.algorithm = dataclasses.replace(learner.algorithm, adv_type="grpo", advantage=advantage)
    learner.compute_advantages(trajectory)
    kept = (means < means.mean()).repeat_interleave(4)
    expected = trajectory.executed & kept.unsqueeze(-1)
    assert torch.equal(learner.samples.action_mask, expected.transpose(0, 1).flatten(0, 1))


def test_an_update_visits_every_minibatch_of_every_epoch_and_then_the_statistics() -> None:
    learner, _ = make_learner(make_trajectory(torch.float32))
    metrics = learner.update(1)
    assert learner.engine.num_steps == 2 * 3
    trajectory = make_trajectory(torch.float32)
    valid = trajectory.executed.any(-1)
    assert int(learner.engine.model.encoder.normalizer.count) == int(valid.sum())
    assert metrics["grad_norm"] > 0


def test_an_update_ends_where_the_policy_has_gone_too_far() -> None:
    def train(limit: float | None) -> tuple[PolicyLearner, dict[str, float]]:
        learner, _ = make_learner(make_trajectory(torch.float32))
        learner.algorithm = dataclasses.replace(learner.algorithm, early_stop_kl=limit)
        return learner, learner.update(1)

    (whole, plain), (wide, unbounded), (stopped, found) = (train(limit) for limit in (None, 1e9, 1e-9))
    assert "optimizer_steps" not in plain
    assert unbounded == plain | {"optimizer_steps": 6.0}
    assert whole.engine.num_steps == wide.engine.num_steps == 6
    # The policy that made the rollout has other log-probabilities here: the first step is made all the same.
    assert found["optimizer_steps"] == stopped.engine.num_steps == 1
    assert found["actor_ratio_max"] <= plain["actor_ratio_max"]
    assert all(parameter.grad is None for parameter in stopped.engine.model.parameters())


def test_losses_without_a_divergence_cannot_end_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*arguments: Any) -> tuple[torch.Tensor, Metrics]:
        loss, metrics = policy_loss(*arguments)
        return loss, {name: pair for name, pair in metrics.items() if name != "actor_approx_kl"}

    learner, _ = make_learner(make_trajectory(torch.float32))
    learner.algorithm = dataclasses.replace(learner.algorithm, early_stop_kl=1.0)
    monkeypatch.setattr("rlinf.workers.actor.policy_learner.policy_loss", silent)
    with pytest.raises(AlgorithmError, match=r"early_stop_kl: .* reports no actor_approx_kl"):
        learner.update(1)


def test_the_decoupled_loss_is_given_the_policy_at_the_start_of_the_update() -> None:
    trajectory = make_trajectory(torch.float32)
    learner, _ = make_learner(trajectory, "decoupled_actor_critic", update_epoch=1, global_batch_size=48)
    executed, inputs = trajectory.executed.flatten(0, 1), learner.samples.forward_inputs
    # Laid out in another order than the trajectory, hence computed from the samples.
    with torch.no_grad():
        difference = (learner.engine.model(forward_inputs=inputs).logprobs - learner.samples.logprobs).sum(-1)
    mask = learner.samples.action_mask
    assert int(mask.sum()) == int(executed.sum())
    metrics = learner.update(1)
    assert metrics["actor_ratio"] == pytest.approx(1.0, abs=1e-6)
    expected = difference[mask].exp().clamp(max=2.0).mean()
    assert metrics["actor_behave_weight"] == pytest.approx(float(expected), rel=1e-5)


def test_the_decoupled_loss_learns_like_the_other_from_its_own_samples() -> None:
    def weights(loss_type: str) -> torch.Tensor:
        trajectory = make_trajectory(torch.float32)
        learner, _ = make_learner(trajectory, loss_type)
        assert learner.samples is not None
        with torch.no_grad():
            own = learner.engine.model(forward_inputs=learner.samples.forward_inputs).logprobs
        learner.samples = dataclasses.replace(learner.samples, logprobs=own)
        learner.update(1)
        return torch.cat([p.detach().flatten() for p in learner.engine.model.parameters()])

    assert torch.allclose(weights("decoupled_actor_critic"), weights("actor_critic"), atol=1e-5)


def test_updates_are_repeatable_and_differ_from_step_to_step() -> None:
    def weights(step: int) -> torch.Tensor:
        learner, _ = make_learner(make_trajectory(torch.float32))
        learner.update(step)
        return torch.cat([p.detach().flatten() for p in learner.engine.model.parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_a_reward_that_is_not_finite_is_an_error_before_anything_is_learned() -> None:
    trajectory = make_trajectory(torch.float32)
    trajectory.rewards[3, 2, 0] = float("nan")
    with pytest.raises(NumericalError, match="Advantages are not finite"):
        make_learner(trajectory)


def recorded_losses(learner: PolicyLearner, monkeypatch: pytest.MonkeyPatch, step: int = 1) -> list[Any]:
    """Make an update and return what each micro-batch passed to its loss."""
    calls = []

    def record(loss_type: Any, inputs: Any, cfg: Any) -> tuple[torch.Tensor, Metrics]:
        calls.append(inputs)
        return policy_loss(loss_type, inputs, cfg)

    monkeypatch.setattr("rlinf.workers.actor.policy_learner.policy_loss", record)
    learner.update(step)
    return calls


def test_the_proximal_policy_is_that_at_the_start_of_the_update_for_all_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner, _ = make_learner(make_trajectory(torch.float32), "decoupled_actor_critic")
    samples, policy = learner.samples, copy.deepcopy(learner.engine.model)
    calls = recorded_losses(learner, monkeypatch)
    with torch.no_grad():
        current = policy(forward_inputs=samples.forward_inputs).logprobs
    executed = samples.action_mask.unsqueeze(-1)
    start, acted = ((executed * logprobs).sum(-1) for logprobs in (current, samples.logprobs))
    assert len(calls) == 6
    for call in calls:
        rows = [int((call.old_logprobs[i] - acted).abs().sum(1).argmin()) for i in range(16)]
        torch.testing.assert_close(call.old_logprobs, acted[rows])
        torch.testing.assert_close(call.proximal_logprobs, start[rows])
    assert not torch.allclose(calls[-1].logprobs, calls[-1].proximal_logprobs)


def test_the_reference_is_the_policy_before_the_first_update(monkeypatch: pytest.MonkeyPatch) -> None:
    trajectory = make_trajectory(torch.float32)
    learner, _ = make_learner(trajectory, kl_beta=0.1)
    initial = copy.deepcopy(learner.engine.model)
    learner.update(1)
    learner.compute_advantages(trajectory)
    samples = learner.samples
    calls = recorded_losses(learner, monkeypatch)
    with torch.no_grad():
        expected = initial(forward_inputs=samples.forward_inputs).logprobs
    expected = (samples.action_mask.unsqueeze(-1) * expected).sum(-1)
    for call in calls:
        assert not call.ref_logprobs.requires_grad
        assert all(bool((expected - row).abs().sum(1).min() < 1e-4) for row in call.ref_logprobs)
    assert not torch.allclose(calls[-1].logprobs, calls[-1].ref_logprobs)


def test_masks_and_entropies_know_what_was_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, _ = make_learner(make_trajectory(torch.float32), update_epoch=1, global_batch_size=48, micro_batch_size=48)
    learner.algorithm = dataclasses.replace(learner.algorithm, entropy_type="chunk_level")
    samples = learner.samples
    (call,) = recorded_losses(learner, monkeypatch)
    num_actions = int(make_trajectory(torch.float32).executed.sum())
    assert int(call.loss_mask.sum()) == num_actions < call.loss_mask.numel()
    for mask in (call.entropy_mask, call.value_mask):
        assert int(mask.sum()) == 47  # one chunk was not executed at all
    lengths = samples.action_mask.sum(-1)
    entropy = call.entropy.detach().squeeze(-1)
    per_action = float(entropy.max()) / CHUNK
    assert sorted(entropy.tolist()) == pytest.approx(sorted((per_action * lengths).tolist()), rel=1e-5)


def test_epochs_of_a_step_have_minibatches_of_their_own() -> None:
    learner, _ = make_learner(make_trajectory(torch.float32))
    plans = [torch.cat(learner.plan(step=step, epoch=epoch)).tolist() for step, epoch in ((1, 0), (1, 1), (2, 0))]
    assert plans[0] != plans[1]
    assert plans[0] != plans[2]
    assert sorted(plans[0]) == sorted(plans[1]) == list(range(48))


def test_statistics_of_observations_wait_for_the_last_update(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, _ = make_learner(make_trajectory(torch.float32))
    counts = []
    forward_backward = learner.forward_backward

    def record(samples: list[Any], plan: Any) -> MetricSums:
        counts.append(float(learner.engine.model.encoder.normalizer.count))
        return forward_backward(samples, plan)

    monkeypatch.setattr(learner, "forward_backward", record)
    learner.update(1)
    assert counts == [0.0] * 6


def test_keys_of_the_recipe_reach_the_advantages() -> None:
    trajectory = make_trajectory(torch.float32)
    terminations = torch.zeros_like(trajectory.truncations)
    terminations[1, 0, 0] = True
    trajectory = dataclasses.replace(
        trajectory, terminations=terminations, final_values=torch.full((STEPS, ENVS, 1), 50.0)
    )
    learner, standard = make_learner(trajectory)
    learner.algorithm = dataclasses.replace(learner.algorithm, bootstrap_type="always")
    assert learner.compute_advantages(trajectory)["return"] > standard["return"] + 0.1
    learner.algorithm = dataclasses.replace(learner.algorithm, reward_type="action_level")
    with pytest.raises(AlgorithmError, match="action_level needs values"):
        learner.compute_advantages(trajectory)


def test_samples_do_not_depend_on_the_order_in_which_trajectories_arrive() -> None:
    trajectory = make_trajectory(torch.float32)
    order = [5, 2, 7, 0, 1, 6, 3, 4]
    mixed = Trajectory.concat([trajectory.envs(i, i + 1) for i in order])
    (one, _), (other, _) = make_learner(trajectory), make_learner(mixed)
    assert torch.equal(one.samples.logprobs, other.samples.logprobs)
    assert torch.equal(one.samples.ids, other.samples.ids)
    torch.testing.assert_close(one.samples.advantages, other.samples.advantages)


def test_inputs_of_a_rollout_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, trajectory = make_ranked("grpo", torch.float32, 16), make_trajectory(torch.float32)
    monkeypatch.setattr(learner.engine, "device", torch.device("meta"))
    monkeypatch.setattr(policy_learner, "metrics_over_ranks", lambda *_: {})
    learner.compute_advantages(trajectory)
    assert learner.samples is not None
    assert {tensor.device.type for tensor in learner.samples.forward_inputs.values()} == {"cpu"}
    assert {learner.samples.logprobs.device.type, learner.samples.advantages.device.type} == {"meta"}


def acted_in(precision: str, learner: PolicyLearner) -> Trajectory:
    """Return a rollout by a copy of a learner's policy in a precision."""
    trajectory, policy = make_trajectory(torch.float32), copy.deepcopy(learner.policy)
    for parameter in policy.parameters():
        parameter.data = parameter.data.to(DTYPES[precision])
    states = trajectory.forward_inputs["states"].flatten(0, 1)
    _, output = policy.predict_action_batch({"states": states}, mode="train")
    rows = output.map(lambda tensor: tensor.unflatten(0, (STEPS, ENVS)))
    inputs = rows.forward_inputs | {"states": trajectory.forward_inputs["states"]}
    return dataclasses.replace(trajectory, forward_inputs=inputs, logprobs=rows.logprobs.float())


def recomputing(*, recompute: bool = True) -> PolicyLearner:
    """Return a learner whose policy, unlike a new one, says different things of different states."""
    learner, _ = make_learner(make_trajectory(torch.float32))
    for parameter in learner.policy.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    learner.algorithm = dataclasses.replace(learner.algorithm, recompute_logprobs=recompute)
    return learner


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_first_ratio_is_one_with_recomputed_logprobs(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reports, are_equal = [], []
    for recompute in (False, True):
        learner = recomputing(recompute=recompute)
        rollout = acted_in("bf16", learner)
        monkeypatch.setattr(learner.engine, "compute_dtype", DTYPES[precision])
        reports.append(learner.compute_advantages(rollout))
        first = recorded_losses(learner, monkeypatch)[0]
        are_equal.append(torch.equal(first.logprobs[first.loss_mask], first.old_logprobs[first.loss_mask]))
    assert are_equal == [False, True]
    assert "mismatch_k3" not in reports[0]
    assert 1e-7 < reports[1]["mismatch_k3"] < 1e-2
    assert 1e-4 < reports[1]["mismatch_max_probability_difference"] < 0.1


def test_where_rollout_and_actor_compute_alike_nothing_is_mismatched() -> None:
    learner = recomputing()
    rollout = acted_in("fp32", learner)
    # What stands for actions that were not executed does not count.
    rollout.logprobs[~rollout.executed] = 5.0
    metrics = learner.compute_advantages(rollout)
    assert metrics["mismatch_max_probability_difference"] < 1e-5
    assert metrics["mismatch_ess"] == pytest.approx(1.0, abs=1e-5)
