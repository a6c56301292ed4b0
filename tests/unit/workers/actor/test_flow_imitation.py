"""Flows are imitated by flow matching: the executed actions count, and what is behind them in the horizon does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.algorithm import DAggerLossConfig, EmbodiedAlgorithmConfig, NoAdvantageConfig
from rlinf.config.schema.expert import ExpertConfig, PolicyExpertConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.data.messages.embodied import Observation
from rlinf.data.replay.buffer import Transitions
from rlinf.errors import ConfigError
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.workers.actor.imitation_learner import DAggerLearner
from rlinf.workers.rollout.experts import Teacher, with_actions
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.vla_policies import observations

pytest.importorskip("transformers")
ROWS, CHUNK, HORIZON, DIM = 3, 2, 6, 3


def obs_of() -> Observation:
    return observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-0.9, 0.0, 0.7]])}


def make_learner(folder: Path) -> DAggerLearner:
    policy = pi_policy(folder, "pi0", image_keys=["main_images", "wrist_images"])
    loss = DAggerLossConfig(expert=ExpertConfig(expert_type="none"), imitation_loss="model")
    actor = ActorConfig(model=policy.cfg, optim=OptimConfig(lr=5e-3), global_batch_size=4, micro_batch_size=2)
    engine = FSDPEngine(
        policy,
        optim=actor.optim,
        fsdp=FSDPConfig(sharding_strategy="no_shard"),
        precision="fp32",
        device=torch.device("cpu"),
    )
    algorithm = EmbodiedAlgorithmConfig(
        adv_type="none", loss_type="none", advantage=NoAdvantageConfig(), loss=loss, update_epoch=3
    )
    return DAggerLearner(engine, cfg=RLinfConfig(algorithm=algorithm, actor=actor))


def stored(learner: DAggerLearner) -> Transitions:
    actions = torch.linspace(-0.9, 0.9, ROWS * CHUNK * DIM).view(ROWS, CHUNK, DIM)
    inputs = learner.policy.forward_inputs_of(obs_of(), actions)
    return Transitions(
        actions=inputs.pop("action"),
        inputs=inputs,
        rewards=torch.zeros(ROWS),
        next_inputs={},
        terminated=torch.zeros(ROWS, dtype=torch.bool),
        lengths=torch.tensor([2, 1, 2]),
    )


def test_the_gradient_is_that_of_the_models_own_loss_on_what_was_executed(tmp_path: Path) -> None:
    learner = make_learner(tmp_path)
    batch = stored(learner)
    rows = Transitions.concat([batch, batch.rows(0, 1)])
    whole = learner.augment(rows, torch.Generator().manual_seed(0))
    policy = pi_policy(tmp_path, "pi0", image_keys=["main_images", "wrist_images"])
    padded = torch.cat([whole.actions, whole.actions[:, -1:].expand(-1, HORIZON - CHUNK, -1)], 1)
    losses = policy.supervised_forward({**whole.inputs, "action": padded}).mean(-1)[:, :CHUNK]
    expected = sum(losses[row, : int(length)].sum() for row, length in enumerate(whole.lengths)) / 7
    assert isinstance(expected, torch.Tensor)
    expected.backward()
    learner.engine.step = lambda *_: {}  # type: ignore[method-assign, misc, assignment]
    sums = learner.update_once(whole)
    total, count = sums["imitation_loss"].tolist()
    assert (total / count, count) == (pytest.approx(expected.item(), rel=1e-5), 7)
    found = dict(learner.policy.named_parameters())
    compared = [(found[name].grad, p.grad) for name, p in policy.named_parameters() if p.grad is not None]
    assert len(compared) > 10
    for got, wanted in compared:
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_updates_lower_the_loss_with_new_noise_each_time(tmp_path: Path) -> None:
    learner = make_learner(tmp_path)
    whole = learner.augment(stored(learner), torch.Generator().manual_seed(0))
    padded = torch.cat([whole.actions, whole.actions[:, -1:].expand(-1, HORIZON - CHUNK, -1)], 1)

    @torch.no_grad()
    def loss() -> float:
        return float(learner.policy.supervised_forward({**whole.inputs, "action": padded})[:, :CHUNK].mean())

    first, losses = loss(), []
    for step in range(1, 25):
        learner.pending = stored(learner)
        losses.append(learner.update(step)["imitation_loss"])
    assert len(set(losses)) == len(losses)
    assert loss() < 0.8 * first


def test_a_report_without_actions_gets_what_the_policy_saw_and_did(tmp_path: Path) -> None:
    policy, obs = pi_policy(tmp_path, "pi0", image_keys=["main_images", "wrist_images"]), obs_of()
    actions, output = policy.predict_action_batch(obs, mode="eval")
    report = with_actions(policy, obs, actions, output)
    assert "chain" not in report.forward_inputs
    expected = policy.forward_inputs_of(obs, actions)
    assert expected.keys() == report.forward_inputs.keys()
    torch.testing.assert_close(report.forward_inputs["action"], expected["action"])
    assert with_actions(policy, obs, actions, report) is report


@pytest.mark.parametrize("distance", [None, 0.05])
def test_an_expert_labels_the_states_of_a_flow(tmp_path: Path, distance: float | None) -> None:
    policy, obs = pi_policy(tmp_path, "pi0", image_keys=["main_images", "wrist_images"]), obs_of()
    actions, output = policy.predict_action_batch(obs, mode="eval")
    expert = actions.clone()
    expert[0] += 0.4
    loss = DAggerLossConfig(expert=ExpertConfig(expert_type="x"), imitation_loss="model", takeover_distance=distance)
    teacher = Teacher(loss, policy, lambda _: expert)
    mixed, report = teacher.mix_actions(obs, actions, output, torch.Generator().manual_seed(0))
    inputs = report.forward_inputs
    wanted = policy.forward_inputs_of(obs, expert)["action"]
    torch.testing.assert_close(inputs["label"], wanted)
    if distance is None:
        assert inputs["labelled"].all()
        return
    assert inputs["expert_acts"].tolist() == [True, False, False]
    torch.testing.assert_close(mixed[0], expert[0])


def test_a_flow_is_imitated_by_its_own_loss_alone() -> None:
    keys = ("adv_type=embodied_dagger", "loss_type=embodied_dagger", "expert={expert_type: policy, ckpt_path: /w}")
    keys = tuple(f"algorithm.{key}" if "=embodied" in key else f"+algorithm.{key}" for key in keys)
    keys += tuple(f"~algorithm.{key}" for key in ("gamma", "gae_lambda", "logprob_type"))
    keys += ("actor.model.add_value_head=false", "~actor.model.value_hidden_dims")
    with pytest.raises(ConfigError, match=r"algorithm\.imitation_loss: received nll; model_type=openpi .*to model"):
        validate_cfg(load_recipe("pixel_reach_ppo_openpi_tiny", keys))
    cfg = validate_cfg(load_recipe("pixel_reach_ppo_openpi_tiny", [*keys, "+algorithm.imitation_loss=model"]))
    assert cfg.algorithm.loss == DAggerLossConfig(
        expert=PolicyExpertConfig(expert_type="policy", ckpt_path="/w"), imitation_loss="model"
    )
    with pytest.raises(ConfigError, match=r"algorithm\.imitation_loss: received model; model_type=mlp_policy"):
        validate_cfg(load_recipe("metaworld_reach_dagger_mlp", ["algorithm.imitation_loss=model"]))
