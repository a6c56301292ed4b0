"""Imitation: which labels count, and that the policy moves to them."""

import dataclasses
from pathlib import Path

import pytest
import torch
from data_toys import (
    CHUNK,
    DIM,
    assert_same,
    learner_distance,
    losses_of_rank,
    make_learner,
    make_rollout,
    train,
    weights,
)


def test_cloning_moves_the_policy_to_the_recorded_actions() -> None:
    learner = make_learner("embodied_bc_mse")
    first = learner.update(1)["imitation_loss"]
    assert train(learner, 2, 60)["imitation_loss"] < 0.5 * first


def test_labels_are_gathered_as_they_count_and_the_oldest_make_room() -> None:
    learner = make_learner("embodied_dagger")
    assert learner.compute_advantages(make_rollout(1)) == pytest.approx(
        {"labelled": 16 / 28, "expert_acts": 16 / 28, "expert_distance": learner_distance(1)}
    )
    assert len(learner.stored) == 0  # only the update takes them in
    learner.update(1)
    rollout, stored = make_rollout(1), learner.stored.contents()
    kept = rollout.forward_inputs["labelled"] & rollout.executed.any(-1)
    assert torch.equal(stored.actions, rollout.forward_inputs["label"][kept])
    assert torch.equal(stored.inputs["states"], rollout.forward_inputs["states"][kept])
    assert stored.lengths.tolist() == rollout.executed.sum(-1)[kept].tolist()
    assert train(learner, 2, 5)["stored"] == 60


def test_only_interventions_are_imitated() -> None:
    learner, rollout = make_learner("embodied_hgdagger"), make_rollout(1, labels=False)
    kept = rollout.intervened.any(-1) & rollout.executed.any(-1)
    assert 0 < int(kept.sum()) < kept.numel()
    share = int(kept.sum()) / int(rollout.executed.any(-1).sum())
    assert learner.compute_advantages(rollout) == {"intervened": pytest.approx(share)}
    learner.update(1)
    stored = learner.stored.contents()
    assert torch.equal(stored.actions, rollout.forward_inputs["action"][kept])
    assert torch.equal(stored.inputs["states"], rollout.forward_inputs["states"][kept])


def test_of_a_chunk_only_the_operators_actions_are_imitated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy's own actions of a chunk are recorded next to the operator's, and are no labels."""
    learner, rollout = make_learner("embodied_hgdagger"), make_rollout(1, labels=False)
    flags = rollout.intervened.clone()
    flags[:, 0::4, 1:] = False
    flags[:, 2::4, :2] = False
    learner.compute_advantages(dataclasses.replace(rollout, intervened=flags & rollout.executed))
    learner.update(1)
    losses: list[float] = []
    for doubled in (1.0, 100.0):
        batch = learner.stored.sample(32, torch.Generator().manual_seed(0))
        marked = batch.inputs["imitated"]
        assert {1, 2} & set(marked.sum(-1).tolist())
        foreign = torch.where(marked.unsqueeze(-1), batch.actions, batch.actions * doubled)
        losses += losses_of_rank(learner, dataclasses.replace(batch, actions=foreign), 0, 1, monkeypatch)
    assert losses[0] == losses[1]
    with torch.no_grad():
        greedy = learner.policy(forward_inputs={"states": batch.inputs["states"], "action": batch.actions}).greedy
    gaps = (greedy - batch.actions).square().mean(-1)
    assert losses[0] == pytest.approx(float(gaps[marked].mean()), rel=1e-4)


def test_of_a_chunk_only_labelled_actions_are_imitated() -> None:
    learner, rollout = make_learner("embodied_dagger"), make_rollout(1)
    labelled = torch.ones_like(rollout.executed)
    labelled[:, 2::4, 1:] = False
    labelled[:, 1] = False
    inputs = {**rollout.forward_inputs, "labelled": labelled}
    metrics = learner.compute_advantages(dataclasses.replace(rollout, forward_inputs=inputs))
    counts = labelled & rollout.executed
    assert metrics["labelled"] == pytest.approx(int(counts.any(-1).sum()) / int(rollout.executed.any(-1).sum()))
    learner.update(1)
    stored = learner.stored.contents()
    assert torch.equal(stored.inputs["imitated"], counts[counts.any(-1)])
    assert torch.equal(stored.actions, rollout.forward_inputs["label"][counts.any(-1)])


def test_without_any_label_nothing_is_learned() -> None:
    learner, rollout = make_learner("embodied_dagger"), make_rollout(1)
    rollout.forward_inputs["labelled"][:] = False
    before = weights(learner)
    learner.compute_advantages(rollout)
    assert learner.update(1) == {"stored": 0.0}
    assert_same(weights(learner), before, atol=0, rtol=0)


@pytest.mark.parametrize("name", ["embodied_bc", "offline_iql"])
def test_only_executed_actions_are_imitated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(name)
    batch = learner.stored.sample(32, torch.Generator().manual_seed(0))
    assert {1, 3} <= set(batch.lengths.tolist())
    with torch.no_grad():
        evaluation = learner.policy(forward_inputs={**batch.inputs, "action": batch.actions})
    executed = torch.arange(CHUNK) < batch.lengths[:, None]
    logprobs = (evaluation.logprobs.sum(-1) * executed).sum(-1)
    if name == "offline_iql":
        seen = []
        actor_loss = learner.losses.actor_loss
        monkeypatch.setattr(
            learner.losses, "actor_loss", lambda **keys: seen.append(keys["logprobs"].detach()) or actor_loss(**keys)
        )
        losses_of_rank(learner, batch, 0, 1, monkeypatch)
        torch.testing.assert_close(torch.cat(seen), logprobs)
    else:
        (loss,) = losses_of_rank(learner, batch, 0, 1, monkeypatch)
        assert loss == pytest.approx(-float(logprobs.sum() / batch.lengths.sum()), rel=1e-4)


def test_labels_count_where_there_is_one_and_something_was_executed() -> None:
    learner = make_learner("embodied_dagger")
    labelled = torch.tensor([True, True, False, False])
    executed = torch.tensor([[True] * CHUNK, [False] * CHUNK, [True] * CHUNK, [False] * CHUNK])
    kept = learner.collect({"states": torch.zeros(4, 5)}, torch.zeros(4, CHUNK, DIM), labelled, executed)
    assert kept.tolist() == [True, False, False, False]
    assert len(learner.pending) == 1


def test_loading_takes_the_place_of_the_labels_that_are_there(tmp_path: Path) -> None:
    saved, other = make_learner("embodied_dagger"), make_learner("embodied_dagger")
    train(saved, 1, 1)
    saved.save(tmp_path / "actor")
    train(other, 2, 3)
    other.load(tmp_path / "actor")
    assert torch.equal(other.stored.contents().actions, saved.stored.contents().actions)
