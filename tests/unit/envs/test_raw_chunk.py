"""Messages of one chunk: what ends an episode, and how the parts of several processes are joined."""

from typing import Any

import numpy as np
import pytest
import torch

from rlinf.envs.raw_chunk import (
    ChunkRequest,
    EpisodeRule,
    RawChunk,
    changed_rows,
    concatenate_rows,
    put_rows,
    take_rows,
)


def part(num_envs: int, *, final_ids: list[int], value: float, **fields: Any) -> RawChunk:
    chunk = RawChunk.empty((num_envs, 2))
    chunk.obs = {"states": np.full((num_envs, 1), value), "task_descriptions": [f"task {value}"] * num_envs}
    chunk.rewards += value
    chunk.final_ids = np.array(final_ids, np.int64)
    if final_ids:
        chunk.final_obs = {
            "states": np.array([[value + row] for row in final_ids]),
            "task_descriptions": [f"end {row}" for row in final_ids],
        }
    for name, field in fields.items():
        setattr(chunk, name, field)
    return chunk


def test_rows_of_joined_chunks_are_numbered_in_the_whole() -> None:
    frame = np.zeros((1, 1, 3), np.uint8)
    first = part(2, final_ids=[1], value=10, frames={0: [frame]}, observations={0: [{}]})
    second = part(1, final_ids=[], value=20, reports_success=True)
    third = part(3, final_ids=[0, 2], value=30, frames={1: [frame]}, reset_frames={2: frame}, observations={2: [{}]})
    third.render_error = "no display"
    whole = RawChunk.concatenate([(0, first), (2, second), (3, third)])
    assert whole.final_ids.tolist() == [1, 3, 5]
    assert whole.final_obs is not None
    assert whole.final_obs["states"].tolist() == [[11], [30], [32]]
    assert whole.final_obs["task_descriptions"] == ["end 1", "end 0", "end 2"]
    assert whole.obs["states"].flatten().tolist() == [10, 10, 20, 30, 30, 30]
    assert whole.rewards.tolist() == [[10, 10]] * 2 + [[20, 20]] + [[30, 30]] * 3
    assert (list(whole.frames), list(whole.reset_frames), list(whole.observations)) == ([0, 4], [5], [0, 5])
    assert whole.render_error == "no display"
    assert whole.reports_success


def test_joined_chunks_without_an_end_have_no_final_observation() -> None:
    whole = RawChunk.concatenate([(0, part(1, final_ids=[], value=1)), (1, part(1, final_ids=[], value=2))])
    assert whole.final_ids.tolist() == []
    assert whole.final_obs is None
    assert not whole.reports_success
    assert whole.render_error is None


@pytest.mark.parametrize(
    ("ignores", "terminated", "truncated", "steps", "expected"),
    [
        (False, False, False, 4, (False, False)),
        (False, False, False, 5, (False, True)),
        (False, False, True, 1, (False, True)),
        (False, True, False, 1, (True, False)),
        (False, True, True, 5, (True, False)),
        (True, True, False, 1, (False, False)),
        (True, True, False, 5, (False, True)),
    ],
)
def test_an_episode_ends_by_termination_or_else_by_truncation(
    ignores: bool, terminated: bool, truncated: bool, steps: int, expected: tuple[bool, bool]
) -> None:
    rule = EpisodeRule(max_episode_steps=5, ignore_terminations=ignores)
    assert rule.ends(terminated, truncated, steps) == expected
    ends = rule.ends(np.array([terminated]), np.array([truncated]), np.array([steps]))
    assert tuple(bool(flags[0]) for flags in ends) == expected


def test_a_part_of_a_request_is_that_of_its_rows() -> None:
    request = ChunkRequest(
        actions=np.arange(8).reshape(4, 2),
        active=np.array([True, False, True, False]),
        steps=np.arange(4),
        next_seeds=np.arange(4) + 10,
        rule=EpisodeRule(5, False),
        observes=True,
    )
    share = request.rows(slice(1, 3))
    assert share.shape == (2, 2)
    assert share.actions.tolist() == [[2, 3], [4, 5]]
    assert share.active.tolist() == [False, True]
    assert share.steps.tolist() == [1, 2]
    assert share.next_seeds is not None
    assert share.next_seeds.tolist() == [11, 12]
    assert share.observes


def test_rows_are_taken_put_and_joined_without_a_change_of_the_original() -> None:
    obs = {"states": np.arange(3.0), "tensors": torch.arange(3), "task_descriptions": ["a", "b", "c"]}
    rows = np.array([2, 0])
    taken = take_rows(obs, rows)
    assert (taken["states"].tolist(), taken["tensors"].tolist()) == ([2, 0], [2, 0])
    assert taken["task_descriptions"] == ["c", "a"]
    new = put_rows(
        obs, rows, {"states": np.array([7.0, 8.0]), "tensors": torch.tensor([7, 8]), "task_descriptions": "xy"}
    )
    assert (new["states"].tolist(), new["tensors"].tolist()) == ([8, 1, 7], [8, 1, 7])
    assert new["task_descriptions"] == ["y", "b", "x"]
    assert (obs["states"].tolist(), obs["tensors"].tolist()) == ([0, 1, 2], [0, 1, 2])
    assert obs["task_descriptions"] == ["a", "b", "c"]
    assert changed_rows(obs, new).tolist() == [0, 2]
    joined = concatenate_rows([obs, taken])
    assert joined["tensors"].tolist() == [0, 1, 2, 2, 0]
    assert joined["task_descriptions"] == ["a", "b", "c", "c", "a"]


def test_rows_change_in_their_bits_in_their_strings_and_in_their_type() -> None:
    same = {"states": np.zeros((3, 2)), "task_descriptions": ["a", "b", "c"]}
    assert changed_rows(same, {"states": np.zeros((3, 2)), "task_descriptions": ["a", "b", "c"]}).tolist() == []
    assert changed_rows(same, same | {"task_descriptions": ["a", "x", "c"]}).tolist() == [1]
    assert changed_rows(same, same | {"states": np.array([[0, 0], [0, 0], [0, -0.0]])}).tolist() == [2]
    assert changed_rows(same, same | {"states": np.zeros((3, 2), np.float32)}).tolist() == [0, 1, 2]
    assert changed_rows(same, {"states": np.zeros((3, 2))}).tolist() == [0, 1, 2]
