"""A step's batch comes back from its files as it was, for each kind of learner."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from rlinf.data.datasets.examples import Example
from rlinf.data.messages.embodied import Trajectory
from rlinf.data.messages.responses import ResponseBatch
from rlinf.errors import CheckpointError
from rlinf.workers.actor.step_dump import read_step, write_batch
from tests.unit.data.messages.response_samples import Sample, batch_of


def trajectory(first_env: int, num_envs: int) -> Trajectory:
    """Return two chunks of three actions of some environments; every number is another one."""
    generator = torch.Generator().manual_seed(first_env)
    shape = (2, num_envs, 3)
    flags = torch.rand(3, *shape, generator=generator) < 0.5
    return Trajectory(
        forward_inputs={"obs": torch.rand(2, num_envs, 4, generator=generator)},
        logprobs=torch.rand(*shape, 1, generator=generator),
        values=torch.rand(3, num_envs, 1, generator=generator),
        rewards=torch.rand(shape, generator=generator),
        terminations=flags[0],
        truncations=flags[1],
        executed=flags[2],
        final_values=None,
        group_ids=torch.arange(first_env, first_env + num_envs),
        env_ids=torch.arange(first_env, first_env + num_envs),
        versions=torch.full((2, num_envs), 7),
    )


def assert_equal(found: object, expected: object) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert isinstance(found, torch.Tensor)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert_equal(found[name], value)
    else:
        assert found == expected


def assert_same(found: object, expected: object) -> None:
    for field in dataclasses.fields(expected):  # type: ignore[arg-type]
        assert_equal(getattr(found, field.name), getattr(expected, field.name))


def test_the_shares_of_all_ranks_come_back_together(tmp_path: Path) -> None:
    parts = [trajectory(0, 2), trajectory(2, 1), trajectory(3, 2)]
    for rank, part in enumerate(parts):
        write_batch(tmp_path, part, version=5, rank=rank)
    step = read_step(tmp_path)
    assert (step.version, step.num_threads) == (5, torch.get_num_threads())
    assert_same(step.batch, Trajectory.concat(parts))
    assert step.batch.env_ids.tolist() == [0, 1, 2, 3, 4]


def test_responses_are_written_once(tmp_path: Path) -> None:
    batch = batch_of(
        [
            Sample(group_id=3, prompt=(4, 5), token_ids=(6, 7), logprobs=(-1.5, -2.5), versions=(1, 2), reward=0.5),
            Sample(group_id=3, index=1, prompt=(4, 5), loss_mask=(False,), reward_terms={"it": 2.0}),
        ]
    )
    batch = dataclasses.replace(batch, trainer_logprobs=torch.tensor([-1.0, -2.0, -3.0]))
    for rank in (0, 1):
        write_batch(tmp_path, batch, version=0, rank=rank)
    assert len(list(tmp_path.iterdir())) == 1
    found = read_step(tmp_path).batch
    assert isinstance(found, ResponseBatch)
    assert_same(found, batch)


def test_images_of_responses_come_back(tmp_path: Path) -> None:
    batch = batch_of([Sample(), Sample()])
    batch = dataclasses.replace(batch, images=((b"a\x00b", b"c"), ()))
    write_batch(tmp_path, batch, version=3, rank=0)
    assert_same(read_step(tmp_path).batch, batch)


def test_routes_come_back(tmp_path: Path) -> None:
    batch = batch_of([Sample(), Sample(token_ids=(1, 2))])
    for dtype in (torch.uint8, torch.int32):
        routed = dataclasses.replace(batch, routes=torch.arange(10, dtype=dtype).view(5, 1, 2))
        write_batch(tmp_path, routed, version=3, rank=0)
        assert_same(read_step(tmp_path).batch, routed)


def test_branches_and_agents_come_back(tmp_path: Path) -> None:
    batch = batch_of([Sample(token_ids=(1, 2, 3))])
    branches = {"branch_lengths": (2, 1), "turn_spans": ((0, 1), (2, 3)), "turn_agents": ("", "worker.1")}
    branches["turn_rewards"] = (0.5, -1.0)
    first = dataclasses.replace(batch.responses[0], **branches)  # type: ignore[arg-type]
    batch = dataclasses.replace(batch, responses=(first,), prompt_ids=((1,), (2,)))
    write_batch(tmp_path, batch, version=3, rank=0)
    assert_same(read_step(tmp_path).batch, batch)


def test_examples_are_written_once(tmp_path: Path) -> None:
    examples = [
        Example(prompt_ids=(1, 2), answer_ids=(3,), loss_mask=(True,)),
        Example(prompt_ids=(4,), answer_ids=(5, 6), loss_mask=(False, True)),
    ]
    for rank in (0, 1):
        write_batch(tmp_path, examples, version=0, rank=rank)
    assert read_step(tmp_path).batch == examples


def test_what_cannot_be_written_or_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a batch of type int cannot be written"):
        write_batch(tmp_path, 3, version=0, rank=0)
    with pytest.raises(CheckpointError, match="holds no batch"):
        read_step(tmp_path)
