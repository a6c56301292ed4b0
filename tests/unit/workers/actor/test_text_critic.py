"""A critic of its own predicts what a value head would, learns without the policy, and is saved with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.workers.actor.text_critic import TextCritic
from rlinf.workers.actor.text_learner import TextLearner
from tests.unit.data.messages.response_samples import batch_of
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.workers.actor.test_text_learner import config, make_learner, make_responses

pytest.importorskip("transformers")
CRITIC = ("algorithm.adv_type=gae", "critic.use_critic_model=true", "critic.optim.lr=0.02", "algorithm.update_epoch=1")
HEAD = (
    "algorithm.adv_type=gae",
    "algorithm.loss_type=actor_critic",
    "actor.model.add_value_head=true",
    "algorithm.update_epoch=1",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the model is."""
    path = tmp_path_factory.mktemp("model")
    save_tiny(path)
    return path


def set_head(critic: TextCritic) -> None:
    """Give the value head weights that are not zero, those of ``make_learner``."""
    weight = critic.engine.model.get_parameter("value_head.weight")
    full = torch.linspace(-0.2, 0.3, 16).unsqueeze(0)
    critic.engine.import_weights([("value_head.weight", full)])
    assert weight.shape == full.shape


def weights_of(engine: FSDPEngine) -> torch.Tensor:
    """Return all weights in one row."""
    return torch.cat([tensor.flatten().clone() for _, tensor in engine.export_weights()])


def make_with_critic(folder: Path, *keys: str) -> tuple[TextLearner, TextCritic]:
    """Return a learner and its critic."""
    learner = make_learner(config(folder, *CRITIC, *keys))
    assert learner.critic is not None
    set_head(learner.critic)
    return learner, learner.critic


def test_it_predicts_what_a_head_on_the_same_body_would(folder: Path) -> None:
    batch = batch_of(make_responses(folder))
    _, critic = make_with_critic(folder)
    with_head = make_learner(config(folder, *HEAD))
    expected = with_head._evaluate(batch).values
    assert expected is not None
    for one, other in zip(critic.values(batch), expected, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
        assert one.abs().max() > 0


@pytest.mark.parametrize("sharding", ["no_shard", "full_shard"])
def test_policy_and_critic_learn_each_by_itself(folder: Path, sharding: str) -> None:
    batch = batch_of(make_responses(folder))
    learner, critic = make_with_critic(folder, f"critic.fsdp_config.sharding_strategy={sharding}")
    policy, values = weights_of(learner.engine), weights_of(critic.engine)
    learner.compute_advantages(batch)
    metrics = learner.update(1)
    assert (weights_of(learner.engine) - policy).abs().max() > 1e-3
    assert (weights_of(critic.engine) - values).abs().max() > 1e-3
    assert metrics["critic_lr"] == 0.02
    assert metrics["critic_grad_norm"] > 0
    assert metrics["critic_value_loss"] > 0
    losses = [metrics["critic_value_loss"]]
    for step in range(2, 8):
        learner.compute_advantages(batch)
        losses.append(learner.update(step)["critic_value_loss"])
    assert losses[-1] < 0.7 * losses[0], losses


def test_its_gradient_does_not_depend_on_micro_batches(folder: Path) -> None:
    batch, norms = batch_of(make_responses(folder)), []
    for keys in ((), ("runner.max_tokens_per_mbs=20",)):
        learner, _ = make_with_critic(folder, "actor.global_batch_size=12", *keys)
        learner.compute_advantages(batch)
        norms.append(learner.update(1)["critic_grad_norm"])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_it_is_saved_with_the_policy_and_goes_on(folder: Path, tmp_path: Path) -> None:
    batch = batch_of(make_responses(folder))
    learner, critic = make_with_critic(folder)
    learner.compute_advantages(batch)
    learner.update(1)
    learner.save(tmp_path)
    learner.compute_advantages(batch)
    expected = learner.update(2)
    other, others = make_with_critic(folder)
    other.load(tmp_path)
    other.compute_advantages(batch)
    assert other.update(2) == expected
    assert torch.equal(weights_of(others.engine), weights_of(critic.engine))


def test_a_model_of_its_own_may_be_named(folder: Path, tmp_path: Path) -> None:
    save_tiny(tmp_path, seed=7, num_hidden_layers=1)
    named = f"critic.model={{model_type: causal_lm, model_path: {tmp_path}}}"
    learner, critic = make_with_critic(folder, named)
    assert len(critic.engine.model.recompute_units()) == 1
    assert len(learner.engine.model.recompute_units()) == 2
    assert get_model(learner.cfg.actor.model).value_head is None


def test_it_is_on_its_device_while_it_predicts_or_learns_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, critic = make_with_critic(folder, "critic.enable_offload=true")
    moves: list[str] = []
    monkeypatch.setattr(critic.engine, "onload", lambda: moves.append("on"))
    monkeypatch.setattr(critic.engine, "offload", lambda: moves.append("off"))
    learner.compute_advantages(batch_of(make_responses(folder)))
    assert moves == ["on", "off"]
    learner.update(1)
    assert moves == ["on", "off"] * 2
