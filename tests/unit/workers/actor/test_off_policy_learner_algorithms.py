"""What TD3, CrossQ and RLPD ask of the learner beyond SAC."""

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from off_policy_kinds import make_crossq, make_rlpd, make_td3, train_on_shared_batches
from off_policy_toys import assert_same, changed, train, weights

from rlinf.models.base_policy import ForwardType
from rlinf.scheduler.probe import find_free_port
from tests.ranks import run_ranks


def test_td3_does_not_depend_on_the_micro_batch_size() -> None:
    expected = make_td3(micro=32)
    train(expected, 1, 2)
    learner = make_td3(micro=8)
    train(learner, 1, 2)
    assert_same(weights(learner), weights(expected), atol=2e-4, rtol=1e-3)


def test_td3_delays_policy_and_all_targets() -> None:
    learner = make_td3(updates=1)
    before = weights(learner)
    train(learner, 1, 1)
    middle = weights(learner)
    assert changed(before, middle, "critic")
    assert not changed(before, middle, ("policy_head", "target_"))
    metrics = train(learner, 2, 2)
    after = weights(learner)
    assert changed(middle, after, "policy_head")
    for name in (name for name in after if name.startswith("target_")):
        expected = 0.9 * middle[name] + 0.1 * after[name.removeprefix("target_")]
        torch.testing.assert_close(after[name], expected)
    assert {"actor_loss", "critic_loss"} <= metrics.keys()
    assert not {"alpha", "entropy"} & metrics.keys()


def test_crossq_moves_critics_without_targets() -> None:
    learner = make_crossq(micro=32)
    before = weights(learner)
    train(learner, 1, 1)
    assert changed(before, weights(learner), "critic.layers.0.mean")
    assert int(weights(learner)["critic.layers.0.updates"]) == 4


@pytest.mark.parametrize("name", ["td3", "crossq", "rlpd"])
def test_a_loaded_learner_continues_bit_for_bit(name: str, demos: Path, tmp_path: Path) -> None:
    make = {"td3": make_td3, "crossq": make_crossq, "rlpd": lambda **keys: make_rlpd(demos, **keys)}[name]
    undisturbed = make(micro=32, updates=3)
    train(undisturbed, 1, 3)
    undisturbed.save(tmp_path / "actor")
    expected = train(undisturbed, 4, 5)
    resumed = make(micro=32, updates=3)
    resumed.load(tmp_path / "actor")
    assert train(resumed, 4, 5) == expected
    assert_same(weights(resumed), weights(undisturbed), atol=0, rtol=0)


def run_rank(rank: int, port: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    results = {sharding: train_on_shared_batches(rank, 2, sharding) for sharding in ("no_shard", "full_shard")}
    torch.save(results, folder / f"crossq_{rank}.pt")
    for name, make in {"td3": make_td3, "rlpd": lambda **keys: make_rlpd(folder / "demos", **keys)}.items():
        learned = {}
        for sharding in ("no_shard", "full_shard"):
            learner = make(sharding=sharding, rank=rank, world_size=2, micro=8, updates=2)
            train(learner, 1, 2, rank)
            learned[sharding] = weights(learner)
        torch.save(learned, folder / f"{name}_{rank}.pt")


@pytest.mark.timeout(240)
def test_two_ranks_agree_under_any_sharding(tmp_path: Path, demos: Path) -> None:
    shutil.copytree(demos, tmp_path / "demos")
    run_ranks(run_rank, find_free_port(), tmp_path)
    expected = {name: torch.load(tmp_path / f"{name}_0.pt")["no_shard"] for name in ("td3", "rlpd")}
    expected["crossq"] = train_on_shared_batches(0, 1, "no_shard")  # what one rank learns
    for name, weights_of_one in expected.items():
        for rank in (0, 1):
            for result in torch.load(tmp_path / f"{name}_{rank}.pt").values():
                assert_same(result, weights_of_one, atol=5e-4, rtol=1e-3)


def test_td3_smooths_targets_by_bounded_noise_and_leaves_the_policys_alone() -> None:
    learner = make_td3(updates=1)
    learner.losses.cfg = dataclasses.replace(learner.losses.cfg, target_noise=3.0, target_noise_clip=0.25)
    seen, forward = {}, learner.policy.forward

    def record(forward_type: Any, **arguments: Any) -> Any:
        seen[forward_type] = arguments["noise"]
        return forward(forward_type, **arguments)

    learner.policy.forward = record
    train(learner, 1, 2)
    assert seen[ForwardType.CRITIC].abs().max() == 0.25
    assert seen[ForwardType.ACTOR].abs().max() > 1.0
