from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.data.messages.embodied import Trajectory
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.data.replay.segments import Manifest
from rlinf.errors import ConfigError

if TYPE_CHECKING:
    from rlinf.scheduler import WorkerGroup


STEPS, ENVS, CHUNK = 2, 2, 3
ROW_BYTES = 4 + 4 + 4 + 4 + 1 + 8


def trajectory() -> Trajectory:
    """Step 0: env 0 is cut off after two actions, env 1 goes on. Step 1: env 0 terminates at once, env 1 rests."""
    executed = torch.ones(STEPS, ENVS, CHUNK, dtype=torch.bool)
    executed[0, 0, 2:] = executed[1, 0, 1:] = executed[1, 1] = False
    terminations, truncations = torch.zeros_like(executed), torch.zeros_like(executed)
    truncations[0, 0, 1] = terminations[1, 0, 0] = True
    states = torch.arange(4.0).view(STEPS, ENVS, 1)
    return Trajectory(
        forward_inputs={"states": states, "action": states.view(STEPS, ENVS, 1, 1).expand(-1, -1, CHUNK, 1) / 10},
        logprobs=torch.zeros(STEPS, ENVS, CHUNK, 1),
        values=None,
        rewards=torch.tensor([[[1.0, 2.0, 0.0], [1.0, 2.0, 4.0]], [[5.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]),
        terminations=terminations,
        truncations=truncations,
        executed=executed,
        final_values=None,
        group_ids=torch.arange(ENVS),
        env_ids=torch.arange(ENVS),
        versions=torch.zeros(STEPS, ENVS, dtype=torch.int64),
        next_inputs={"states": states + 100},
    )


def numbered(*numbers: int) -> Transitions:
    rows = torch.tensor(numbers, dtype=torch.float32)
    return Transitions(
        inputs={"states": rows.unsqueeze(1)},
        actions=rows.view(-1, 1, 1),
        rewards=rows,
        next_inputs={"states": rows.unsqueeze(1) + 1},
        terminated=rows < 0,
        lengths=torch.ones(len(numbers), dtype=torch.int64),
    )


def test_chunks_become_transitions_by_what_was_executed() -> None:
    new = Transitions.from_trajectory(trajectory(), gamma=0.5)
    assert len(new) == 3  # a chunk step of an environment at rest is none
    assert new.inputs["states"].flatten().tolist() == [0, 1, 2]
    assert new.inputs.keys() == {"states"}
    assert new.next_inputs["states"].flatten().tolist() == [100, 101, 102]
    torch.testing.assert_close(new.rewards, torch.tensor([1 + 0.5 * 2, 1 + 0.5 * 2 + 0.25 * 4, 5.0]))
    assert new.lengths.tolist() == [2, 3, 1]
    assert new.terminated.tolist() == [False, False, True]  # cut off is not terminated
    torch.testing.assert_close(new.actions[:, 0, 0], torch.tensor([0.0, 0.1, 0.2]))


def test_what_lies_beside_actions_that_were_not_executed_is_of_no_transition() -> None:
    whole = trajectory()
    garbage = torch.where(whole.executed, whole.rewards, torch.tensor(float("nan"), dtype=whole.rewards.dtype))
    spoilt = dataclasses.replace(whole, rewards=garbage, terminations=whole.terminations | ~whole.executed)
    clean = dataclasses.replace(
        whole,
        rewards=torch.where(whole.executed, whole.rewards, 0.0),
        terminations=whole.terminations & whole.executed,
    )
    found, expected = (Transitions.from_trajectory(one, gamma=0.5) for one in (spoilt, clean))
    assert torch.equal(found.rewards, expected.rewards)
    assert torch.equal(found.terminated, expected.terminated)
    assert not found.terminated.all()


def test_joined_trajectories_keep_next_inputs_with_their_environments() -> None:
    whole = trajectory()
    joined = Trajectory.concat([whole.envs(1, 2), whole.envs(0, 1)]).sorted()
    assert torch.equal(joined.next_inputs["states"], whole.next_inputs["states"])


def test_the_oldest_make_room() -> None:
    replay = ReplayBuffer(5)
    for numbers in ([0, 1, 2], [3, 4, 5], [6]):
        replay.add(numbered(*numbers))
    assert len(replay) == 5
    assert replay.contents().rewards.tolist() == [2, 3, 4, 5, 6]
    replay.add(numbered(*range(10, 20)))
    assert replay.contents().rewards.tolist() == [15, 16, 17, 18, 19]
    assert torch.equal(replay.contents().next_inputs["states"].flatten(), torch.arange(16.0, 21.0))


def test_draws_are_uniform_repeatable_and_keep_transitions_whole() -> None:
    replay = ReplayBuffer(100)
    replay.add(numbered(*range(8)))
    first, again, other = (replay.sample(8000, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.rewards, again.rewards)
    assert not torch.equal(first.rewards, other.rewards)
    assert torch.equal(first.inputs["states"].flatten() + 1, first.next_inputs["states"].flatten())
    counts = torch.bincount(first.rewards.long(), minlength=8)
    assert len(counts) == 8
    assert int(counts.min()) > 850  # 1000 expected, standard deviation 30


def test_a_loaded_replay_draws_and_forgets_like_the_saved_one(tmp_path: Path) -> None:
    replay = ReplayBuffer(5)
    for start in (0, 3, 6):
        replay.add(numbered(start, start + 1, start + 2))
    replay.save(tmp_path / "replay")
    loaded = ReplayBuffer(5)
    loaded.load(tmp_path / "replay")
    for buffer in (replay, loaded):
        buffer.add(numbered(20, 21))
    assert loaded.contents().rewards.tolist() == replay.contents().rewards.tolist() == [6, 7, 8, 20, 21]
    draws = [buffer.sample(9, torch.Generator().manual_seed(3)).rewards for buffer in (replay, loaded)]
    assert torch.equal(*draws)
    ReplayBuffer(5).save(tmp_path / "empty")
    loaded.load(tmp_path / "empty")
    assert len(loaded) == 0


def test_spilled_draws_are_uniform_over_what_is_in_memory_and_what_is_not(tmp_path: Path) -> None:
    spilled = ReplayBuffer(60, memory_bytes=10 * ROW_BYTES, folder=tmp_path / "spilled")
    spilled.add(numbered(*range(64)))
    assert (len(spilled), spilled.num_spilled) == (60, 50)
    counts = torch.bincount(spilled.sample(30_000, torch.Generator().manual_seed(0)).rewards.long(), minlength=64)
    assert counts[:4].tolist() == [0] * 4
    # 500 expected, standard deviation 22.
    assert int(counts[4:].min()) > 390
    assert int(counts[4:].max()) < 610
    assert 4700 < int(counts[-10:].sum()) < 5300


@settings(max_examples=40, deadline=None)
@given(
    capacity=st.integers(1, 40),
    memory=st.integers(1, 12),
    segment=st.integers(1, 8),
    keep_all=st.booleans(),
    added=st.lists(st.integers(0, 50), max_size=6),
)
def test_a_spilled_replay_cannot_be_told_from_one_in_memory(
    capacity: int, memory: int, segment: int, keep_all: bool, added: list[int]
) -> None:
    with TemporaryDirectory() as folder:
        plain = ReplayBuffer(capacity)
        spilled = ReplayBuffer(
            capacity,
            memory_bytes=memory * ROW_BYTES,
            folder=Path(folder, "run"),
            keep_all=keep_all,
            segment_bytes=segment * ROW_BYTES,
        )
        total = 0
        for step, count in enumerate(added):
            new = numbered(*range(total, total + count))
            total += count
            for replay in (plain, spilled):
                replay.add(new)
            assert len(plain) == len(spilled) == min(total, capacity)
            if len(plain):
                assert spilled.contents().rewards.tolist() == list(range(max(total - capacity, 0), total))
                draws = [r.sample(7, torch.Generator().manual_seed(step)) for r in (plain, spilled)]
                assert_same(*draws)
            if step % 2:
                # What is saved is what is held; the run goes on from it, or from the loaded copy, in the same way.
                saved = Path(folder, f"saved_{step}")
                spilled.save(saved)
                spilled.load(saved)
        if keep_all:
            spilled.flush()
            if total:
                kept = ReplayBuffer.open(Path(folder, "run")).contents()
                assert kept.rewards.tolist() == list(range(total))
        else:
            on_disk = sum(segment.rows for segment in spilled._disk.segments.values()) if spilled._disk else 0
            assert on_disk < capacity + 2 * segment


def test_saving_again_links_the_segments_that_are_whole(tmp_path: Path) -> None:
    replay = ReplayBuffer(100, folder=tmp_path / "run", segment_bytes=10 * ROW_BYTES)
    replay.add(numbered(*range(25)))
    replay.save(tmp_path / "first")
    replay.add(numbered(*range(25, 45)))
    replay.save(tmp_path / "second")
    first, second = (Manifest.read(tmp_path / name).segments for name in ("first", "second"))
    assert [segment.rows for segment in first] == [10, 10, 5]
    assert [segment.rows for segment in second] == [10, 10, 10, 10, 5]
    for segment in first[:2]:
        assert os.path.samefile(tmp_path / "first" / segment.file, tmp_path / "second" / segment.file)
    # A checkpoint that retention deletes takes nothing from the others.
    shutil.rmtree(tmp_path / "first")
    replay.close()
    assert list((tmp_path / "run").iterdir()) == []
    assert ReplayBuffer.open(tmp_path / "second").contents().rewards.tolist() == list(range(45))


def test_a_resumed_replay_links_what_it_was_loaded_from(tmp_path: Path) -> None:
    replay = ReplayBuffer(100, folder=tmp_path / "run", segment_bytes=10 * ROW_BYTES)
    replay.add(numbered(*range(25)))
    replay.save(tmp_path / "saved")
    resumed = ReplayBuffer(100, folder=tmp_path / "resumed", segment_bytes=10 * ROW_BYTES)
    resumed.load(tmp_path / "saved")
    name = Manifest.read(tmp_path / "saved").segments[1].file
    assert os.path.samefile(tmp_path / "saved" / name, tmp_path / "resumed" / name)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4), num_ranks=st.integers(1, 4))
def test_parts_are_dealt_out_to_any_number_of_ranks(sizes: Any, num_ranks: int) -> None:
    with TemporaryDirectory() as folder:
        numbers = iter(range(sum(sizes)))
        for part, size in enumerate(sizes):
            replay = ReplayBuffer(100, segment_bytes=4 * ROW_BYTES)
            replay.add(numbered(*(next(numbers) for _ in range(size))))
            replay.save(Path(folder, f"rank_{part}"))
        shares = [ReplayBuffer.open(Path(folder), rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
        held = [share.contents().rewards.tolist() for share in shares if len(share)]
        assert sorted(number for share in held for number in share) == list(range(sum(sizes)))
        if num_ranks == len(sizes):
            assert [len(share) for share in shares] == sizes
        else:
            assert max(map(len, shares)) - min(map(len, shares)) <= len(sizes)


def test_spilling_without_a_folder_is_an_error() -> None:
    with pytest.raises(ConfigError, match="folder"):
        ReplayBuffer(5, memory_bytes=100)


def assert_same(left: WorkerGroup[Any], right: WorkerGroup[Any]) -> None:
    left, right = left.named(), right.named()
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
