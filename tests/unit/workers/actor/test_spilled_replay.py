"""Where transitions lie, in memory or in files, changes nothing that is learned."""

import dataclasses
from pathlib import Path

import torch
from off_policy_toys import ENVS, LOSS, STEPS, assert_same, make_learner, make_trajectory, train, weights

from rlinf.config.schema.algorithm import SACLossConfig
from rlinf.data.replay.buffer import ReplayBuffer


def spilling(folder: Path, **keys: bool) -> SACLossConfig:
    keys = {"capacity": 100, "memory_bytes": 30 * 80, "folder": str(folder)} | keys
    return dataclasses.replace(LOSS, replay_buffer=dataclasses.replace(LOSS.replay_buffer, **keys))


def test_a_spilled_replay_teaches_the_same_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    plain = make_learner(dataclasses.replace(LOSS, replay_buffer=dataclasses.replace(LOSS.replay_buffer, capacity=100)))
    spilled = make_learner(spilling(tmp_path / "run"))
    for learner in (plain, spilled):
        train(learner, 1, 4)
    assert len(spilled.replay) == 100
    assert spilled.replay.num_spilled > 50
    assert_same(weights(spilled), weights(plain), atol=0, rtol=0)
    spilled.save(tmp_path / "actor")
    resumed = make_learner(spilling(tmp_path / "resumed"))
    resumed.load(tmp_path / "actor")
    assert train(resumed, 5, 5) == train(plain, 5, 5)
    assert_same(weights(resumed), weights(plain), atol=0, rtol=0)
    resumed.close()
    assert not any((tmp_path / "resumed").rglob("segment_*"))


def test_auto_save_keeps_what_the_replay_forgets(tmp_path: Path) -> None:
    learner = make_learner(spilling(tmp_path / "run", auto_save=True))
    train(learner, 1, 4)
    assert len(learner.replay) == 100
    learner.save(tmp_path / "actor")
    saved = ReplayBuffer.open(tmp_path / "run").contents()
    executed = sum(int(make_trajectory(10 * step).executed.any(-1).sum()) for step in range(1, 5))
    assert len(saved) == executed > 100
    assert executed <= 4 * STEPS * ENVS
    assert torch.equal(saved.rewards[-100:], learner.replay.contents().rewards)
    resumed = make_learner(spilling(tmp_path / "run", auto_save=True))
    resumed.load(tmp_path / "actor")
    train(resumed, 5, 5)
    resumed.close()
    assert len(ReplayBuffer.open(tmp_path / "run")) > executed
